/// The multiplying warpgroups of kernel.cuh, and how a block's threads share work and memory.
///
/// The f32 sums of a group of columns are scaled once. So a sum depends on the weight's shape, the device and the kernel,
/// not on the other rows.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/wgmma_shared.cuh"
#include "kernels/cuda/gemm/partial_sums.cuh"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/schemes/scheme_stream.h"
#include "kernels/cuda/schemes/stream/ring.cuh"
#include "kernels/cuda/schemes/widen.cuh"

namespace baton::cuda {

/// As kFillStages of stream_gemm.cu.
inline constexpr int kSchemeFillStages = 4;

/// `kParts` warpgroups share a stage, a tile each; `kSets` sets of them take the stages in turn.
template <WeightScheme kScheme, int kWidth>
struct SchemeForm {
  static constexpr int kParts = kWidth <= 32 ? 1 : 2;
  static constexpr int kSets = kWidth <= 32 ? 2 : 1;
  static constexpr int kSetThreads = 128 * kParts;
  static constexpr int kMultipliers = kSetThreads * kSets;
  /// The widest kernel's sums need registers that a warpgroup of copying threads gives up; others have two warps of them.
  static constexpr bool kMovesRegisters = kWidth > 64;
  static constexpr int kThreads = kMultipliers + (kMovesRegisters ? 128 : 2 * 32);
  static constexpr int kChunkK = chunk_columns(kScheme);
  static constexpr int kChunks = kWidth <= 32 ? 8 : kWidth <= 64 ? 4 : 128 / kChunkK;  ///< of a stage
  static constexpr int kSteps = kChunkK / 16;                                          ///< of a chunk
  static constexpr int kStageK = kChunks * kChunkK;
  /// Whether matmuls of a chunk start before those of the chunk before end. int4 with 64 rows is faster with longer stages.
  static constexpr bool kRunsAhead = kSets == 1 && kStageK == 128;
  static constexpr int kBoxes = kStageK / kBoxK;
  static constexpr int kXBytes = kWidth * kStageK * 2;  ///< of a stage
  static constexpr int kValueBytes = kParts * kChunks * kPieceBytes;
  static constexpr int kJoinBytes = (kMultipliers - kSetThreads) * (kWidth / 8) * 16;  ///< sums that sets hand to the first one
};

/// Scales and zeros of a stage.
template <class Form>
__host__ __device__ inline int group_bytes(const SchemeStreamParams& p) {
  return Form::kParts * p.groups_of_stage * kSchemeTileRows * (p.scale_bytes + p.zero_bytes);
}

/// Which tile of the weight, and which rows of x, a tile of the schedule is: for each of the weight there are n_passes.
struct PassOfTile {
  int tile;
  int pass;
};
template <class Form>
__device__ __forceinline__ PassOfTile pass_of_tile(const SchemeStreamParams& p, int tile) {
  if constexpr (Form::kSets > 1) return {tile, 0};
  return {tile / p.n_passes, tile % p.n_passes};
}

#ifdef BATON_SM90A

__device__ __forceinline__ void arrive_named(int barrier, int n_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}

template <WeightScheme kScheme, class T, int kWidth, int kScaledSteps>
class SchemeMultiplier {
  using Form = SchemeForm<kScheme, kWidth>;
  static constexpr int kColumns = kWidth / 8;
  static constexpr int kUnits = Form::kSteps / kScaledSteps;  ///< of a chunk
  /// The sums of f4 are of scaled numbers: those of a stage are one.
  static constexpr bool kScalesNumbers = kScheme == WeightScheme::f4;
  static constexpr int kSummedUnits = kScalesNumbers ? 1 : kUnits;  ///< of a chunk
  static constexpr int kSummedSteps = Form::kSteps / kSummedUnits;
  /// Blocks whose sums are requested at once.
  static constexpr int kBlocksAtOnce = kColumns <= 1 ? 4 : kColumns <= 2 ? 2 : 1;
  /// Groups of 8 columns that are written at once.
  static constexpr int kColumnsAtOnce = kColumns <= 4 ? kColumns : 4;

 public:
  __device__ SchemeMultiplier(const SchemeStreamParams& p, const SchemeRing& memory)
      : p_(p),
        memory_(memory),
        thread_(static_cast<int>(threadIdx.x) % Form::kSetThreads),
        set_(static_cast<int>(threadIdx.x) / Form::kSetThreads),
        part_(thread_ / 128) {}

