/// What the kernels of sampling share: their parameters, and a block's shared memory.
#pragma once

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/step_sections.cuh"
#include "kernels/cuda/sampling/parts.h"
#include "kernels/cuda/sampling/radix_select.cuh"

namespace baton::cuda {

/// Marks a NaN among the logits; larger than every place.
inline constexpr Place kNotANumber = ~Place{0};
/// Whether a row with this largest place has a token that may be chosen.
__device__ inline bool has_token(Place best) { return best != kNotANumber && value_of(best) != -INFINITY; }

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
  PartDraw* draws;            ///< [samples of a launch, n_parts]
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

/// Whether the sample is chosen from the row as the model computed it.
__device__ inline bool leaves_row(const SamplingMetadata& sampling) {
  return sampling.scored < 0 && !sampling.has_penalties() && sampling.biases.count <= 0 && sampling.bans.count <= 0 &&
         sampling.allowed.count <= 0 && sampling.mask < 0 && (sampling.n_stop_ids <= 0 || sampling.min_tokens <= 0);
}
/// Whether every token of the unchanged row may be drawn: the first launch draws in its parts. Not with log-probabilities,
/// which need the list.
__device__ inline bool draws_from_all(const SamplingMetadata& sampling) {
  return sampling.temperature > 0 && sampling.top_k <= 0 && sampling.top_p >= 1 && sampling.min_p <= 0 &&
         sampling.n_top_logprobs < 0 && leaves_row(sampling);
}
/// Whether the parts' records are all that the choice needs, unless a part has too many candidates.
__device__ inline bool needs_records_only(const SamplingMetadata& sampling) {
  return sampling.temperature > 0 ? draws_from_all(sampling) : sampling.n_top_logprobs < 0 && leaves_row(sampling);
}
/// Whether the sample's kernel reads near lists. Not to choose the most likely token of an unchanged row or one of a few
/// allowed ones.
__device__ inline bool needs_near(const SamplingMetadata& sampling) {
  if (sampling.n_top_logprobs > 0) return true;
  if (sampling.scored >= 0 || sampling.allowed.count > 0 || needs_records_only(sampling)) return false;
  return sampling.temperature > 0 || !leaves_row(sampling);
}

/// kListThreads threads of a block, with a barrier of their own, because most of the work on a list costs the same in
/// each warp.
template <int kIndex>
struct ThreadGroup {
  static constexpr int kWarps = kListThreads / kWarpSize;

  __device__ static bool has_this() { return static_cast<int>(threadIdx.x) / kListThreads == kIndex; }
  /// This thread's number in the group.
  __device__ static int thread() { return static_cast<int>(threadIdx.x) - kIndex * kListThreads; }
  __device__ static void wait() {
    __syncwarp();  // the barrier counts warps
    asm volatile("bar.sync %0, %1;" ::"n"(1 + kIndex), "n"(kListThreads) : "memory");
  }
  /// How many threads say so; waits for all.
  __device__ static int count(bool says_so) {
    int n = 0;
    __syncwarp();
    asm volatile("{\n .reg .pred p;\n setp.ne.s32 p, %1, 0;\n bar.red.popc.u32 %0, %2, %3, p;\n}"
                 : "=r"(n)
                 : "r"(says_so ? 1 : 0), "n"(1 + kIndex), "n"(kListThreads)
                 : "memory");
    return n;
  }
  /// Combines one value of each thread, in the same order every time. `of_warps` may be reused after another barrier.
  template <class T, class Join>
  __device__ static T join(T value, T* of_warps, Join join_two) {
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
      value = join_two(value, __shfl_xor_sync(0xffffffffu, value, distance));
    if (thread() % kWarpSize == 0) of_warps[thread() / kWarpSize] = value;
    wait();
    value = of_warps[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) value = join_two(value, of_warps[i]);
    return value;
  }
};
using ListThreads = ThreadGroup<0>;    ///< choose a token from the row's list, while the others wait
using ReportThreads = ThreadGroup<1>;  ///< write log-probabilities at the same time

/// One of the two groups tells the other, which waits, that something is done.
template <int kBarrier>
struct Signal {
  __device__ static void say() {
    __syncwarp();
    asm volatile("bar.arrive %0, %1;" ::"n"(kBarrier), "n"(2 * kListThreads) : "memory");
  }
  __device__ static void wait() {
    __syncwarp();
    asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(2 * kListThreads) : "memory");
  }
};
using ListIsComplete = Signal<3>;  ///< the list's threads say so
using ReportIsDone = Signal<4>;    ///< the report's threads say so
static_assert(kFewestSampleThreads >= 2 * kListThreads);

/// Tokens of a list, most likely first.
struct SortShared {
  Place sorted[kListThreads];
  std::uint16_t n_larger[ListThreads::kWarps][kListThreads];
};

/// The row's list: places of tokens.
struct NearShared {
  std::uint32_t n;          ///< entries of `places`; over kMostNear: the list is incomplete
  std::uint32_t n_changed;  ///< entries of `changed`
  std::uint32_t rank;       ///< where a search over the sorted tokens ended
  std::int32_t n_left;      ///< of the sorted tokens, after min_p and top_k
  std::int32_t n_reported;  ///< entries of `places` that the report may read; -1: there is no list
  Place places[kMostNear];
  Place changed[kMostNear];  ///< after the row's logits changed
  SortShared sort;
  SortShared sort_of_report;
};

/// What a group's threads know of the row, by warp.
struct RowShared {
  Place best[ListThreads::kWarps];
  LogitKey threshold[ListThreads::kWarps];
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
  RowShared row;
  RowShared row_of_report;
  double sums_of_warps[kMostSampleThreads / kWarpSize];
  Place bests_of_warps[ListThreads::kWarps];
  Place scores_of_warps[ListThreads::kWarps];
  std::uint64_t masses_of_warps[ListThreads::kWarps];
  std::uint32_t n_top;
  Place top[kMaxTopLogprobs];
  std::int32_t token;           ///< chosen; -1: none
  FinishedBy ended;             ///< why there is none
  float original;               ///< the chosen token's logit before any change
  std::int32_t has_original;    ///< 1: it is known
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

/// First half of sampling (gather.cu): reads all rows once, and fills in the records and near lists of all parts of
/// `n_samples` rows from params.first_sample on.
void gather_parts(const Device& device, const SampleParams& params, unsigned n_samples);

}  // namespace baton::cuda
