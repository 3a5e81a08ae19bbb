/// A lock that processes hold by a file.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace baton {

/// An exclusive lock (flock), held while the object lives and released when its process ends, however it ends. The
/// file stays; it must not be a link. Move-only.
class FileLock {
 public:
  /// Waits until the lock is free. The folder of `path` is made. Errors: io.
  static Result<FileLock> acquire(const std::filesystem::path& path);
  /// Does not wait and makes no folder: nullopt if another has the lock. Errors: io.
  static Result<std::optional<FileLock>> try_acquire(const std::filesystem::path& path);

 private:
  explicit FileLock(FileDescriptor file) : file_(std::move(file)) {}
  static Result<FileLock> open(const std::filesystem::path& path);
  FileDescriptor file_;
};

}  // namespace baton
