/// Finds and opens backend modules, so that one program starts anywhere.
#include "kernels/backend.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <baton_interface.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {
namespace {

/// Folders that may hold modules: BATON_MODULE_PATH, the library's own folder, and the folder lib beside the
/// program's.
std::vector<std::filesystem::path> module_folders() {
  std::vector<std::filesystem::path> folders;
  if (const char* path = std::getenv("BATON_MODULE_PATH"); path != nullptr && *path != '\0') folders.emplace_back(path);
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&make_backend), &self) != 0 && self.dli_fname != nullptr)
    folders.push_back(std::filesystem::path(self.dli_fname).parent_path());
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path().parent_path() / "lib");
  return folders;
}

std::filesystem::path module_file(const std::filesystem::path& folder, std::string_view name) {
  return folder / fmt::format("libbaton_{}.so", name);
}

/// Whether a module was built against the headers that this library was built with.
bool is_of_this_build(void* module) {
  const auto interface = reinterpret_cast<BackendInterfaceFunction>(dlsym(module, "baton_backend_interface"));
  return interface != nullptr && std::string_view(interface()) == kBackendInterface;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options) {
  if (std::ranges::find(kBackendNames, name) == kBackendNames.end())
    return fail(ErrorCode::invalid_request,
                fmt::format("unknown device '{}'; known are {}", name, fmt::join(kBackendNames, " and ")), "device");
  std::string tried;
  for (const auto& folder : module_folders()) {
    const auto file = module_file(folder, name);
    std::error_code error;
    if (!std::filesystem::exists(file, error)) {
      tried += fmt::format("{}{}", tried.empty() ? "" : ", ", folder.string());
      continue;
    }
    // The module stays open until the process ends: every object that the backend returns points to its code.
    void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr)
      return fail(ErrorCode::unavailable, fmt::format("the {} backend cannot be loaded: {}", name, dlerror()), "device");
    auto* make = reinterpret_cast<MakeBackendFunction>(dlsym(module, "baton_make_backend"));
    if (make == nullptr)
      return fail(ErrorCode::invalid_data, fmt::format("{} is not a Baton backend module", file.string()), "device");
    if (!is_of_this_build(module))
      return fail(
          ErrorCode::invalid_data,
          fmt::format("{} is of another build than this program: install the program and its modules together", file.string()),
          "device");
    return make(options);
  }
  return fail(ErrorCode::unavailable,
              fmt::format("this build has no {} backend: libbaton_{}.so is in none of {}", name, name, tried), "device");
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const std::string_view name : kBackendNames) {
    for (const auto& folder : module_folders()) {
      std::error_code error;
      if (!std::filesystem::exists(module_file(folder, name), error)) continue;
      names.emplace_back(name);
      break;
    }
  }
  return names;
}

}  // namespace baton
