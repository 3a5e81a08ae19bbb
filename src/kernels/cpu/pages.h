/// Memory of the host in whole pages, large ones where they pay: weights, keys and values are read from end to end at
/// every step.
#pragma once

#include <cstddef>

#include "core/result.h"
#include "kernels/backend.h"

namespace baton::cpu {

/// Zeroed memory of at least `size_bytes`, page-aligned. From half a huge page (2 MiB) on it lies on huge pages where
/// the system grants them, and is rounded up to them if that adds no more than half of one. Fails if the system has no
/// address space.
Result<Buffer> allocate_pages(std::size_t size_bytes);

}  // namespace baton::cpu
