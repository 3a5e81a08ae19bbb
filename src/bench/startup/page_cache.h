/// The system's page cache: files that a program reads from memory because it or another one has read them before.
#pragma once

#include <cstdint>
#include <filesystem>

namespace baton {

/// How much of a folder's files is in the page cache.
struct PageCacheShare {
  std::int64_t bytes = 0;  ///< of all regular files in the folder
  std::int64_t cached_bytes = 0;

  double share() const { return bytes == 0 ? 0 : static_cast<double>(cached_bytes) / static_cast<double>(bytes); }
};

/// Asks the system to forget the files in `folder` (not in folders below it), and returns what is still cached. Pages
/// stay if another process maps them, if the file system lives in memory, or if the system does not say.
PageCacheShare drop_page_cache(const std::filesystem::path& folder);

}  // namespace baton
