/// What changes a model's checksum (load/model_checksum.h).
#include "load/model_checksum.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/file.h"

namespace baton {
namespace {

TEST(ModelChecksum, changes_with_every_byte_of_configuration_and_weights_and_with_nothing_else) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "baton_model_checksum_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const ModelFiles files{.name = "tiny", .folder = folder};
  ModelOptions options;
  EXPECT_FALSE(model_checksum(files, options)) << "there is no config.json";
  ASSERT_TRUE(write_file(folder / "config.json", "{}"));
  const auto sum = [&] { return model_checksum(files, options).value()[0].second; };
  std::set<std::string> sums = {sum()};
  const auto is_new = [&] { return sums.insert(sum()).second; };
  std::string weights(5000, 'w');
  ASSERT_TRUE(write_file(folder / "a.safetensors", weights));
  EXPECT_TRUE(is_new());
  for (const std::size_t at : {0U, 2500U, 4999U}) {
    weights[at] = 'x';
    ASSERT_TRUE(write_file(folder / "a.safetensors", weights));
    EXPECT_TRUE(is_new()) << at;
  }
  ASSERT_TRUE(write_file(folder / "b.safetensors", ""));
  EXPECT_TRUE(is_new());
  ASSERT_TRUE(write_file(folder / "config.json", "{ }"));
  EXPECT_TRUE(is_new());
  ASSERT_TRUE(write_file(folder / "README.md", "of no interest"));
  EXPECT_FALSE(is_new());
  for (const char* name : {"hf_quant_config.json", "quantize_config.json", "quant_config.json"}) {
    ASSERT_TRUE(write_file(folder / name, R"({"bits": 4, "quantization": {}})"));
    EXPECT_TRUE(is_new()) << name;
    std::filesystem::remove(folder / name);
  }
  for (const char* scheme : {"fp8", "int8", "int4"}) {
    options.quantization = scheme;
    for (const bool with_head : {false, true}) {
      options.quantize_lm_head = with_head;
      EXPECT_TRUE(is_new()) << scheme;
    }
  }
  options.quantize_lm_head = false;
  for (const char* activations : {"fp8", "int8", "dtype"}) {
    options.activation_dtype = activations;
    EXPECT_TRUE(is_new()) << activations;
  }
  options.activation_dtype = "auto";
  options.quantization = "gptq";
  EXPECT_FALSE(model_checksum(files, options)) << "the checkpoint is dense";
  ASSERT_TRUE(write_file(folder / "config.json", R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})"));
  EXPECT_TRUE(is_new());
  options.quantization = "";
  EXPECT_FALSE(is_new()) << "the name of what the checkpoint has changes nothing";
  ASSERT_TRUE(write_file(folder / "config.json", "{ }"));
  options.load_format = "dummy";
  EXPECT_TRUE(is_new());
  options.seed = 7;
  EXPECT_TRUE(is_new());
  std::filesystem::remove_all(folder);
}

TEST(ModelChecksum, says_what_it_is_made_of) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "baton_model_parts_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const ModelFiles files{.name = "tiny", .folder = folder};
  ModelOptions options;
  ASSERT_TRUE(write_file(folder / "config.json", "{}"));
  ASSERT_TRUE(write_file(folder / "a.safetensors", std::string(5000, 'w')));
  ASSERT_TRUE(write_file(folder / "quant_config.json", R"({"bits": 4, "quantization": {}})"));
  const PrefixIdentity as_it_is = model_checksum(files, options).value();
  std::vector<std::string> names;
  for (const auto& [what, value] : as_it_is) names.push_back(what);
  EXPECT_EQ(names, (std::vector<std::string>{"model", "model: config.json", "model: weights", "model: --quantization",
                                             "model: quant_config.json"}));
  EXPECT_TRUE(as_it_is[2].second.starts_with("1 file with 5000 bytes, checksum ")) << as_it_is[2].second;
  std::filesystem::remove(folder / "quant_config.json");
  options.quantization = "int4";
  PrefixFileHeader header;
  header.identity = model_checksum(files, {}).value();
  const auto differs = check_prefix_identity(header, model_checksum(files, options).value());
  EXPECT_EQ(differs.error().message, "its model differs: --quantization is none, and int4, groups of 128 is needed");
  options = {};
  options.load_format = "dummy";
  EXPECT_EQ(model_checksum(files, options).value()[2].second, "random, seed 0");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace baton
