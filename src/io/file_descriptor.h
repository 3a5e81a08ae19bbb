/// Owns a file descriptor of the operating system.
#pragma once

#include <unistd.h>

#include <utility>

namespace baton {

/// Closed at the end of its scope. Move-only.
class FileDescriptor {
 public:
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
  /// Closes now; false where the system reports that written data was lost.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

}  // namespace baton
