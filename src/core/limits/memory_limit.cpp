/// Reads limits of memory from control groups and the process.
#include "core/limits/memory_limit.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace baton {
namespace {

/// The number in a file, if there is one: "max" and absent files say nothing.
void lower_to(std::int64_t& limit, const std::filesystem::path& file) {
  std::int64_t bytes = 0;
  if (std::ifstream stream(file); stream >> bytes && bytes > 0) limit = std::min(limit, bytes);
}

/// The limits of a control group and of its parents.
void lower_to_groups(std::int64_t& limit, const std::filesystem::path& mount, std::string_view group, const char* file) {
  std::filesystem::path folder = mount / std::filesystem::path(group).relative_path();
  while (true) {
    lower_to(limit, folder / file);
    if (folder == mount || !folder.has_relative_path() || folder.parent_path() == folder) return;
    folder = folder.parent_path();
    if (folder.native().size() < mount.native().size()) return;
  }
}

/// Bytes; nullopt: not limited.
std::optional<std::int64_t> address_space() {
  rlimit space{};
  if (::getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(space.rlim_cur);
}

}  // namespace

std::int64_t memory_limit(const std::filesystem::path& root) {
  std::int64_t limit = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  lower_to_groups(limit, mount, "", "memory.max");
  lower_to_groups(limit, mount / "memory", "", "memory.limit_in_bytes");
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/a/b", or "5:memory:/a/b" of version 1
    const auto names = line.find(':');
    const auto path = names == std::string::npos ? names : line.find(':', names + 1);
    if (path == std::string::npos) continue;
    const std::string_view group = std::string_view(line).substr(path + 1);
    if (path == names + 1)
      lower_to_groups(limit, mount, group, "memory.max");
    else if (line.find("memory", names) < path)
      lower_to_groups(limit, mount / "memory", group, "memory.limit_in_bytes");
  }
  return std::min(limit, address_space().value_or(limit));
}

std::int64_t free_host_memory(const std::filesystem::path& root) {
  std::int64_t available = static_cast<std::int64_t>(::sysconf(_SC_AVPHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) available = std::strtoll(line.c_str() + 13, nullptr, 10) * 1024;
  std::ifstream max_file(root / "sys/fs/cgroup/memory.max");
  std::ifstream current_file(root / "sys/fs/cgroup/memory.current");
  std::int64_t max = 0;
  std::int64_t current = 0;
  if (max_file >> max && current_file >> current && max > 0)
    available = std::min(available, std::max<std::int64_t>(0, max - current));
  return available;
}

void limit_arenas() {
#ifdef __GLIBC__
  if (address_space()) ::mallopt(M_ARENA_MAX, 2);
#endif
}

}  // namespace baton
