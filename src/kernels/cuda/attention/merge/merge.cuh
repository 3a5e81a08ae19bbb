/// Merging of partial states by groups of four warps. The states alone say in which order they are summed, so the grid
/// does not change a bit.
///
/// Each warp handles one row and query head, each lane four columns, and sums up to 32 states in order. If there are
/// few rows and heads, a group of four warps handles one row and head, or 128 columns of it if such groups are few, too; with
/// more than 8 states each warp of the group sums a quarter of them. Groups also handle rows with more than 32 states, in runs of 32.
///
/// The code is short and its first round is a warm-up, because instructions are cold in every launch: loading a line
/// of instructions takes as long as loading a state.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/attention/step.cuh"
#include "kernels/cuda/device/mma.cuh"

namespace baton::cuda {

constexpr int kMergeWarps = 4;
constexpr int kMergeThreads = 32 * kMergeWarps;
constexpr int kWholeStates = 8;     ///< up to so many states a group does not divide into parts
constexpr int kWarpStates = 32;     ///< most states that a warp merges alone
constexpr int kFewUnits = 256;      ///< with more rows times query heads than this, warps merge alone
constexpr int kMergeColumns = 128;  ///< of a warp at once
constexpr int kMergeLoads = 4;      ///< outputs that a lane loads at the same time
/// 32-bit words of shared memory that merging needs, 16-byte aligned: a list of rows with many states, and each warp's
/// partial sum.
constexpr int kMergeWords = kMergeThreads + kMergeWarps * (kMergeColumns + 2);

/// Parts into which groups divide the columns of a row and head; `n_units`: rows times query heads.
__host__ __device__ constexpr int merge_parts(int n_units, int head_dim) {
  const int n_parts = (head_dim + kMergeColumns - 1) / kMergeColumns;
  return n_units * n_parts <= kFewUnits ? n_parts : 1;
}

/// Merges rows for the calling thread's group of four warps, one of `n_groups`, whose named barrier is kBarrier.
template <class T, int kBarrier>
class Merger {
 public:
  /// `shared`: kMergeWords of shared memory, the group's own.
  __device__ Merger(const AttentionParams& p, const StepArrays& step, int n_groups, std::uint32_t* shared, int thread)
      : p_(p), step_(step), n_groups_(n_groups), shared_(shared), thread_(thread), lane_(thread % 32), warp_(thread / 32) {}

  /// Merges all rows that have states, as group `group`. All threads of the group call this. until_written() is called
  /// once in each thread; before it nothing is written and no state that counts is read.
  template <class UntilWritten>
  __device__ __forceinline__ void run(int group, const UntilWritten& until_written) {
    int n_units = step_.n_rows * p_.n_heads;
    by_group_ = n_units <= kFewUnits;
    const int n_parts = by_group_ ? merge_parts(n_units, p_.head_dim) : 1;
    n_units *= n_parts;
    const int stride = n_groups_ * (by_group_ ? 1 : kMergeWarps);
    int unit = 0;
    Row row;
    // The first round only warms the instruction cache: it sums whatever lies in the first state and stores nothing.
    asm volatile("mov.u32 %0, 1;" : "=r"(is_warmup_));
    row.n_states = row.end = is_warmup_;
    for (int round = 0;; ++round) {
      const Row now = row;
      unit += stride;
      row = read_row(unit, n_units, n_parts);
      if (now.n_states > 0) merge(now);
      if (round == 0) {
        is_warmup_ = 0;
        unit = group + (by_group_ ? 0 : n_groups_ * warp_) - stride;
        row.n_states = 0;
      } else {
        if (round == 1) until_written();
        if (unit >= n_units) break;
      }
    }
    if (step_.most_merge_inputs > kWarpStates && !by_group_) merge_long_rows(group);
  }

 private:
  /// A row and query head, and its states.
  struct Row {
    int row = 0;
    int head = 0;
    int begin = 0;     ///< index of its first merge input
    int n_states = 0;  ///< 0: nothing to merge here
    int first = 0;     ///< this warp's states are [first, end)
    int end = 0;
    int input = 0;  ///< merge input of this lane's state
    int first_column = 0;
    int end_column = kMergeColumns;
    float sink = 0;
  };
  /// Merged states: the maximum (-infinity: all are empty), and sums weighted by 2^(m - maximum).
  struct Sum {
    float m, l;
    float4 o;
  };

