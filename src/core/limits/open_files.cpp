/// RLIMIT_NOFILE, and descriptors of /dev/null.
#include "core/limits/open_files.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace baton {

std::size_t allow_open_files(std::size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur >= wanted) return limit.rlim_cur;
  const rlimit raised{std::min<rlim_t>(wanted, limit.rlim_max), limit.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return limit.rlim_cur;
}

SpareFiles::SpareFiles(std::size_t n) : n_(n) {
  files_.reserve(n);
  refill();
}

bool SpareFiles::give() {
  if (files_.empty()) return false;
  files_.pop_back();
  return true;
}

void SpareFiles::refill() {
  while (files_.size() < n_) {
    FileDescriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (file.number() < 0) return;
    files_.push_back(std::move(file));
  }
}

}  // namespace baton
