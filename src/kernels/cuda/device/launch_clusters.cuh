/// Launches in clusters of blocks, which read each other's shared memory.
#pragma once

#include <utility>

#include "kernels/cuda/device/launch.cuh"

namespace baton::cuda {

/// As launch_overlapped, in clusters of `cluster_size` blocks. For devices of compute capability 9.0 and later.
template <class... Parameters, class... Arguments>
void launch_clusters(const Device& device, void (*kernel)(Parameters...), dim3 grid, int cluster_size, int n_threads,
                     int shared_bytes, const char* what, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(n_threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = device.stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(cluster_size), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes;
  config.numAttrs = std::exchange(device.is_after_collective, false) ? 1 : 2;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), what);
}

}  // namespace baton::cuda