  /// First state of part `part` of a group's `n` states; part kMergeWarps gives the end.
  __device__ __forceinline__ static int part_begin(int n, int part) {
    if (n > kWholeStates) return n * part / kMergeWarps;
    return part == 0 ? 0 : n;
  }

  __device__ __forceinline__ Row read_row(int unit, int n_units, int n_parts) const {
    Row row;
    if (unit >= n_units) return row;
    row.end_column = p_.head_dim;
    if (n_parts > 1) {
      row.first_column = unit % n_parts * kMergeColumns;
      row.end_column = row.first_column + kMergeColumns;
      unit /= n_parts;
    }
    row.row = static_cast<int>(static_cast<unsigned>(unit) / static_cast<unsigned>(p_.n_heads));
    row.head = unit - row.row * p_.n_heads;
    read_states(row);
    if (!by_group_ && row.n_states > kWarpStates) row.n_states = 0;  // for merge_long_rows
    return row;
  }
  __device__ __forceinline__ void read_states(Row& row) const {
    row.sink = sink_of(p_, row.head);
    row.begin = __ldg(step_.merge_offsets + row.row);
    row.n_states = row.end = __ldg(step_.merge_offsets + row.row + 1) - row.begin;
    if (by_group_) {
      row.first = part_begin(row.n_states, warp_);
      row.end = part_begin(row.n_states, warp_ + 1);
    }
    if (lane_ < row.end - row.first) row.input = __ldg(step_.merge_inputs + row.begin + row.first + lane_);
  }

  __device__ __forceinline__ std::int64_t state_of(int input, int head) const {
    return static_cast<std::int64_t>(input) * p_.n_heads + head;
  }

  /// Sums `n` <= 32 states at four columns; each lane holds the merge input of one state.
  __device__ __forceinline__ Sum sum_states(int input, int n, int head, int column) const {
    const std::int64_t state = state_of(input, head);
    const float m = lane_ < n ? __ldcg(p_.part_m + state) : -INFINITY;
    const float l = lane_ < n ? __ldcg(p_.part_l + state) : 0;
    const auto* const outputs = reinterpret_cast<const std::byte*>(p_.part_o + head * p_.head_dim + column);
    const auto state_bytes = static_cast<unsigned>(p_.n_heads * p_.head_dim * 4);
    Sum sum{-INFINITY, 0, {0, 0, 0, 0}};
    float weight = 0;
#pragma unroll 1
    for (int first = 0; first < n; first += kMergeLoads) {
      float4 o[kMergeLoads];
#pragma unroll
      for (int i = 0; i < kMergeLoads; ++i) {
        const auto at = static_cast<std::uint64_t>(static_cast<unsigned>(__shfl_sync(~0u, input, first + i))) * state_bytes;
        if (first + i < n && column < p_.head_dim) o[i] = __ldcg(reinterpret_cast<const float4*>(outputs + at));
      }
      if (first == 0) {
        sum.m = m;
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sum.m = fmaxf(sum.m, __shfl_xor_sync(~0u, sum.m, step));
        weight = exp2_approx(m - (sum.m == -INFINITY ? 0.0f : sum.m));
        sum.l = l * weight;
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sum.l += __shfl_xor_sync(~0u, sum.l, step);
      }
#pragma unroll
      for (int i = 0; i < kMergeLoads; ++i) {
        const float w = __shfl_sync(~0u, weight, first + i);
        if (first + i < n && w != 0)  // an empty state's output may be anything
          sum.o.x += w * o[i].x, sum.o.y += w * o[i].y, sum.o.z += w * o[i].z, sum.o.w += w * o[i].w;
      }
    }
    return sum;
  }

  __device__ __forceinline__ void store(const Row& row, int column, const Sum& sum) const {
    if (column >= p_.head_dim || is_warmup_ != 0) return;
    const float l = finished_sum(p_, row.sink, sum.m, sum.l);
    const float factor = l != 0 ? __fdividef(1.0f, l) : 0.0f;
    store_output<T>(p_, (static_cast<std::int64_t>(row.row) * p_.n_heads + row.head) * p_.head_dim + column,
                    {sum.o.x * factor, sum.o.y * factor, sum.o.z * factor, sum.o.w * factor});
  }

