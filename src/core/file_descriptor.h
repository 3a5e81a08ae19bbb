/// Owns a file descriptor of the operating system.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

namespace baton {

/// Closed at the end of its scope. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  /// -1 if none is open.
  int number() const { return number_; }
  /// Gives up the ownership.
  int release() { return std::exchange(number_, -1); }
  /// Fills `bytes` from the file's position on. Returns how many there were; nullopt: errno says what failed.
  std::optional<std::size_t> read_up_to(std::span<std::byte> bytes) const {
    std::size_t n_read = 0;
    while (n_read < bytes.size()) {
      const ssize_t count = ::read(number_, bytes.data() + n_read, bytes.size() - n_read);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return std::nullopt;
      if (count == 0) break;
      n_read += static_cast<std::size_t>(count);
    }
    return n_read;
  }
  /// Writes all of `bytes`. False: errno says what failed.
  bool write_all(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(number_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return true;
  }
  /// Closes now; false where the system reports that written data was lost.
  bool close() { return ::close(release()) == 0; }

 private:
  int number_ = -1;
};

}  // namespace baton
