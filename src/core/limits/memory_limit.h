/// How much memory this process may take.
#pragma once

#include <cstdint>
#include <filesystem>

namespace baton {

/// Bytes: the smallest of the machine's memory, the limits of the control groups that the process is in (versions 1 and
/// 2) and its limit of address space (ulimit -v). `root` is where /proc and /sys are looked for.
std::int64_t memory_limit(const std::filesystem::path& root = "/");

/// Bytes that the process could take now: what the machine has available, or less if its control group has less left.
std::int64_t free_host_memory(const std::filesystem::path& root = "/");

/// Where address space is limited (ulimit -v): the C library's allocator gets two arenas at most, because each one reserves
/// 64 MB of it, used or not, and there would be one for each thread. Call it before other threads allocate.
void limit_arenas();

}  // namespace baton