  __device__ __forceinline__ void merge(const Row& row) {
#pragma unroll 1
    for (int first_column = row.first_column; first_column < row.end_column; first_column += kMergeColumns) {
      const int column = first_column + lane_ * 4;
      Sum sum{-INFINITY, 0, {0, 0, 0, 0}};
      int input = row.input;
#pragma unroll 1
      for (int first = row.first; first < row.end; first += kWarpStates) {
        if (first > row.first && first + lane_ < row.end) input = __ldg(step_.merge_inputs + row.begin + first + lane_);
        add(sum, sum_states(input, min(kWarpStates, row.end - first), row.head, column));
      }
      if (by_group_) join_parts(sum);
      if (!by_group_ || warp_ == 0) store(row, column, sum);
    }
  }

  /// Warp 0 adds up the parts.
  __device__ __forceinline__ void join_parts(Sum& sum) const {
    auto* const outputs = reinterpret_cast<float4*>(shared_ + kMergeThreads);
    auto* const totals = reinterpret_cast<float2*>(shared_ + kMergeThreads + kMergeWarps * kMergeColumns);
    outputs[thread_] = sum.o;
    if (lane_ == 0) totals[warp_] = {sum.m, sum.l};
    named_barrier(kBarrier, kMergeThreads);
    if (warp_ == 0) {
#pragma unroll 1
      for (int i = 1; i < kMergeWarps; ++i) add(sum, {totals[i].x, totals[i].y, outputs[i * 32 + lane_]});
    }
    named_barrier(kBarrier, kMergeThreads);
  }

  /// Merges the rows that have more states than a warp merges alone, one group for each.
  __device__ __forceinline__ void merge_long_rows(int group) {
    by_group_ = true;
#pragma unroll 1
    for (int first_row = 0; first_row < step_.n_rows; first_row += kMergeThreads) {
      const int n_units = list_long_rows(first_row) * p_.n_heads;
#pragma unroll 1
      for (int unit = group; unit < n_units; unit += n_groups_) {
        Row row;
        const int index = unit / p_.n_heads;
        row.row = static_cast<int>(shared_[index]);
        row.head = unit - index * p_.n_heads;
        row.end_column = p_.head_dim;
        read_states(row);
        merge(row);
      }
      named_barrier(kBarrier, kMergeThreads);
    }
  }

  /// Lists such rows among those from `first_row` on, in order; each thread checks one row. Every group makes the same
  /// list. Returns its length.
  __device__ __forceinline__ int list_long_rows(int first_row) const {
    const int row = first_row + thread_;
    const bool is_long =
        row < step_.n_rows && __ldg(step_.merge_offsets + row + 1) - __ldg(step_.merge_offsets + row) > kWarpStates;
    const unsigned long_lanes = __ballot_sync(~0u, is_long);
    std::uint32_t* const counts = shared_ + kMergeThreads;  // memory that the sums do not use yet
    if (lane_ == 0) counts[warp_] = __popc(long_lanes);
    named_barrier(kBarrier, kMergeThreads);
    int n = 0;
    int n_before = 0;
#pragma unroll
    for (int i = 0; i < kMergeWarps; ++i) {
      if (i == warp_) n_before = n;
      n += static_cast<int>(counts[i]);
    }
    if (is_long) shared_[n_before + __popc(long_lanes & ((1u << lane_) - 1))] = static_cast<std::uint32_t>(row);
    named_barrier(kBarrier, kMergeThreads);
    return n;
  }

  /// Joins the sums of two runs of states.
  __device__ __forceinline__ static void add(Sum& sum, const Sum& more) {
    const float m = fmaxf(sum.m, more.m);
    const float base = m == -INFINITY ? 0.0f : m;
    const float a = exp2_approx(sum.m - base);
    const float b = exp2_approx(more.m - base);
    sum = {m,
           sum.l * a + more.l * b,
           {sum.o.x * a + more.o.x * b, sum.o.y * a + more.o.y * b, sum.o.z * a + more.o.z * b, sum.o.w * a + more.o.w * b}};
  }

  const AttentionParams& p_;
  const StepArrays& step_;
  int n_groups_;
  std::uint32_t* shared_;
  int thread_, lane_, warp_;
  bool by_group_ = false;  ///< a group takes a row and head, not a warp
  int is_warmup_ = 0;
};

}  // namespace baton::cuda
