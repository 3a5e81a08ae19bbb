/// inotify, and listing a folder.
#include "io/folder_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace baton {
namespace {

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }

}  // namespace

Result<std::vector<FolderFile>> list_files(const std::filesystem::path& folder) {
  const auto close = [](DIR* opened) { ::closedir(opened); };
  const std::unique_ptr<DIR, decltype(close)> entries(::opendir(folder.c_str()), close);
  if (entries == nullptr) {
    if (errno == ENOENT) return fail(ErrorCode::not_found, fmt::format("{} does not exist", folder.string()));
    return fail(ErrorCode::io, fmt::format("cannot read {}: {}", folder.string(), std::strerror(errno)));
  }
  std::vector<FolderFile> files;
  errno = 0;
  while (const dirent* entry = ::readdir(entries.get())) {
    struct stat status {};
    if (::fstatat(::dirfd(entries.get()), entry->d_name, &status, 0) == 0 && !S_ISDIR(status.st_mode))
      files.push_back(
          {entry->d_name,
           {status.st_dev, status.st_ino, status.st_size, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)}});
    errno = 0;
  }
  if (errno != 0) return fail(ErrorCode::io, fmt::format("cannot read {}: {}", folder.string(), std::strerror(errno)));
  std::ranges::sort(files, {}, &FolderFile::name);
  return files;
}

FolderWatch::FolderWatch(std::filesystem::path folder)
    : folder_(std::move(folder)),
      events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      wakes_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  check(wakes_.number() >= 0, "FolderWatch: no eventfd");
  watch_folder();
}

/// Watches what is at the path now. True if that is another folder than before.
bool FolderWatch::watch_folder() {
  struct stat status {};
  if (events_.number() < 0 || ::stat(folder_.c_str(), &status) != 0) return false;
  if (watch_ >= 0 && device_ == status.st_dev && inode_ == status.st_ino) return false;
  if (watch_ >= 0) ::inotify_rm_watch(events_.number(), watch_);
  being_written_.clear();
  watch_ = ::inotify_add_watch(events_.number(), folder_.c_str(),
                               IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE | IN_ATTRIB |
                                   IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return watch_ >= 0;
}

void FolderWatch::take(std::uint32_t what, const std::string& name) {
  if ((what & (IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE)) != 0) being_written_.erase(name);
  if ((what & IN_MODIFY) != 0) being_written_.insert(name);
  if ((what & IN_CREATE) != 0 && (what & IN_ISDIR) == 0) {
    // A new file will be written to and closed; a link to one that is there will not.
    struct stat status {};
    if (::lstat((folder_ / name).c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 1)
      being_written_.insert(name);
  }
}

/// Reads the events since the last call.
void FolderWatch::take_events() {
  alignas(inotify_event) std::array<char, 16'384> buffer{};
  while (true) {
    const ssize_t n_bytes = ::read(events_.number(), buffer.data(), buffer.size());
    if (n_bytes <= 0) return;
    for (ssize_t at = 0; at < n_bytes;) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const char* name = buffer.data() + at + sizeof event;
      at += static_cast<ssize_t>(sizeof event + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) being_written_.clear();
      if (event.wd != watch_) continue;
      if ((event.mask & IN_IGNORED) != 0) {
        watch_ = -1;
        being_written_.clear();
      } else if (event.len > 0) {
        take(event.mask, name);
      }
    }
  }
}

void FolderWatch::wait(std::chrono::milliseconds timeout) {
  if (watch_folder()) return;
  std::array<pollfd, 2> sources = {pollfd{wakes_.number(), POLLIN, 0}, pollfd{events_.number(), POLLIN, 0}};
  if (::poll(sources.data(), events_.number() >= 0 ? 2 : 1, static_cast<int>(timeout.count())) <= 0) return;
  std::uint64_t n_wakes = 0;
  [[maybe_unused]] const ssize_t n_read = ::read(wakes_.number(), &n_wakes, sizeof n_wakes);
  if (events_.number() >= 0) take_events();
}

void FolderWatch::wake() {
  const std::uint64_t once = 1;
  [[maybe_unused]] const ssize_t n_written = ::write(wakes_.number(), &once, sizeof once);
}

}  // namespace baton
