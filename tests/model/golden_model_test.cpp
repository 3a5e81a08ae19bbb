/// Models and goldens that are not there end a test with a sentence (support/golden_model.h).
#include "support/golden_model.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "support/drawn_golden.h"
#include "support/source_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using testing::Golden;
using testing::GoldenModel;

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(GoldenModels, a_folder_without_a_model_is_named) {
  const std::string said = thrown_by([] { const GoldenModel model("/no/such/model", DType::f32); });
  EXPECT_TRUE(said.starts_with("/no/such/model: ")) << said;
}

TEST(GoldenModels, a_model_whose_weights_are_missing_is_named) {
  const fs::path demo = test::source_folder() / "models/demo";
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_golden_model_test";
  fs::create_directories(folder);
  fs::copy_file(demo / "config.json", folder / "config.json", fs::copy_options::overwrite_existing);
  const std::string said = thrown_by([&] { GoldenModel(folder, DType::f32); });
  EXPECT_TRUE(said.starts_with(folder.string() + ": ")) << said;
  EXPECT_NE(said.find("safetensors"), std::string::npos) << said;
  fs::remove_all(folder);
}

TEST(GoldenModels, a_device_that_is_not_there_is_named) {
  const fs::path demo = test::source_folder() / "models/demo";
  const std::string said = thrown_by([&] { GoldenModel(demo, DType::f32, {.device = "abacus"}); });
  EXPECT_TRUE(said.starts_with(demo.string() + ": ")) << said;
  EXPECT_NE(said.find("abacus"), std::string::npos) << said;
}

TEST(GoldenModels, a_golden_or_a_tensor_that_is_missing_is_named) {
  const std::string said = thrown_by([] { Golden("/no/such/golden.safetensors"); });
  EXPECT_TRUE(said.starts_with("/no/such/golden.safetensors: ")) << said;
  const fs::path file = test::source_folder() / "tests/goldens/demo/golden.safetensors";
  const Golden golden(file);
  EXPECT_EQ(thrown_by([&] { golden.read<float>("no such tensor"); }), file.string() + ": has no tensor no such tensor");
}

// The golden's checksum is of the bytes that Transformers got.
TEST(GoldenModels, weights_that_are_not_drawn_as_they_were_are_refused) {
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_drawn_golden_test";
  fs::create_directories(folder);
  std::string recipe = "seed 7\nfile model.safetensors 3460904281\nnorm BF16 1024 709 3\nhead F32 0 512 2 1\n";
  std::ofstream(folder / "weights.txt") << recipe;
  {
    const test::DrawnGolden drawn(folder);
    EXPECT_EQ(fs::file_size(drawn.folder() / "model.safetensors"), 174u);
  }
  std::ofstream(folder / "weights.txt") << recipe.replace(recipe.find("709"), 3, "909");
  const std::string said = thrown_by([&] { const test::DrawnGolden drawn(folder); });
  EXPECT_NE(said.find("the bytes drawn for model.safetensors are not those of weights.txt"), std::string::npos) << said;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace baton
