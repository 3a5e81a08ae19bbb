/// The files that a model's name stands for (load/model_files.h).
#include "load/model_files.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace baton {
namespace {

namespace fs = std::filesystem;

/// An empty folder as the current folder.
class ModelFilesTest : public ::testing::Test {
 protected:
  ModelFilesTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::current_path(folder_);
  }
  ~ModelFilesTest() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }
  static Result<ModelFiles> found(const std::string& name) {
    ModelOptions options;
    options.model = name;
    return find_model_files(options, {});
  }

 private:
  const fs::path before_ = fs::current_path();
  const fs::path folder_ = fs::path(::testing::TempDir()) / "baton_model_files_test";
};

TEST_F(ModelFilesTest, knows_the_demo_model_by_the_name_that_the_server_gives_it) {
  fs::create_directory("demo");  // not a model
  for (const char* name : {"", "demo"}) {
    const auto files = found(name);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_EQ(files->name, "demo");
    EXPECT_TRUE(files->is_demo);
    EXPECT_TRUE(fs::exists(files->folder / "config.json"));
  }
}

TEST_F(ModelFilesTest, takes_a_folder_called_demo_that_holds_a_model) {
  fs::create_directory("demo");
  std::ofstream("demo/config.json") << "{}";
  const auto files = found("demo");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->folder, "demo");
  EXPECT_FALSE(files->is_demo);
  EXPECT_TRUE(found("")->is_demo);
}

}  // namespace
}  // namespace baton
