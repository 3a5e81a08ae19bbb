/// How many files and connections this process may hold open.
#pragma once

#include <cstddef>
#include <vector>

#include "core/file_descriptor.h"

namespace baton {

/// Raises the process's soft limit to `wanted`, as far as the hard limit allows, and returns the limit that then
/// holds. Never lowers it. Thread: any.
std::size_t allow_open_files(std::size_t wanted);

/// Descriptors that a process keeps open, so that it has some to give when it may open no more. Thread: one at a time.
class SpareFiles {
 public:
  explicit SpareFiles(std::size_t n);

  /// Closes one. False if there is none.
  bool give();
  /// Opens as many as are missing and as the process may.
  void refill();
  std::size_t n_missing() const { return n_ - files_.size(); }

 private:
  std::size_t n_;
  std::vector<FileDescriptor> files_;
};

}  // namespace baton
