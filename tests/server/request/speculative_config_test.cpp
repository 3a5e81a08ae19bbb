/// speculative_config: accepted values, and errors that name the field (server/request/generation_fields.h).
#include "server/request/generation_fields.h"

#include <string>

#include <gtest/gtest.h>

#include "server/request/generation.h"

namespace baton {
namespace {

Result<SpeculationOptions> parsed(std::string_view text) {
  const auto config = json::parse(text, "the test");
  EXPECT_TRUE(config) << text;
  return parse_speculative_config(*config, "speculative_config");
}

TEST(SpeculativeConfig, has_vllms_keys_and_may_leave_out_each) {
  EXPECT_EQ(parsed("{}").value(), (SpeculationOptions{.n_tokens = 4, .lookup_max = 4, .lookup_min = 2}));
  EXPECT_EQ(parsed(R"({"method": "ngram"})").value(), parsed("{}").value());
  const char* const all = R"({"method": "ngram", "num_speculative_tokens": 7, "prompt_lookup_max": 5, "prompt_lookup_min": 3})";
  EXPECT_EQ(parsed(all).value(), (SpeculationOptions{.n_tokens = 7, .lookup_max = 5, .lookup_min = 3}));
  EXPECT_EQ(parsed(R"({"prompt_lookup_max": 5})").value(),
            (SpeculationOptions{.n_tokens = 4, .lookup_max = 5, .lookup_min = 5}));
  EXPECT_EQ(parsed(R"({"prompt_lookup_min": 3})").value(),
            (SpeculationOptions{.n_tokens = 4, .lookup_max = 3, .lookup_min = 3}));
  EXPECT_EQ(parsed(R"({"num_speculative_tokens": 0, "method": null})").value().n_tokens, 0);
}

TEST(SpeculativeConfig, drafts_of_the_model_have_a_number_only) {
  EXPECT_EQ(parsed(R"({"method": "mtp"})").value(), (SpeculationOptions{.n_tokens = 1, .method = DraftMethod::mtp}));
  EXPECT_EQ(parsed(R"({"method": "mtp", "num_speculative_tokens": 3})").value().n_tokens, 3);
  EXPECT_EQ(parsed(R"({"method": "mtp", "num_speculative_tokens": 0})").value().method, DraftMethod::mtp) << "loaded, and off";
}

TEST(SpeculativeConfig, refuses_by_name_what_it_does_not_do) {
  const std::pair<const char*, const char*> refused[] = {
      {R"({"method": "eagle3"})", "method 'eagle3' is not supported"},
      {R"({"method": 3})", "'method' must be a string"},
      {R"({"model": "a/b", "num_speculative_tokens": 3})", "'model' is not supported"},
      {R"({"num_speculative_tokens": 17})", "num_speculative_tokens"},
      {R"({"num_speculative_tokens": -1})", "num_speculative_tokens"},
      {R"({"num_speculative_tokens": "4"})", "num_speculative_tokens"},
      {R"({"prompt_lookup_max": 0})", "prompt_lookup_max"},
      {R"({"prompt_lookup_max": 65})", "prompt_lookup_max"},
      {R"({"prompt_lookup_max": 2, "prompt_lookup_min": 3})", "prompt_lookup_min 3 is over"},
      {R"({"method": "mtp", "prompt_lookup_max": 2})", "belong to method 'ngram'"},
      {"true", "must be an object"},
      {"[]", "must be an object"},
  };
  for (const auto& [text, part] : refused) {
    const auto config = parsed(text);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(config.error().param, "speculative_config") << text;
    EXPECT_NE(config.error().message.find(part), std::string::npos) << config.error().message;
    EXPECT_NE(config.error().message.find("speculative_config"), std::string::npos) << config.error().message;
  }
}

TEST(SpeculativeConfig, is_a_field_of_requests) {
  const auto request = [](const char* field) {
    const auto body = json::parse(std::string(R"({"prompt": "p")") + field + "}", "the test");
    return parse_completion_request(*body, {}, {.n_vocab = 10, .max_logprobs = 5});
  };
  EXPECT_FALSE(request("")->generation.speculation) << "the server's";
  EXPECT_FALSE(request(R"(, "speculative_config": null)")->generation.speculation);
  const auto asked = request(R"(, "speculative_config": {"num_speculative_tokens": 2})");
  EXPECT_EQ(asked->generation.speculation->n_tokens, 2);
  EXPECT_TRUE(asked->generation.unknown_fields.empty());
  const auto refused = request(R"(, "speculative_config": {"method": "medusa"})");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "speculative_config");
}

}  // namespace
}  // namespace baton
