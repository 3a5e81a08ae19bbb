/// Files as the rest of the program uses them: read whole, written whole, or mapped read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace baton {

/// The most that read_file takes into memory: configurations, tokenizers, prompts. Weights are mapped.
inline constexpr std::size_t kMaxReadFileBytes = std::size_t{256} << 20;

/// The bytes of a regular file. Errors: not_found, too_large (over kMaxReadFileBytes), io (a folder, no permission...).
Result<std::string> read_file(const std::filesystem::path& path);

/// Makes `path` hold `bytes`, atomically: readers see the old contents or the new. Its folder must exist.
Result<void> write_file(const std::filesystem::path& path, std::string_view bytes);

/// A regular file mapped read-only. Move-only; the bytes live as long as it does. The file must not be cut short by others
/// meanwhile: reading past its new end raises SIGBUS. Thread: any, except moving and destruction.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Gives the memory of the pages that lie wholly inside `range` (a part of bytes()) back; they are read again on use.
  void drop_pages(std::span<const std::byte> range) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace baton
