/// The attention kernel: a persistent grid over the work list of a step, two blocks a multiprocessor.
///
/// A block processes (item, KV head) pairs. Four producer warps copy queries, keys and values (stages of 64 tokens) to
/// shared memory, ahead of use and across items. Four consumer warps compute. A tile has up to 64 query rows (token
/// row x query head of the KV head). With few rows some warps would idle, so the warps divide the tokens instead:
///
///     query rows    16-row groups    token groups    matmuls
///     1 to 8        1                4               mma.sync, 16 tokens a step, keys and values as operand A
///     9 to 16       1                4               mma.sync, 16 tokens a step
///     17 to 32      2                2               mma.sync, 16 tokens a step
///     33 to 64      4                1               wgmma on sm_90a, a stage a step, where every row sees all of it
///
/// e4m3 keys and values are multiplied as f16, which holds them exactly. Up to 32 query rows the consumers convert them
/// in registers, 32 tokens a step; with more rows the producers convert them in shared memory (attention/general/widen.cuh).
///
/// Each token group ends with its own state; these are joined in order through shared memory. A tile writes its output
/// or a partial state; a second launch merges rows with such states (attention/merge/merge.cu). The plan alone fixes the
/// order of every sum, so the grid does not change a bit. A block reads its first keys while the kernel before it may
/// still run, if they are older than the step. Batch-invariant mode has other consumers (attention/invariant/kernel.cuh).
/// Sources: FlashAttention-2 (arXiv:2307.08691) for the running softmax,
/// Flash-Decoding and RelayAttention (arXiv:2402.14808) for the items.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention/general/consumer.cuh"
#include "kernels/cuda/attention/general/few_rows.cuh"
#include "kernels/cuda/attention/general/producer.cuh"
#include "kernels/cuda/attention/launch.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/launch.cuh"

namespace baton::cuda {

/// What a block does; all its threads call this.
template <class Tile, class Consumers>
__device__ __forceinline__ void run_attention(const AttentionParams& p, int n_stages) {
  if (is_spare_block(p, false)) return;
  extern __shared__ __align__(1024) std::byte memory[];
  const SharedLayout<Tile> shared(memory, n_stages);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < n_stages; ++i) {
      barrier_init(shared.full + 8 * i, kProducerThreads);
      barrier_init(shared.empty + 8 * i, kConsumerWarps);
      if constexpr (Tile::kWidens) barrier_init(shared.landed + 8 * i, kProducerThreads);
    }
    barrier_init(shared.task_full, 2 * kProducerThreads);
    barrier_init(shared.task_empty, kConsumerWarps);
  }
  __syncthreads();
  let_next_kernel_start();
  if (warp >= kConsumerWarps) {
    give_registers<Tile::kProducerRegisters>();
    Producer<Tile> producer(p, shared, n_stages);
    producer.run();
  } else {
    take_registers<256 - Tile::kProducerRegisters>();
    Consumers consumer(p, shared, n_stages);
    consumer.run();
  }
}

template <class T, int kDim, bool kFp8>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    attention_kernel(const __grid_constant__ AttentionParams p, int n_stages) {
  using Tile = AttentionTile<T, kDim, kFp8>;
  // Head sizes beyond 128 have stages of 16 tokens and queries in shared memory.
  run_attention<Tile, std::conditional_t<(kDim <= 128), FewRowsConsumer<Tile>, Consumer<Tile>>>(p, n_stages);
}

/// Stages that fit with `n_residents` blocks on a multiprocessor.
template <class Tile>
int stages_that_fit(const Device& device, int n_residents) {
  constexpr int kReservedBytes = 1024;  // of each block, by the system
  const int free_bytes =
      (static_cast<int>(device.max_shared_bytes) + kReservedBytes) / n_residents - kReservedBytes - Tile::kFixedBytes;
  return free_bytes < 0 ? 0 : std::min(free_bytes / Tile::kStageBytes, kMaxStages);
}

/// Launches `kernel`, which runs the blocks of Tile.
template <class Tile>
void launch_tiles(void (*kernel)(AttentionParams, int), const AttentionParams& params, const Device& device, int n_blocks,
                  int n_stages) {
  check(n_stages >= 2, "attention: too little shared memory (attention_obstacle was not asked)");
  const int shared_bytes = Tile::kFixedBytes + n_stages * Tile::kStageBytes;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
             "attention: shared memory");
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(n_blocks)), kAttentionThreads, shared_bytes, "attention", params,
                    n_stages);
}

template <class T, int kDim, bool kFp8>
int attention_stages(const Device& device) {
  const int n_stages = stages_that_fit<AttentionTile<T, kDim, kFp8>>(device, attention_blocks_a_multiprocessor(device));
  return kFp8 ? n_stages / 2 * 2 : n_stages;  // a stage that is converted takes two
}

template <class T, int kDim, bool kFp8>
void launch_attention(const AttentionParams& params, const Device& device, int n_blocks) {
  launch_tiles<AttentionTile<T, kDim, kFp8>>(attention_kernel<T, kDim, kFp8>, params, device, n_blocks,
                                             attention_stages<T, kDim, kFp8>(device));
}

}  // namespace baton::cuda
