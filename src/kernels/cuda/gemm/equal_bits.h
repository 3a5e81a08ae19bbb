/// Comparison of device memory, called by the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Whether two areas of device memory are equal. `n_bytes` is a multiple of 4, and both are aligned to 4 bytes.
/// `flag`: 4 bytes of device memory to work with. Waits for the stream.
bool equal_bits(const Device& device, const std::byte* a, const std::byte* b, std::size_t n_bytes, std::byte* flag);

}  // namespace baton::cuda
