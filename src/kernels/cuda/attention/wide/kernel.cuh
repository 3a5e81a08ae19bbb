/// The wide attention kernel: tiles of 128 query rows, for steps whose sequences have many rows. A persistent grid, one
/// block a multiprocessor, over the same work list as the other kernel (attention/general/kernel.cuh).
///
/// Two consumer warpgroups of 64 rows each share the stages of 128 tokens. A producer warp copies keys and values in
/// bulk, three copy queries and descriptions of tiles, ahead of use and across items. Over e4m3 these three also make f16
/// of keys, values and queries, and stages have 64 tokens. Outputs and partial states are the same as the other kernel's,
/// but for the order of sums.
///
/// In a step of both kernels this one is launched first. The other one starts when all blocks here have waited for the kernel
/// before, and ends after this one, so what follows needs to wait for the other one only.
#pragma once

#include "kernels/cuda/attention/wide/consumer.cuh"
#include "kernels/cuda/attention/wide/producer.cuh"
#include "kernels/cuda/attention/wide/wide.h"
#include "kernels/cuda/device/launch.cuh"

namespace baton::cuda {

#ifdef BATON_SM90A
/// Initializes a ring's barriers. One arrival fills a part, `n_empty` free it.
__device__ __forceinline__ void init_ring(const StageRing& ring, int n_stages, int n_empty) {
  for (int i = 0; i < n_stages; ++i) {
    barrier_init(ring.key_full + 8 * i, 1);
    barrier_init(ring.key_empty + 8 * i, n_empty);
    barrier_init(ring.value_full + 8 * i, 1);
    barrier_init(ring.value_empty + 8 * i, n_empty);
  }
}

/// What a block does; all its threads call this.
template <class Tile, class Consumers>
__device__ __forceinline__ void run_wide_attention(const AttentionParams& p) {
  if (is_spare_block(p, true)) return;
  extern __shared__ __align__(1024) std::byte bytes[];
  const WideMemory<Tile> memory(bytes);
  if (threadIdx.x == 0) {
    init_ring(memory.stages, Tile::kStages, Tile::kConsumerWarps);
    if constexpr (Tile::kIsFp8) init_ring(memory.copies, Tile::kCopiedStages, 1);
    for (int i = 0; i < Tile::kTasks; ++i) {
      barrier_init(memory.task_full + 8 * i, 2 * Tile::kQueryThreads);
      barrier_init(memory.task_empty + 8 * i, Tile::kConsumerWarps);
    }
    wgmma_see_copies();
  }
  __syncthreads();
  wait_for_kernel_before();
  let_next_kernel_start();  // not before: the other attention kernel, if it comes next, relies on this wait
  if (static_cast<int>(threadIdx.x) >= 32 * Tile::kConsumerWarps) {
    give_registers<56>();
    WideProducer<Tile> producer(p, memory);
    producer.run();
  } else {
    take_registers<224>();
    Consumers consumer(p, memory);
    consumer.run();
  }
}
#endif

template <class T, int kDim, bool kFp8>
__global__ void __launch_bounds__(WideTile<T, kDim>::kThreads, 1)
    wide_attention_kernel([[maybe_unused]] const __grid_constant__ AttentionParams p) {
#ifdef BATON_SM90A
  using Tile = WideTile<T, kDim, false, kFp8>;
  run_wide_attention<Tile, WideConsumer<Tile>>(p);
#endif
}

/// In code for older devices the kernel is empty.
template <class T, int kDim, bool kFp8>
bool runs_wide_attention() {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, wide_attention_kernel<T, kDim, kFp8>), "attention: the wide kernel");
  return attributes.ptxVersion == 90;
}

/// Launches `kernel`, which runs the blocks of Tile.
template <class Tile>
void launch_wide_tiles(void (*kernel)(AttentionParams), const AttentionParams& params, const Device& device, int n_blocks) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes),
             "attention: shared memory");
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(n_blocks)), Tile::kThreads, Tile::kSharedBytes, "wide attention",
                    params);
}

template <class T, int kDim, bool kFp8>
void launch_wide_attention(const AttentionParams& params, const Device& device, int n_blocks) {
  launch_wide_tiles<WideTile<T, kDim, false, kFp8>>(wide_attention_kernel<T, kDim, kFp8>, params, device, n_blocks);
}

}  // namespace baton::cuda
