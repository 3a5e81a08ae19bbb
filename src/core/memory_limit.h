/// How much memory this process may take.
#pragma once

#include <cstdint>
#include <filesystem>

namespace baton {

/// Bytes: the smallest of the machine's memory, the limits of the control groups that the process is in (versions 1 and
/// 2) and its limit of address space (ulimit -v). `root` is where /proc and /sys are looked for.
std::int64_t memory_limit(const std::filesystem::path& root = "/");

}  // namespace baton
