/// What the kernels of sampling share: their parameters, and a block's shared memory.
#pragma once

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/cuda/radix_select.cuh"
#include "kernels/cuda/sampling_parts.h"
#include "kernels/cuda/step_sections.cuh"

namespace baton::cuda {

/// Marks a NaN among the logits; larger than every place.
inline constexpr Place kNotANumber = ~Place{0};

struct SampleParams {
  const std::byte* step;
  float* logits;
  float* originals;  ///< [biases of the step, then counts of the step]: the logits before these entries changed them
  SlotState* slots;
  SampleResult* results;
  std::int32_t n_slots;
  std::int32_t n_vocab;
  std::int32_t n_originals;
  PartRecord* parts;          ///< [samples of a launch, n_parts]
  Place* near_lists;          ///< [samples of a launch, n_parts, kNearRoom]
  std::int32_t n_parts;       ///< of a row
  std::int32_t first_sample;  ///< of a launch
  bool is_aligned;
  const std::int32_t* mask_rows;   ///< TokenMasks::row_of [n_masks]
  const std::uint32_t* mask_bits;  ///< [n_mask_rows, mask_words]
  std::int32_t n_masks;
  std::int32_t n_mask_rows;
  std::int32_t mask_words;

  __device__ Logits row(std::int32_t index) const {
    return {logits + static_cast<std::int64_t>(index) * n_vocab, n_vocab, is_aligned};
  }
};

/// Whether the sample's kernel reads near lists. Greedy sampling of an unchanged row needs only the parts' places.
__device__ inline bool needs_near(const SamplingMetadata& sampling) {
  return sampling.n_top_logprobs > 0 ||
         (sampling.scored < 0 && (sampling.temperature > 0 || sampling.has_penalties() || sampling.biases.count > 0 ||
                                  sampling.bans.count > 0 || sampling.n_stop_ids > 0 || sampling.mask >= 0));
}

/// The first kListThreads threads of a block. They work on a row's list while the others wait, because most of that
/// work costs the same in each warp.
struct ListThreads {
  static constexpr int kWarps = kListThreads / kWarpSize;

  __device__ static bool has_this() { return threadIdx.x < kListThreads; }
  __device__ static void wait() {
    __syncwarp();  // the barrier counts warps
    asm volatile("bar.sync 1, %0;" ::"n"(kListThreads) : "memory");
  }
  /// How many threads say so; waits for all.
  __device__ static int count(bool says_so) {
    int n = 0;
    __syncwarp();
    asm volatile("{\n .reg .pred p;\n setp.ne.s32 p, %1, 0;\n bar.red.popc.u32 %0, 1, %2, p;\n}"
                 : "=r"(n)
                 : "r"(says_so ? 1 : 0), "n"(kListThreads)
                 : "memory");
    return n;
  }
  /// Combines one value of each thread, in the same order every time. `of_warps` may be reused at once.
  template <class T, class Join>
  __device__ static T join(T value, T* of_warps, Join join_two) {
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
      value = join_two(value, __shfl_xor_sync(0xffffffffu, value, distance));
    if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = value;
    wait();
    value = of_warps[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) value = join_two(value, of_warps[i]);
    wait();
    return value;
  }
};

/// The row's list: places of tokens.
struct NearShared {
  std::uint32_t n;     ///< entries; over kMostNear: the list is incomplete
  std::uint32_t rank;  ///< where a search over `sorted` ended
  Place places[kMostNear];
  Place sorted[kListThreads];  ///< the same, largest first
  std::uint16_t n_larger[ListThreads::kWarps][kListThreads];
  std::int32_t n_left;  ///< of `sorted`, after min_p and top_k
};

/// What the list's threads leave to all threads of the block.
enum class RowWork : std::int32_t {
  none,   ///< the sample is finished
  noise,  ///< a token of the row may have a larger score than the list's
  total,  ///< the nucleus needs the mass of the row
  all,    ///< the list does not suffice
};

/// Shared memory of a block that samples.
struct Shared {
  SearchShared search;
  NearShared near;
  double sums_of_warps[kMostSampleThreads / kWarpSize];
  std::uint32_t n_top;
  Place top[kMaxTopLogprobs];
  float original;               ///< the chosen token's logit before any change
  float original_of_last;       ///< the last token's logit before a penalty that no list contains
  std::int32_t penalises_last;  ///< 1: the last token is in no list
  RowWork work;
  double log_sum;
  Place best;               ///< the largest after all changes, 0: unknown
  std::uint64_t total;      ///< mass of the changed row, 0: unknown
  float best_score;         ///< of the list's tokens
  std::int32_t has_top;     ///< 1: the most likely tokens are in the result
  std::int32_t is_changed;  ///< 1: penalties and lists are applied to the row
};

__device__ inline Place block_max(Shared& shared, Place value) {
  return block_join(value, shared.search.of_warps, [](Place a, Place b) { return a > b ? a : b; });
}
__device__ inline std::uint64_t block_sum(Shared& shared, std::uint64_t value) {
  return block_join(value, shared.search.of_warps, [](std::uint64_t a, std::uint64_t b) { return a + b; });
}

}  // namespace baton::cuda
