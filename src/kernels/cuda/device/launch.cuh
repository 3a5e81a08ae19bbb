/// Overlapping launches: a kernel may start while the kernel before it in the stream ends (programmatic dependent
/// launch). It may read what that kernel writes, and write what that kernel reads, only after
/// wait_for_kernel_before().
#pragma once

#include <utility>

#include <cuda_runtime.h>

#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// The step buffer may be read without it, because it is uploaded before all kernels of a step. Does nothing before
/// sm_90.
__device__ __forceinline__ void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Launches `kernel` so that it may overlap the end of the kernel before it.
template <class... Parameters, class... Arguments>
void launch_overlapped(const Device& device, void (*kernel)(Parameters...), dim3 grid, int n_threads, int shared_bytes,
                       const char* what, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(n_threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = device.stream;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  const bool overlaps = device.compute_capability >= 90 && !std::exchange(device.is_after_collective, false);
  config.numAttrs = overlaps ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), what);
}

/// Launches `kernel` so that it starts when the kernel before it has ended.
template <class... Parameters, class... Arguments>
void launch_in_turn(const Device& device, void (*kernel)(Parameters...), dim3 grid, int n_threads, int shared_bytes,
                    const char* what, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(n_threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = device.stream;
  device.is_after_collective = false;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), what);
}

}  // namespace baton::cuda
