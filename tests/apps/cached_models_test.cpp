/// `baton pull` and `baton list` over a hub on loopback (apps/programs.h).
#include "apps/programs.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "io/file.h"
#include "io/json.h"
#include "support/fake_hub.h"
#include "support/program_run.h"
#include "support/source_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

class CachedModels : public ::testing::Test {
 protected:
  CachedModels() {
    fs::remove_all(cache_);
    for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HF_TOKEN", "HF_HUB_OFFLINE"})
      ::unsetenv(name);
    hub_.files = {{"config.json", read_file(test::source_folder() / "tests/goldens/llama_tiny_gqa64/config.json").value()},
                  {"model.safetensors", "weights"}};
  }
  ~CachedModels() override {
    ::unsetenv("HF_ENDPOINT");
    fs::remove_all(cache_);
  }
  test::ProgramEnd pull(std::vector<std::string> words) const {
    PullOptions options;
    CLI::App app{"test"};
    add_pull_options(app, options);
    words.insert(words.end(), {"--download-dir", cache_.string()});
    std::ranges::reverse(words);
    app.parse(words);
    return test::run_program("", [&] { return pull_main(options); });
  }
  test::ProgramEnd list(bool as_json) const {
    return test::run_program("", [&] { return list_main({.download_dir = cache_.string(), .as_json = as_json}); });
  }

  const fs::path cache_ = fs::path(::testing::TempDir()) / "baton_cached_models_test";
  test::FakeHub hub_;
};

TEST_F(CachedModels, what_is_pulled_is_listed) {
  EXPECT_NE(list(false).error.find("there are no models in"), std::string::npos);
  EXPECT_EQ(list(true).out, "[]\n");
  test::HttpServer server(hub_);
  ::setenv("HF_ENDPOINT", server.url().c_str(), 1);
  const test::ProgramEnd pulled = pull({"org/tiny"});
  ASSERT_EQ(pulled.code, 0) << pulled.error;
  const fs::path snapshot = cache_ / "models--org--tiny/snapshots" / test::kHubCommit;
  EXPECT_EQ(pulled.out, snapshot.string() + "\n");
  const json::Value listed = json::parse(list(true).out, "list").value();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0]["name"], "org/tiny");
  EXPECT_EQ(listed[0]["architecture"], "LlamaForCausalLM");
  EXPECT_EQ(listed[0]["complete"], true);
  EXPECT_EQ(listed[0]["size_bytes"], hub_.files["config.json"].size() + 7);
  EXPECT_NE(list(false).out.find("complete"), std::string::npos);
  fs::remove(snapshot / "model.safetensors");
  EXPECT_NE(list(false).out.find("missing: weights"), std::string::npos);
}

TEST_F(CachedModels, an_architecture_that_is_refused_is_listed_with_the_reason) {
  const fs::path snapshot = cache_ / "models--org--odd/snapshots" / test::kHubCommit;
  fs::create_directories(snapshot);
  ASSERT_TRUE(write_file(snapshot / "config.json", R"({"architectures": ["StrangeForCausalLM"]})"));
  ASSERT_TRUE(write_file(snapshot / "model.safetensors", "x"));
  const json::Value listed = json::parse(list(true).out, "list").value();
  EXPECT_EQ(listed[0]["architecture"], "StrangeForCausalLM");
  EXPECT_NE(listed[0]["refused"].get<std::string>().find("StrangeForCausalLM"), std::string::npos);
  EXPECT_NE(list(false).out.find("refused: "), std::string::npos);
}

TEST_F(CachedModels, what_cannot_be_pulled_is_said) {
  EXPECT_EQ(pull({}).code, 2);
  const test::ProgramEnd folder = pull({fs::temp_directory_path().string()});
  EXPECT_EQ(folder.code, 1);
  EXPECT_NE(folder.error.find("is a folder"), std::string::npos) << folder.error;
  test::HttpServer server(hub_);
  ::setenv("HF_ENDPOINT", server.url().c_str(), 1);
  const test::ProgramEnd absent = pull({"org/other"});
  EXPECT_EQ(absent.code, 1);
  EXPECT_NE(absent.error.find("HTTP status 404"), std::string::npos) << absent.error;
}

}  // namespace
}  // namespace baton
