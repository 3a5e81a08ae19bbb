/// `baton quantize` from its command line to its report (apps/programs.h).
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "apps/programs.h"
#include "io/json.h"
#include "support/drawn_golden.h"
#include "support/program_run.h"
#include "support/source_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

test::ProgramEnd run_quantize(std::vector<std::string> words) {
  QuantizeOptions options;
  CLI::App app{"test"};
  add_quantize_options(app, options);
  std::ranges::reverse(words);
  app.parse(words);
  return test::run_program("", [&] { return quantize_main(options); });
}

class QuantizeProgram : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(out_); }
  void TearDown() override { fs::remove_all(out_); }

  const test::DrawnGolden golden_{test::source_folder() / "tests/goldens/llama_tiny_gqa64"};
  const std::string model_ = golden_.folder().string();
  const fs::path out_ = fs::path(::testing::TempDir()) / "baton_quantize_program_test";
};

TEST_F(QuantizeProgram, writes_a_checkpoint_and_tells_the_error_of_each_matrix) {
  const test::ProgramEnd end = run_quantize({model_, out_.string(), "--scheme", "int4", "--group", "32"});
  ASSERT_EQ(end.code, 0) << end.error;
  for (const char* text : {"relative RMS error", "model.layers.1.mlp.down_proj.weight", "all matrices", " kB, of ",
                           "scales: one for 32 columns ("})
    EXPECT_NE(end.out.find(text), std::string::npos) << text << "\n" << end.out;
  EXPECT_TRUE(fs::exists(out_ / "model.safetensors"));
  const json::Value config = json::parse_file(out_ / "config.json").value();
  EXPECT_EQ(config["quantization_config"]["config_groups"]["group_1"]["weights"]["group_size"], 32);
  const test::ProgramEnd again = run_quantize({model_, out_.string(), "--scheme", "int4"});
  EXPECT_EQ(again.code, 1);
  EXPECT_EQ(again.error, "baton quantize: " + out_.string() + " exists already; name a new folder\n");
}

TEST_F(QuantizeProgram, refuses_a_group_that_no_scale_has) {
  EXPECT_NE(run_quantize({model_, out_.string(), "--scheme", "fp8", "--group", "32"})
                .error.find("--group: fp8 has a scale for each row"),
            std::string::npos);
  EXPECT_NE(run_quantize({model_, out_.string(), "--scheme", "int4", "--group", "24"}).error.find("a multiple of 16"),
            std::string::npos);
  EXPECT_THROW(run_quantize({model_, out_.string(), "--scheme", "int3"}), CLI::ParseError);
  EXPECT_THROW(run_quantize({model_, out_.string()}), CLI::ParseError);
  EXPECT_FALSE(fs::exists(out_));
}

}  // namespace
}  // namespace baton