  __device__ void run() {
    const auto block = static_cast<int>(blockIdx.x);
    StreamWalk walk(p_.schedule, block);
    StreamSegment segment;
    n_ = p_.schedule.begin(block + 1) - p_.schedule.begin(block);
    next_ = set_;
    for (int i = 0; i < set_; ++i) place_.advance(p_.n_stages);
    if (next_ < n_) fetch();
    int end = 0;  // of the segment, in stages of the run
    while (walk.next(segment)) {
      end += segment.end - segment.begin;
      if constexpr (!Form::kRunsAhead)
        multiply(end);
      else if (p_.scale_bytes == 0)
        multiply_ahead<false>(end);
      else if (2 << p_.unit_shift > kUnits * Form::kChunks)
        multiply_ahead<true>(end);
      else
        multiply(end);
      if constexpr (Form::kSets > 1) join();
      if (set_ != 0) continue;
      if (segment.begin > 0) {
        give_sums();
      } else {
        if (segment.end < p_.schedule.k_stages) add_other_sums((segment.tile + 1) * p_.schedule.k_stages);
        const PassOfTile pass = pass_of_tile<Form>(p_, segment.tile);
        first_row_ = pass.pass * kWidth;
        store((static_cast<std::int64_t>(pass.tile) * Form::kParts + part_) * kSchemeTileRows);
      }
    }
  }

