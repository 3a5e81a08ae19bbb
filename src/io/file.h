/// Files: read as a whole, written as a whole, or mapped read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace baton {

/// Largest file that read_file reads: configurations, tokenizers, prompts. Weights are mapped.
inline constexpr std::size_t kMaxReadFileBytes = std::size_t{256} << 20;

/// The bytes of a regular file. Errors: not_found, too_large (over kMaxReadFileBytes), io (a folder, no
/// permission...).
Result<std::string> read_file(const std::filesystem::path& path);

/// Writes `bytes` to `path` atomically: readers see the old contents or the new. The folder must exist.
Result<void> write_file(const std::filesystem::path& path, std::string_view bytes);

/// Whether write_file could write `path` now: fails as it does, and leaves nothing. For programs that have a result only later.
Result<void> check_can_write(const std::filesystem::path& path);

/// Returns when the names of the files in `folder` are on the disk: new ones, changed ones, removed ones.
Result<void> sync_folder(const std::filesystem::path& folder);

/// A regular file mapped read-only. Move-only; the bytes live as long as the object. No process may truncate the file
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
  /// Releases the memory of all pages inside `range` (a part of bytes()); the system reads them again on use.
  void drop_pages(std::span<const std::byte> range) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace baton
