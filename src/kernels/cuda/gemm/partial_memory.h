/// Memory of partial sums that blocks of a kernel pass to one another (partial_sums.cuh).
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

#include "core/result.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/device_memory.h"

namespace baton::cuda {

/// Memory in which no partial sum has arrived. Fails if the device has none.
inline Result<std::byte*> partial_sums_memory(const Device& device, std::size_t n_bytes) {
  BATON_TRY(std::byte* const partials, device_memory(n_bytes, "the partial sums of matmuls"));
  check_cuda(cudaMemsetAsync(partials, 0xff, n_bytes, device.stream), "the partial sums of matmuls");
  return partials;
}

}  // namespace baton::cuda
