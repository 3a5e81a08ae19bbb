/// The fields of a config.json that describe rotations: spellings, precedence, derived factors, errors.
#include "model/rope_fields.h"

#include <string>

#include <gtest/gtest.h>

#include "io/json.h"

namespace baton {
namespace {

using Kind = RopeScaling::Kind;

Result<RopeSpec> read(std::string_view config, const fields::RopeContext& context = {.head_dim = 8, .max_position = 4096}) {
  return fields::read_rope(json::parse(config, "the test").value(), context);
}

RopeSpec read_good(std::string_view config, const fields::RopeContext& context = {.head_dim = 8, .max_position = 4096}) {
  auto spec = read(config, context);
  EXPECT_TRUE(spec) << spec.error().message;
  return spec ? std::move(*spec) : RopeSpec{};
}

std::string error_of(std::string_view config, const fields::RopeContext& context = {.head_dim = 8, .max_position = 4096}) {
  const auto spec = read(config, context);
  return spec ? "no error" : spec.error().message;
}

TEST(RopeFields, without_fields_the_context_counts) {
  const RopeSpec spec = read_good("{}", {.head_dim = 8, .max_position = 4096, .theta = 500});
  EXPECT_EQ(spec.theta, 500);
  EXPECT_EQ(spec.rotary_dim, 8);
  EXPECT_EQ(spec.scaling.kind, Kind::none);
  EXPECT_EQ(spec.scaling.attention_factor, 1);
}

TEST(RopeFields, rope_scaling_counts_before_rope_parameters_and_theirs_before_the_configs_own) {
  const RopeSpec spec = read_good(R"({"rope_theta":300,"rope_scaling":{"type":"linear","factor":2,"rope_theta":400},
                                      "rope_parameters":{"rope_type":"linear","factor":9,"rope_theta":900}})");
  EXPECT_EQ(spec.theta, 400);
  EXPECT_EQ(spec.scaling.factor, 2);
  EXPECT_EQ(read_good(R"({"rope_theta":300,"rope_scaling":null,"rope_parameters":{"rope_type":"default"}})").theta, 300);
  const RopeSpec yarn = read_good(R"({"original_max_position_embeddings":256,"rope_scaling":
                                      {"type":"yarn","factor":2,"original_max_position_embeddings":512}})");
  EXPECT_EQ(yarn.scaling.original_max_position, 256);
}

TEST(RopeFields, dynamic_scaling_begins_at_the_length_of_the_config) {
  const RopeSpec spec = read_good(R"({"rope_scaling":{"type":"dynamic","factor":2.5}})");
  EXPECT_EQ(spec.scaling.kind, Kind::dynamic);
  EXPECT_EQ(spec.scaling.factor, 2.5);
  EXPECT_EQ(spec.scaling.original_max_position, 4096);
}

// The numbers are those of Transformers 5.17.
TEST(RopeFields, yarn_has_an_attention_factor_of_its_own_or_from_its_scales) {
  const RopeSpec plain = read_good(R"({"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":2048,
                                       "beta_fast":0,"beta_slow":null,"finetuned":true}})");
  EXPECT_EQ(plain.scaling.kind, Kind::yarn);
  EXPECT_EQ(plain.scaling.original_max_position, 2048);
  EXPECT_NEAR(plain.scaling.attention_factor, 1.138629436111989, 1e-12);
  EXPECT_EQ(plain.scaling.beta_fast, 32);
  EXPECT_EQ(plain.scaling.beta_slow, 1);
  EXPECT_TRUE(plain.scaling.truncate);
  const RopeSpec deepseek = read_good(R"({"rope_scaling":{"type":"yarn","factor":40,"mscale":0.707,"mscale_all_dim":1.0}})");
  EXPECT_NEAR(deepseek.scaling.attention_factor, 0.9210423553163399, 1e-12);
  EXPECT_EQ(deepseek.scaling.original_max_position, 4096);
  const RopeSpec own = read_good(R"({"rope_parameters":{"rope_type":"yarn","factor":null,"attention_factor":1.25,
                                     "original_max_position_embeddings":1024,"truncate":false,"beta_fast":16,"beta_slow":2}})");
  EXPECT_EQ(own.scaling.attention_factor, 1.25);
  EXPECT_EQ(own.scaling.factor, 4) << "the ratio of the lengths";
  EXPECT_EQ(own.scaling.beta_fast, 16);
  EXPECT_EQ(own.scaling.beta_slow, 2);
  EXPECT_FALSE(own.scaling.truncate);
}

