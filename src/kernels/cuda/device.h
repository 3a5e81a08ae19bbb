/// One CUDA device, the stream that all operations of a backend run on, and what the launches need to know of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

#include "core/check.h"

namespace baton::cuda {

struct Device {
  int ordinal = 0;
  int compute_capability = 0;  ///< 10 * major + minor: 80, 90
  int n_multiprocessors = 0;
  std::size_t max_shared_bytes = 0;  ///< dynamic shared memory a block may ask for
  std::int64_t l2_bytes = 0;
  std::string name;
  cudaStream_t stream = nullptr;
};

/// Aborts with the operation and CUDA's own words: a device that fails in the middle of a step cannot go on.
inline void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) check_failed(std::string(what) + ": " + cudaGetErrorString(error));
}

/// Looks for a failed launch right behind it.
inline void check_launch(const char* what) { check_cuda(cudaGetLastError(), what); }

}  // namespace baton::cuda
