/// Host memory in whole pages, and in huge pages if they help: every step reads all weights, keys and values once.
#pragma once

#include <cstddef>

#include "core/result.h"
#include "kernels/backend.h"

namespace baton::cpu {

/// Zeroed memory of at least `size_bytes`, page-aligned. From half a huge page (2 MiB) on it uses huge pages if the
/// system grants them; the size is rounded up to huge pages if this adds at most half of one. Error: out_of_memory if
/// the system has no address space left.
Result<Buffer> allocate_pages(std::size_t size_bytes);

}  // namespace baton::cpu