TEST(RopeFields, longrope_has_a_divisor_for_each_pair) {
  const std::string factors = R"("short_factor":[1,1.5,2,3],"long_factor":[1,4,16,64])";
  const fields::RopeContext context{
      .head_dim = 8, .max_position = 131072, .yarn_is_longrope = true, .original_max_position = 4096};
  for (const char* type : {"longrope", "su", "yarn"}) {
    const RopeSpec spec = read_good(R"({"rope_scaling":{"type":")" + std::string(type) + R"(",)" + factors + "}}", context);
    EXPECT_EQ(spec.scaling.kind, Kind::longrope);
    EXPECT_EQ(spec.scaling.short_factors, (std::vector<double>{1, 1.5, 2, 3}));
    EXPECT_EQ(spec.scaling.long_factors, (std::vector<double>{1, 4, 16, 64}));
    EXPECT_EQ(spec.scaling.original_max_position, 4096);
    EXPECT_NEAR(spec.scaling.attention_factor, 1.1902380714238083, 1e-12);
  }
  const auto with = [&](const std::string& more) { return R"({"rope_scaling":{"type":"longrope",)" + factors + more + "}}"; };
  EXPECT_EQ(read_good(with(R"(,"attention_factor":1.5)"), context).scaling.attention_factor, 1.5);
  EXPECT_EQ(read_good(with(R"(,"factor":1)"), context).scaling.attention_factor, 1);
  EXPECT_EQ(read_good(with(R"(,"original_max_position_embeddings":8)"), context).scaling.original_max_position, 4096)
      << "the config's own length counts";
}

TEST(RopeFields, a_part_of_a_head_is_rotated_where_the_family_can) {
  const fields::RopeContext context{.head_dim = 80, .max_position = 4096, .rotary_factor = 0.5, .allows_partial = true};
  EXPECT_EQ(read_good("{}", context).rotary_dim, 40);
  EXPECT_EQ(read_good(R"({"partial_rotary_factor":0.4})", context).rotary_dim, 32);
  EXPECT_EQ(read_good(R"({"partial_rotary_factor":0.4,"rope_parameters":{"partial_rotary_factor":0.75}})", context).rotary_dim,
            60);
  EXPECT_EQ(error_of(R"({"partial_rotary_factor":0.01})", context),
            "'partial_rotary_factor' must leave an even number of a head's 80 elements, not 0");
  EXPECT_EQ(error_of(R"({"partial_rotary_factor":0.45})", {.head_dim = 20, .allows_partial = true}),
            "'partial_rotary_factor' must leave an even number of a head's 20 elements, not 9");
  EXPECT_EQ(error_of(R"({"rope_parameters":{"partial_rotary_factor":0.5}})"),
            "'partial_rotary_factor' is 0.5, which is not supported; supported is 1");
}

TEST(RopeFields, errors_name_the_field) {
  const auto with = [](const std::string& parameters) { return error_of(R"({"rope_parameters":{)" + parameters + "}}"); };
  EXPECT_EQ(with(R"("rope_type":"proportional")"),
            "'rope_type' is \"proportional\", which is not supported; supported is \"default\", \"linear\", \"dynamic\", "
            "\"llama3\", \"yarn\" or \"longrope\"");
  EXPECT_EQ(
      error_of(R"({"rope_parameters":{"full_attention":{"rope_theta":1000}}})"),
      "'rope_parameters' is {\"full_attention\":{\"rope_theta\":1000}}, which is not supported; supported is one rotation "
      "of all layers for this architecture");
  EXPECT_EQ(error_of(R"({"rope_parameters":[1]})"), "'rope_parameters' must be an object, not a list");
  EXPECT_EQ(error_of(R"({"rope_scaling":"linear"})"), "'rope_scaling' must be an object, not a string");
  EXPECT_EQ(with(R"("type":"linear")"), "'factor' is missing");
  EXPECT_EQ(with(R"("type":"dynamic","factor":0.5)"), "'factor' must be from 1 to 1000000, not 0.5");
  EXPECT_EQ(with(R"("type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":3)"),
            "'high_freq_factor' must be at least 'low_freq_factor', but they are 3 and 4");
  EXPECT_EQ(with(R"("type":"yarn","factor":8,"beta_fast":1,"beta_slow":4)"),
            "'beta_fast' must be at least 'beta_slow', but they are 1 and 4");
  EXPECT_EQ(with(R"("type":"yarn","factor":8,"rope_theta":1)"), "'rope_theta' must be above 1, not 1");
  EXPECT_EQ(with(R"("type":"yarn","factor":8,"attention_factor":0)"),
            "'attention_factor' must be above 0 and at most 1000000, not 0");
  EXPECT_EQ(with(R"("type":"yarn","factor":8,"llama_4_scaling_beta":0.1)"),
            "'llama_4_scaling_beta' is 0.1, which is not supported; supported is null");
  EXPECT_EQ(with(R"("type":"default","mrope_section":[1,1,2])"),
            "'mrope_section' is [1,1,2], which is not supported; supported is null");
  EXPECT_EQ(with(R"("type":"longrope","long_factor":[1,1,1,1])"), "'short_factor' is missing");
  EXPECT_EQ(with(R"("type":"longrope","short_factor":[1,1,1],"long_factor":[1,1,1,1])"),
            "'short_factor' must hold 4 numbers, one for two rotated elements of a head, not 3");
  EXPECT_EQ(with(R"("type":"longrope","short_factor":[1,1,1,1],"long_factor":[1,0,1,1])"),
            "'long_factor' must hold numbers from 1e-06 to 1000000, not 0");
  EXPECT_EQ(with(R"("type":"longrope","original_max_position_embeddings":1)"),
            "'original_max_position_embeddings' must be at least 2, not 1");
}

}  // namespace
}  // namespace baton
