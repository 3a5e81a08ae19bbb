/// How a multiprocessor divides its memory between L1 and shared memory.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// A small kernel runs with as much shared memory as there is, although it needs none. A multiprocessor changes the
/// division only when it is idle, so a block of the next matmul, which takes nearly all of that memory, would otherwise
/// start there when the small kernel has ended.
template <class Kernel>
void prefer_shared_memory(Kernel* kernel) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
             "prefer_shared_memory");
}

}  // namespace baton::cuda
