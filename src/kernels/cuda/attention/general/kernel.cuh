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
__device__ __forceinline__ void run_attention(const AttentionParams& p, const MemoryPlan& plan) {
  if (is_spare_block(p, false)) return;
  extern __shared__ __align__(1024) std::byte memory[];
  const SharedLayout<Tile> shared(memory, plan, p.chunk_states);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < plan.n_stages; ++i) {
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
    Producer<Tile> producer(p, shared, plan);
    producer.run();
  } else {
    take_registers<256 - Tile::kProducerRegisters>();
    Consumers consumer(p, shared, plan);
    consumer.run();
  }
}

template <class T, int kDim, bool kFp8>
__global__ void __launch_bounds__(kAttentionThreads, kCompiledResidents)
    attention_kernel(const __grid_constant__ AttentionParams p, const __grid_constant__ MemoryPlan plan) {
  using Tile = AttentionTile<T, kDim, kFp8>;
  // Head sizes beyond 128 have stages of 16 tokens and queries in shared memory.
  run_attention<Tile, std::conditional_t<(kDim <= 128), FewRowsConsumer<Tile>, Consumer<Tile>>>(p, plan);
}

/// The plan for `n_residents` blocks on a multiprocessor. Two stages are enough where only one block fits: the one that is copied
/// holds 32 KiB with heads of 128, and a multiprocessor of an RTX 4090 reads 8 bytes a nanosecond, which takes about 8 KiB on
/// their way. So shared memory goes to queries of their own before it goes to a third stage.
template <class Tile>
MemoryPlan plan_memory(const Device& device, int n_residents) {
  constexpr int kReservedBytes = 1024;  // of each block, by the system
  const int block_bytes = (static_cast<int>(device.max_shared_bytes) + kReservedBytes) / n_residents - kReservedBytes;
  const auto stages_beside = [&](int fixed_bytes) {
    const int n_stages = std::min(std::max(0, block_bytes - fixed_bytes) / Tile::kStageBytes, kMaxStages);
    return Tile::kIsFp8 ? n_stages / 2 * 2 : n_stages;  // a stage that is converted takes two
  };
  constexpr int kScratchBytes = Tile::kScratchFloats * 4;
  const MemoryPlan plan{.n_stages = stages_beside(Tile::kFixedBytes)};
  if (plan.n_stages >= Tile::kLeastStages) return plan;
  if (Tile::kQueriesInRegisters)
    return {.n_stages = stages_beside(Tile::kFixedBytes - std::min(Tile::kQueryBytes, kScratchBytes)),
            .scratch_over_queries = true};
  if (Tile::kMayKeepScratchOutside)
    return {.n_stages = stages_beside(Tile::kFixedBytes - kScratchBytes),
            .device_bytes = static_cast<std::size_t>(device.n_multiprocessors) * n_residents * kScratchBytes};
  return plan;
}

/// The shared memory of a block.
template <class Tile>
int shared_bytes(const MemoryPlan& plan) {
  constexpr int kScratchBytes = Tile::kScratchFloats * 4;
  const int saved = plan.scratch_over_queries ? std::min(Tile::kQueryBytes, kScratchBytes)
                    : plan.device_bytes > 0   ? kScratchBytes
                                              : 0;
  return Tile::kFixedBytes - saved + plan.n_stages * Tile::kStageBytes;
}

/// Launches `kernel`, which runs the blocks of Tile.
template <class Tile>
void launch_tiles(void (*kernel)(AttentionParams, MemoryPlan), const AttentionParams& params, const Device& device,
                  int n_blocks, const MemoryPlan& plan) {
  check(plan.n_stages >= 2, "attention: too little shared memory (attention_obstacle was not asked)");
  check(plan.device_bytes == 0 || params.chunk_states != nullptr, "attention: no memory for the states of chunks");
  const int n_bytes = shared_bytes<Tile>(plan);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes), "attention: shared memory");
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(n_blocks)), kAttentionThreads, n_bytes, "attention", params,
                    plan);
}

template <class T, int kDim, bool kFp8>
MemoryPlan plan_attention_memory(const Device& device) {
  return plan_memory<AttentionTile<T, kDim, kFp8>>(device, attention_blocks_a_multiprocessor(device));
}

template <class T, int kDim, bool kFp8>
void launch_attention(const AttentionParams& params, const Device& device, int n_blocks) {
  launch_tiles<AttentionTile<T, kDim, kFp8>>(attention_kernel<T, kDim, kFp8>, params, device, n_blocks,
                                             plan_attention_memory<T, kDim, kFp8>(device));
}

}  // namespace baton::cuda
