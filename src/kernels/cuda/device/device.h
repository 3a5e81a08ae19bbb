/// One CUDA device, the stream that all operations of a backend run on, and the device properties that launches need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

#include "core/check.h"
#include "kernels/cuda/device/device_rates.h"

namespace baton::cuda {

struct Device {
  int ordinal = 0;
  int compute_capability = 0;  ///< 10 * major + minor, whose kernels run: 80, 90 (choose_architecture)
  int n_multiprocessors = 0;
  std::size_t max_shared_bytes = 0;  ///< most dynamic shared memory of a block
  std::int64_t l2_bytes = 0;
  DeviceFigures figures;
  std::string name;
  cudaStream_t stream = nullptr;
  /// The last operation was NCCL's, whose launches (in graphs, several nodes) the next kernel does not overlap.
  mutable bool is_after_collective = false;
};

/// Aborts with the operation's name and CUDA's message, because a device that fails in the middle of a step cannot
/// continue.
inline void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) check_failed(std::string(what) + ": " + cudaGetErrorString(error));
}

/// Checks for a failed launch, directly after it.
inline void check_launch(const char* what) { check_cuda(cudaGetLastError(), what); }

}  // namespace baton::cuda
