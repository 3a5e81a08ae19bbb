/// Drops pages by posix_fadvise, and counts what is left by mincore.
#include "bench/startup/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <vector>

namespace baton {
namespace {

std::int64_t cached_bytes_of(int file, std::int64_t bytes) {
  if (bytes == 0) return 0;
  void* const mapped = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return bytes;
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> pages(static_cast<std::size_t>((bytes + page - 1) / page));
  const bool is_known = mincore(mapped, static_cast<std::size_t>(bytes), pages.data()) == 0;
  munmap(mapped, static_cast<std::size_t>(bytes));
  if (!is_known) return bytes;
  return std::min(bytes, page * std::ranges::count_if(pages, [](unsigned char flags) { return (flags & 1) != 0; }));
}

}  // namespace

PageCacheShare drop_page_cache(const std::filesystem::path& folder) {
  PageCacheShare all;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!entry.is_regular_file(error)) continue;
    const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    const auto bytes = static_cast<std::int64_t>(entry.file_size(error));
    all.bytes += bytes;
    all.cached_bytes += cached_bytes_of(file, bytes);
    close(file);
  }
  return all;
}

}  // namespace baton