 private:
  /// Waits for the set's next stage and loads what this thread has of its values.
  __device__ __forceinline__ void fetch() {
    barrier_wait(memory_.ring.has_weight + 8 * place_.slot, place_.parity);
    const std::uint32_t values = memory_.ring.stages + place_.slot * Form::kValueBytes + part_ * Form::kChunks * kPieceBytes;
    load_chunks<kScheme>(values, thread_ % 128, raw_);
    fetched_groups_ = memory_.groups + place_.slot * memory_.group_bytes;
  }
  /// Of this thread's first row in the scales and zeros of the stage, for the group of a unit of columns.
  __device__ __forceinline__ int group_row(int unit) const {
    return (part_ * p_.groups_of_stage + (unit >> p_.unit_shift)) * kSchemeTileRows + stream_row(thread_ % 128, 0);
  }
  /// The fragments of a chunk whose stage has its scales and zeros at `groups`.
  __device__ __forceinline__ void widen_chunk(int c, std::uint32_t groups, std::uint32_t (&a)[Form::kSteps][4]) {
    std::uint32_t offsets[kUnits][2];
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t zero = kScheme == WeightScheme::i4 ? 8 : 128;  // of f4 a scale
        if (kScheme != WeightScheme::f8 && p_.zero_bytes != 0) {
          const std::uint32_t zeros = groups + Form::kParts * p_.groups_of_stage * kSchemeTileRows * p_.scale_bytes;
          asm volatile("ld.shared.u8 %0, [%1];" : "=r"(zero) : "r"(zeros + group_row(c * kUnits + unit) + half * 8) : "memory");
        }
        if constexpr (kScalesNumbers)
          offsets[unit][half] = zero * p_.weight.f4.pair_factor + p_.weight.f4.pair_base;
        else
          offsets[unit][half] = offset_of<T, kScheme>(zero);
      }
    widen<T, kScheme, PieceOrder::wgmma>(raw_[c], offsets, a);
    // Widened here, while matmuls run, and not after the wait for them.
#pragma unroll
    for (int step = 0; step < Form::kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[step][i])::"memory");
  }
  /// The scales of this thread's two rows.
  __device__ __forceinline__ void load_scales(int unit, std::uint32_t groups, float (&scales)[2]) const {
    const std::uint32_t at = groups + group_row(unit) * p_.scale_bytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (p_.scale_bytes == 4) {
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scales[half]) : "r"(at + half * 32) : "memory");
      } else {
        std::uint16_t bits;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(at + half * 16) : "memory");
        scales[half] = p_.weight.scale_dtype == DType::bf16 ? __uint_as_float(static_cast<std::uint32_t>(bits) << 16)
                                                            : __half2float(__ushort_as_half(bits));
      }
    }
  }

  /// The set's sums over its stages before stage `end` of the run.
  __device__ __forceinline__ void multiply(int end) {
    float sums[kColumns][4];  // of a group
#pragma unroll
    for (int g = 0; g < kColumns; ++g)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[g][i] = sums[g][i] = 0;
    const int last_unit = kScalesNumbers ? Form::kChunks - 1 : (1 << p_.unit_shift) - 1;  // of a group
    std::uint32_t a[2][Form::kSteps][4];
    if (next_ < end) widen_chunk(0, fetched_groups_, a[0]);
#pragma unroll 1
    while (next_ < end) {
      const int slot = __shfl_sync(0xffffffffu, place_.slot, 0);
      const std::uint32_t x = memory_.x + slot * Form::kXBytes;
      const std::uint32_t groups = fetched_groups_;
      barrier_wait(memory_.ring.has_x + 8 * slot, place_.parity);
#pragma unroll
      for (int i = 0; i < Form::kSets; ++i) place_.advance(p_.n_stages);
      next_ += Form::kSets;
#pragma unroll
      for (int c = 0; c < Form::kChunks; ++c) {
#pragma unroll
        for (int part = 0; part < kSummedUnits; ++part) {
          const int unit = c * kSummedUnits + part;
          const int begins = (unit & last_unit) == 0 ? 0 : 1;
          own_accumulators(sums);
          wgmma_fence();
#pragma unroll
          for (int i = 0; i < kSummedSteps; ++i) {
            const int step = part * kSummedSteps + i;
            const int at = c * Form::kSteps + step;  // of the stage
            const std::uint64_t b = wgmma_descriptor(x + at / 4 * (kWidth * kBoxK * 2), 16, 1024) + at % 4 * 2;
            wgmma_registers<T>(sums, a[c % 2][step], b, i == 0 ? begins : 1);
          }
          wgmma_commit();
          if (part + 1 == kSummedUnits) {
            if (c + 1 < Form::kChunks) {
              widen_chunk(c + 1, groups, a[(c + 1) % 2]);
            } else if (next_ < n_) {
              fetch();
              widen_chunk(0, fetched_groups_, a[0]);
            }
          }
          const bool is_scaled = (unit & last_unit) == last_unit;
          float scales[2] = {1, 1};
          if (is_scaled && p_.scale_bytes != 0) load_scales(unit, groups, scales);
          wgmma_wait<0>();
          own_accumulators(sums);
          if (is_scaled)
#pragma unroll
            for (int g = 0; g < kColumns; ++g)
#pragma unroll
              for (int i = 0; i < 4; ++i) sums_[g][i] += scales[i >> 1] * sums[g][i];
        }
      }
      if (thread_ % 32 == 0) barrier_arrive(memory_.ring.empty + 8 * slot);
    }
  }

  /// As multiply, for weights without groups, or with those of whole stages (`kScaled`). The matrix units have the next
  /// chunk before they are done with one: only the sums of a stage that are scaled are waited for.
  template <bool kScaled>
  __device__ __forceinline__ void multiply_ahead(int end) {
    float own[kScaled ? kColumns : 1][4];  // of a stage
    float(&sums)[kColumns][4] = sums_of<kScaled>(own);
#pragma unroll
    for (int g = 0; g < kColumns; ++g)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[g][i] = 0;
    std::uint32_t a[2][Form::kSteps][4];
    if (next_ < end) widen_chunk(0, fetched_groups_, a[0]);
    int before = -1;  // the slot whose matmuls may still run
#pragma unroll 1
    while (next_ < end) {
      const int slot = __shfl_sync(0xffffffffu, place_.slot, 0);
      const std::uint32_t x = memory_.x + slot * Form::kXBytes;
      const std::uint32_t groups = fetched_groups_;
      barrier_wait(memory_.ring.has_x + 8 * slot, place_.parity);
      place_.advance(p_.n_stages);
      ++next_;
#pragma unroll
      for (int c = 0; c < Form::kChunks; ++c) {
        own_accumulators(sums);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < Form::kSteps; ++step) {
          const int at = c * Form::kSteps + step;  // of the stage
          const std::uint64_t b = wgmma_descriptor(x + at / 4 * (kWidth * kBoxK * 2), 16, 1024) + at % 4 * 2;
          wgmma_registers<T>(sums, a[c % 2][step], b, kScaled && at == 0 ? 0 : 1);
        }
        wgmma_commit();
        wgmma_wait<1>();  // the chunk before, whose registers come next
        if (c == 0) release(before);
        if (c + 1 < Form::kChunks)
          widen_chunk(c + 1, groups, a[(c + 1) % 2]);
        else if (next_ < n_)
          widen_chunk(0, fetched_groups_, a[0]);
        if (c + 2 == Form::kChunks && next_ < n_) fetch();
      }
      before = slot;
      if constexpr (kScaled) {
        float scales[2];
        load_scales(kUnits * Form::kChunks - 1, groups, scales);
        wgmma_wait<0>();
        own_accumulators(sums);
#pragma unroll
        for (int g = 0; g < kColumns; ++g)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums_[g][i] += scales[i >> 1] * sums[g][i];
      }
    }
    wgmma_wait<0>();
    own_accumulators(sums);
    release(before);
  }
  /// This warp has read the stage.
  __device__ __forceinline__ void release(int slot) {
    if (slot >= 0 && thread_ % 32 == 0) barrier_arrive(memory_.ring.empty + 8 * slot);
  }
  template <bool kOwn, int n>
  __device__ __forceinline__ float (&sums_of(float (&own)[n][4]))[kColumns][4] {
    if constexpr (kOwn)
      return own;
    else
      return sums_;
  }

  /// Adds the sums of the other sets, in their order, to those of the first.
  __device__ __forceinline__ void join() {
    const auto at = [&](int set, int g) {
      return memory_.join + (((set - 1) * kColumns + g) * Form::kSetThreads + thread_) * 16;
    };
    if (set_ != 0) {
      if (has_given_) named_barrier(2, Form::kMultipliers);
      has_given_ = true;
#pragma unroll
      for (int g = 0; g < kColumns; ++g)
        store_shared(at(set_, g), {__float_as_uint(sums_[g][0]), __float_as_uint(sums_[g][1]), __float_as_uint(sums_[g][2]),
                                   __float_as_uint(sums_[g][3])});
      arrive_named(1, Form::kMultipliers);
      return;
    }
    named_barrier(1, Form::kMultipliers);
#pragma unroll
    for (int set = 1; set < Form::kSets; ++set)
#pragma unroll
      for (int g = 0; g < kColumns; ++g) add_partial(sums_[g], load_shared(at(set, g)));
    arrive_named(2, Form::kMultipliers);
  }

  __device__ __forceinline__ uint4* partials_of(int block) {
    return p_.partials + static_cast<std::int64_t>(block) * kColumns * Form::kSetThreads + thread_;
  }
  __device__ __forceinline__ void give_sums() {
    uint4* const to = partials_of(static_cast<int>(blockIdx.x));
#pragma unroll
    for (int g = 0; g < kColumns; ++g) store_partial(to + g * Form::kSetThreads, as_partial(sums_[g]));
  }
  /// Adds the sums of the blocks after this one, whose runs begin before stage `tile_end`, in the blocks' order. All sums
  /// of a block are requested at once, by little code: instructions that run once take longer to fetch than to run.
  __device__ __forceinline__ void add_other_sums(int tile_end) {
    const auto gives = [&](int block) { return block < p_.schedule.n_blocks && p_.schedule.begin(block) < tile_end; };
#pragma unroll 1
    for (int block = static_cast<int>(blockIdx.x) + 1; gives(block); block += kBlocksAtOnce) {
      uint4 given[kBlocksAtOnce][kColumns];
      const auto from = [&](int i, int g) { return partials_of(block + i) + g * Form::kSetThreads; };
      bool is_one[kBlocksAtOnce];
#pragma unroll
      for (int i = 0; i < kBlocksAtOnce; ++i) is_one[i] = i == 0 || gives(block + i);
      bool has_all;
#pragma unroll 1
      do {
        has_all = true;
#pragma unroll
        for (int i = 0; i < kBlocksAtOnce; ++i)
          if (is_one[i]) {
#pragma unroll
            for (int g = 0; g < kColumns; ++g) given[i][g] = load_partial(from(i, g));
#pragma unroll
            for (int g = 0; g < kColumns; ++g) has_all = is_written(given[i][g]) && has_all;
          }
      } while (!has_all);
#pragma unroll
      for (int i = 0; i < kBlocksAtOnce; ++i)
        if (is_one[i])
#pragma unroll
          for (int g = 0; g < kColumns; ++g) {
            reset_partial(from(i, g));
            add_partial(sums_[g], given[i][g]);
          }
    }
  }

  /// Of the thread's two rows of the weight.
  struct Finish {
    float scale[2] = {1, 1};
    float bias[2] = {0, 0};
  };
  __device__ __forceinline__ Finish finish_of(std::int64_t first) const {
    Finish finish;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t column = first + stream_row(thread_ % 128, 2 * half);
      if (column >= p_.weight.n) continue;
      if (p_.weight.row_scales != nullptr) finish.scale[half] = __ldg(p_.weight.row_scales + column);
      if (p_.bias != nullptr)
        finish.bias[half] =
            p_.out_is_f32 ? static_cast<const float*>(p_.bias)[column] : to_f32(static_cast<const T*>(p_.bias)[column]);
    }
    return finish;
  }
  /// Writes the tile's columns of out, `first` and the 63 after it. A loop, because unrolled code would run once.
  __device__ __forceinline__ void store(std::int64_t first) {
    const Finish finish = finish_of(first);
#pragma unroll 1
    for (int done = 0; done < kColumns; done += kColumnsAtOnce) {
#pragma unroll
      for (int g = 0; g < kColumnsAtOnce; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[g][i] = sums_[g][i] * finish.scale[i >> 1] + finish.bias[i >> 1];
      if (p_.out_is_f32)
        store_f32(first, done);
      else
        store_rounded(first, done);
#pragma unroll
      for (int g = 0; g + kColumnsAtOnce < kColumns; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[g][i] = sums_[g + kColumnsAtOnce][i];
    }
  }
  /// The first kColumnsAtOnce of sums_, which are those from group `done` on.
  __device__ __forceinline__ void store_f32(std::int64_t first, int done) const {
    const std::int64_t n = p_.weight.n;
    auto* const out = static_cast<float*>(p_.out);
#pragma unroll
    for (int g = 0; g < kColumnsAtOnce; ++g)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first_row_ + stream_column(thread_ % 128, done + g, i);
        const std::int64_t column = first + stream_row(thread_ % 128, i);
        if (row < p_.n_rows && column < n) out[row * n + column] = sums_[g][i];
      }
  }
  __device__ __forceinline__ void store_rounded(std::int64_t first, int done) const {
    const std::int64_t n = p_.weight.n;
    auto* const out = static_cast<T*>(p_.out);
    const int thread = thread_ % 128;
#pragma unroll
    for (int g = 0; g < kColumnsAtOnce; ++g) {
      const int row = first_row_ + stream_transposed_column(thread, done + g);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t own = pack_pair<T>(sums_[g][2 * half], sums_[g][2 * half + 1]);
        __syncwarp();  // lanes may come from different waits
        const std::uint32_t pair = transpose_8x8(own);
        const std::int64_t column = first + stream_transposed_row(thread, half);
        if (row >= p_.n_rows || column >= n) continue;
        T* const to = out + row * n + column;
        if (p_.stores_pairs) {
          *reinterpret_cast<std::uint32_t*>(to) = pair;
        } else {
          reinterpret_cast<std::uint16_t*>(to)[0] = static_cast<std::uint16_t>(pair);
          if (column + 1 < n) reinterpret_cast<std::uint16_t*>(to)[1] = static_cast<std::uint16_t>(pair >> 16);
        }
      }
    }
  }

  const SchemeStreamParams& p_;
  const SchemeRing& memory_;
  const int thread_;  ///< of the set
  const int set_;
  const int part_;     ///< the warpgroup of the set, and its tile of the stage
  int n_ = 0;          ///< stages of the run
  int next_ = 0;       ///< the set's next one
  int first_row_ = 0;  ///< of x, whose sums are written
  bool has_given_ = false;
  RingPlace place_;
  std::uint32_t fetched_groups_ = 0;  ///< of the stage in raw_
  uint4 raw_[Form::kChunks];
  float sums_[kColumns][4];
};

#endif  // BATON_SM90A

}  // namespace baton::cuda
