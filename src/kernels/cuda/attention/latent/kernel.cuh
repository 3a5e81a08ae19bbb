/// The latent attention kernel: tiles of 64 query rows, all heads of some token rows, over keys that are read once and serve as
/// values too. A persistent grid, one block a multiprocessor, over the same work list as the other kernels.
#pragma once

#include "kernels/cuda/attention/latent/consumer.cuh"
#include "kernels/cuda/attention/latent/producer.cuh"
#include "kernels/cuda/device/launch.cuh"

namespace baton::cuda {

#ifdef BATON_SM90A

/// The body of the kernel of `Consumer`, which takes `more`.
template <class Tile, class Consumer, class... More>
__device__ __forceinline__ void run_latent_attention(const AttentionParams& p, More... more) {
  extern __shared__ __align__(1024) std::byte bytes[];
  const LatentMemory<Tile> memory(bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStages * Tile::kParts; ++i) barrier_init(memory.full + 8 * i, 1);
    for (int i = 0; i < Tile::kStages; ++i) barrier_init(memory.empty + 8 * i, Tile::kConsumerWarps);
    barrier_init(memory.task_full, 2 * Tile::kQueryThreads);
    barrier_init(memory.task_empty, Tile::kConsumerWarps);
    wgmma_see_copies();
  }
  __syncthreads();
  let_next_kernel_start();
  if (static_cast<int>(threadIdx.x) >= Tile::kConsumerThreads) {
    give_registers<56>();
    LatentProducer<Tile> producer(p, memory);
    producer.run();
  } else {
    take_registers<224>();
    wait_for_kernel_before();
    Consumer consumer(p, memory, more...);
    consumer.run();
  }
}

#endif  // BATON_SM90A

template <class T, int kLatent>
__global__ void __launch_bounds__(LatentTile<T, kLatent>::kThreads, 1)
    latent_attention_kernel([[maybe_unused]] const __grid_constant__ AttentionParams p) {
#ifdef BATON_SM90A
  using Tile = LatentTile<T, kLatent>;
  run_latent_attention<Tile, LatentConsumer<Tile>>(p);
#endif
}

/// In code for older devices the kernel is empty.
template <class T, int kLatent>
bool runs_latent_attention() {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, latent_attention_kernel<T, kLatent>), "attention: the latent kernel");
  return attributes.ptxVersion == 90;
}

template <class Tile, class... Parameters>
void launch_latent_tiles(void (*kernel)(Parameters...), const Device& device, int n_blocks, Parameters... parameters) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes),
             "attention: shared memory");
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(n_blocks)), Tile::kThreads, Tile::kSharedBytes,
                    "latent attention", parameters...);
}

template <class T, int kLatent>
void launch_latent_attention(const AttentionParams& params, const Device& device, int n_blocks) {
  launch_latent_tiles<LatentTile<T, kLatent>>(latent_attention_kernel<T, kLatent>, device, n_blocks, params);
}

}  // namespace baton::cuda
