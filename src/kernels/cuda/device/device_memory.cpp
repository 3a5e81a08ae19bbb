#include "kernels/cuda/device/device_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/cuda/device/device.h"

namespace baton::cuda {

Result<std::byte*> device_memory(std::size_t size_bytes, std::string_view what) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, size_bytes);
  if (error == cudaSuccess) return static_cast<std::byte*>(data);
  cudaGetLastError();  // clears the error of the failed allocation, so that the next launch does not report it
  if (error != cudaErrorMemoryAllocation)
    return fail(ErrorCode::unavailable, fmt::format("{}: {}", what, cudaGetErrorString(error)), "device");
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return fail(ErrorCode::out_of_memory, fmt::format("no device memory for {}: {} bytes asked for, {} of {} are free", what,
                                                    size_bytes, free_bytes, total_bytes));
}

Result<std::byte*> pinned_memory(std::size_t size_bytes, std::string_view what) {
  void* data = nullptr;
  if (size_bytes == 0 || cudaMallocHost(&data, size_bytes) == cudaSuccess) return static_cast<std::byte*>(data);
  cudaGetLastError();
  return fail(ErrorCode::out_of_memory, fmt::format("no pinned host memory for {} bytes of {}", size_bytes, what));
}

}  // namespace baton::cuda
