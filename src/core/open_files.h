/// How many files and connections this process may hold open.
#pragma once

#include <cstddef>

namespace baton {

/// Raises the process's soft limit to `wanted`, as far as the hard limit allows, and returns the limit that then
/// holds. Never lowers it. Thread: any.
std::size_t allow_open_files(std::size_t wanted);

}  // namespace baton
