/// Flags of `baton serve` (apps/serve.h).
#include "apps/serve.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

namespace baton {
namespace {

using Words = std::vector<std::string>;

ServeCommandOptions parsed(Words words) {
  ServeCommandOptions options;
  CLI::App app{"test"};
  app.allow_extras();
  add_serve_options(app, options);
  std::reverse(words.begin(), words.end());
  app.parse(words);
  return options;
}

TEST(Serve, takes_all_words_after_served_model_name_for_names) {
  const ServeCommandOptions options = parsed({"org/model", "--served-model-name", "a", "b", "--port", "0"});
  EXPECT_EQ(options.served_model_names, (Words{"a", "b"}));
  EXPECT_EQ(options.model.model, "org/model");
  EXPECT_EQ(parsed({"org/model", "--served-model-name", "a,b"}).served_model_names, (Words{"a", "b"}));
  EXPECT_EQ(parsed({"--served-model-name", "a", "--model", "m"}).model.model, "m");
}

TEST(Serve, refuses_names_that_may_have_swallowed_the_model) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(serve_main(parsed({"--served-model-name", "a", "org/model"})), 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("--served-model-name a org/model: these are names of a model that is not given"), std::string::npos)
      << said;
}

TEST(Serve, refuses_an_empty_name) {
  for (const Words& names : {Words{""}, Words{"a", ""}}) {
    Words words{"/no/such/folder", "--served-model-name"};
    words.insert(words.end(), names.begin(), names.end());
    testing::internal::CaptureStderr();
    EXPECT_EQ(serve_main(parsed(words)), 2);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "baton serve: --served-model-name: a name is empty\n");
  }
}

TEST(Serve, refuses_a_limit_for_each_address_where_clients_have_none) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(serve_main(parsed({"--uds", "/tmp/socket", "--max-connections-per-address", "3"})), 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("--max-connections-per-address counts nothing on a Unix socket (--uds)"), std::string::npos) << said;
}

TEST(Serve, takes_limits_of_structured_output_as_json) {
  const ServeCommandOptions options =
      parsed({"--structured-outputs-config", R"({"disable_any_whitespace": true, "cache_bytes": 4194304})"});
  EXPECT_EQ(options.structured_outputs.spaces, grammar::JsonSpaces::none);
  EXPECT_EQ(options.structured_outputs.cache_bytes, 4194304u);
  for (const char* wrong : {"xgrammar", "[]", R"({"backend": "xgrammar"})", R"({"cache_bytes": 1})"})
    EXPECT_THROW(parsed({"--structured-outputs-config", wrong}), CLI::ParseError) << wrong;
}

TEST(Serve, names_of_a_config_file_leave_the_model_alone) {
  const std::string file = ::testing::TempDir() + "baton_serve_test.yaml";
  std::ofstream(file) << "served-model-name: [a, b]\n";
  const auto words = with_config_file({"org/model", "--config", file});
  ASSERT_TRUE(words) << words.error().message;
  const ServeCommandOptions options = parsed(words->words);
  EXPECT_EQ(options.served_model_names, (Words{"a", "b"}));
  EXPECT_EQ(options.model.model, "org/model");
}

}  // namespace
}  // namespace baton
