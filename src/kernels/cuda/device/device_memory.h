/// Memory of a CUDA device, and host memory that its copies read and write.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/result.h"

namespace baton::cuda {

/// Allocates memory of the calling thread's current device, to be freed by cudaFree. The error names `what` and has the
/// requested and the free size.
Result<std::byte*> device_memory(std::size_t size_bytes, std::string_view what);

/// Allocates host memory that copies need not stage, to be freed by cudaFreeHost; null for 0 bytes.
Result<std::byte*> pinned_memory(std::size_t size_bytes, std::string_view what);

}  // namespace baton::cuda
