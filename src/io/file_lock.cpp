/// flock on a file made for it.
#include "io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

namespace baton {

/// The file without the lock.
Result<FileLock> FileLock::open(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.number() < 0 && errno == ELOOP)
    return fail(ErrorCode::io, fmt::format("{} is a link, and a lock must be a file: remove it", path.string()));
  if (file.number() < 0) return fail(ErrorCode::io, fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  return FileLock(std::move(file));
}

Result<FileLock> FileLock::acquire(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  BATON_TRY(FileLock lock, open(path));
  while (::flock(lock.file_.number(), LOCK_EX) != 0)
    if (errno != EINTR) return fail(ErrorCode::io, fmt::format("cannot lock {}: {}", path.string(), std::strerror(errno)));
  return lock;
}

Result<std::optional<FileLock>> FileLock::try_acquire(const std::filesystem::path& path) {
  BATON_TRY(FileLock lock, open(path));
  if (::flock(lock.file_.number(), LOCK_EX | LOCK_NB) == 0) return std::optional<FileLock>(std::move(lock));
  if (errno == EWOULDBLOCK) return std::optional<FileLock>();
  return fail(ErrorCode::io, fmt::format("cannot lock {}: {}", path.string(), std::strerror(errno)));
}

}  // namespace baton
