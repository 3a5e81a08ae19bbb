/// Backend modules that make_backend finds, and those it refuses.
#include "kernels/backend.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <baton_interface.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

namespace fs = std::filesystem;

/// A folder with a module named libbaton_cpu.so, of these bytes, where make_backend looks first.
class FolderOfModule {
 public:
  FolderOfModule(const std::string& name, std::string_view bytes) : folder_(fs::path(testing::TempDir()) / name) {
    fs::create_directories(folder_);
    std::ofstream(file(), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    setenv("BATON_MODULE_PATH", folder_.c_str(), 1);
  }
  ~FolderOfModule() {
    unsetenv("BATON_MODULE_PATH");
    fs::remove_all(folder_);
  }
  fs::path file() const { return folder_ / "libbaton_cpu.so"; }

 private:
  fs::path folder_;
};

std::string bytes_of_cpu_module() {
  Dl_info library{};
  EXPECT_NE(dladdr(reinterpret_cast<const void*>(&make_backend), &library), 0);
  std::ifstream file(fs::path(library.dli_fname).parent_path() / "libbaton_cpu.so", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(BackendModules, a_copy_of_the_module_of_this_build_is_opened) {
  const FolderOfModule folder("baton_module_copy", bytes_of_cpu_module());
  const auto made = make_backend("cpu", {});
  ASSERT_TRUE(made.has_value()) << made.error().message;
}

TEST(BackendModules, a_module_of_another_build_is_refused_by_name) {
  std::string bytes = bytes_of_cpu_module();
  const auto interface = std::ranges::search(bytes, std::string_view(kBackendInterface));
  ASSERT_FALSE(interface.empty());
  std::ranges::fill(interface, '0');
  const FolderOfModule folder("baton_module_other", bytes);
  const auto made = make_backend("cpu", {});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, ErrorCode::invalid_data);
  EXPECT_EQ(made.error().message,
            folder.file().string() + " is of another build than this program: install the program and its modules together");
}

TEST(BackendModules, what_is_no_module_is_refused) {
  const FolderOfModule folder("baton_module_text", "text");
  const auto made = make_backend("cpu", {});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, ErrorCode::unavailable);
  EXPECT_EQ(make_backend("tpu", {}).error().code, ErrorCode::invalid_request);
}

}  // namespace
}  // namespace baton
