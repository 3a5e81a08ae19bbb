/// Inputs of fuzz targets that consist of several files, and a folder to write them to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/check.h"

namespace baton::test {

/// What libFuzzer hands over, as text.
inline std::string_view fuzz_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Removes the part before the first "\n--\n", or all of `rest` where there is none, and returns it.
inline std::string_view take_part(std::string_view& rest) {
  constexpr std::string_view kEnd = "\n--\n";
  const std::size_t end = std::min(rest.find(kEnd), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + kEnd.size(), rest.size()));
  return part;
}

/// A temporary folder that exists as long as the object.
class FuzzFolder {
 public:
  FuzzFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton_fuzz_XXXXXX").string();
    check(mkdtemp(pattern.data()) != nullptr, "no temporary folder");
    path_ = pattern;
  }
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;
  ~FuzzFolder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  void write(const std::filesystem::path& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  /// Writes the file, or removes it where there are no bytes.
  void write_or_remove(const std::filesystem::path& name, std::string_view bytes) const {
    if (bytes.empty())
      std::filesystem::remove(path_ / name);
    else
      write(name, bytes);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace baton::test
