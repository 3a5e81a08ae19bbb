/// The multiplying warpgroups of kernel.cuh, and how a block's threads share work and memory.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/wgmma_wide.cuh"
#include "kernels/cuda/gemm/partial_sums.cuh"
#include "kernels/cuda/gemm/stream_layout.h"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/schemes/scheme_wide.h"
#include "kernels/cuda/schemes/wide/instructions.cuh"
#include "kernels/cuda/schemes/widen.cuh"

namespace baton::cuda {

inline constexpr int kLeastWideStages = 4;
inline constexpr int kMostWideStages = 8;
inline constexpr int kWideBarrierBytes = 3 * kMostWideStages * 8;

/// Two warpgroups have 64 rows of the weight each and share a stage's x.
template <WeightScheme kScheme, int kWidth>
struct WideForm {
  static constexpr int kParts = 2;
  static constexpr int kMultipliers = 128 * kParts;
  static constexpr int kThreads = kMultipliers + 128;
  static constexpr int kChunks = kWideStageK / chunk_columns(kScheme);  ///< of a stage
  static constexpr int kXBytes = kWidth * kWideStageK * 2;              ///< of a stage
  static constexpr int kPartBytes = kChunks * kPieceBytes;
  static constexpr int kValueBytes = kParts * kPartBytes;
  static constexpr int kColumns = kWidth / 8;
  static constexpr int kColumnsAtOnce = kColumns % 8 == 0 ? 8 : 4;  ///< groups of 8 columns that are written at once
  static constexpr int kSumBytes = kColumns * kMultipliers * 16;    ///< of a block
  static constexpr int kWarpBytes = kColumnsAtOnce * 8 * 16 * 2;    ///< of a warp's rounded sums
  static constexpr int kStoreBytes = kMultipliers / 32 * kWarpBytes;
};

/// Scales and zeros of a stage.
template <class Form>
__host__ __device__ inline int wide_group_bytes(const SchemeWideParams& p) {
  return Form::kParts * p.groups_of_stage * kSchemeTileRows * (p.scale_bytes + p.zero_bytes);
}

/// How the scales of groups multiply weights: there are none, they are of x's type, or of another float type.
enum class WideScaling { none, own, other };

#ifdef BATON_SM90A

/// Where a block's ring lies in shared memory: x, values, scales and zeros of the stages, then rounded sums.
struct WideRing {
  Ring ring;  ///< stages: values
  std::uint32_t x;
  std::uint32_t groups;
  std::uint32_t store;
  int group_bytes;
};

/// This block's place in the grid.
struct WidePlace {
  int cluster;
  int rank;  ///< in the cluster
};

template <WeightScheme kScheme, class T, int kWidth, WideScaling kScaling>
class WideMultiplier {
  using Form = WideForm<kScheme, kWidth>;
  static constexpr int kColumns = Form::kColumns;
  static constexpr int kHalfSteps = 2;  ///< of half a stage, which has one group at most
  /// Half a stage or a whole one is widened at once; 256 columns of sums leave registers for half a stage only.
  static constexpr bool kHalves = kWidth > 192;
  static constexpr int kSteps = kHalves ? kHalfSteps : 2 * kHalfSteps;
  static constexpr DType kOwnType = std::is_same_v<T, __half> ? DType::f16 : DType::bf16;

 public:
  __device__ WideMultiplier(const SchemeWideParams& p, const WideRing& memory, const WidePlace& at)
      : p_(p),
        memory_(memory),
        at_(at),
        part_(static_cast<int>(threadIdx.x / 128)),
        thread_(static_cast<int>(threadIdx.x % 128)),
        group_row_(part_ * p.groups_of_stage * kSchemeTileRows + fragment_row(thread_, 0)),
        second_group_((p.groups_of_stage - 1) * kSchemeTileRows) {}

  __device__ void run() {
    const WideStages stages = wide_stages(p_.k_stages, at_.rank, p_.plan.n_blocks);
    const int n = stages.end - stages.begin;
    n_left_ = ((p_.plan.n_tiles - at_.cluster - 1) / p_.plan.n_clusters + 1) * n;
    fetch();
    convert(0, a_[0]);
#pragma unroll 1
    for (int i = at_.cluster; i < p_.plan.n_tiles; i += p_.plan.n_clusters) {
      multiply(n);
      const WideGemmTile tile = wide_tile(i, p_.n_row_tiles, p_.n_passes);
      part_ = as_unknown(part_);
      thread_ = as_unknown(thread_);
      const std::int64_t column = (static_cast<std::int64_t>(tile.weight) * Form::kParts + part_) * kSchemeTileRows;
      if (p_.plan.n_blocks == 1)
        store(tile.pass * kWidth, column);
      else
        store_share(tile.pass * kWidth, column);
    }
    if (p_.plan.n_blocks > 1) cluster_barrier_without_memory();  // no other block needs this one's shared memory
  }

 private:
  /// Waits for the next stage's weight and loads what this thread has of it.
  __device__ __forceinline__ void fetch() {
    barrier_wait(memory_.ring.has_weight + 8 * place_.slot, place_.parity);
    const std::uint32_t values = memory_.ring.stages + place_.slot * Form::kValueBytes + part_ * Form::kPartBytes;
    load_chunks<kScheme>(values, thread_, raw_);
    groups_ = memory_.groups + place_.slot * memory_.group_bytes;
    fetch_group(0);
    if constexpr (!kHalves) fetch_group(1);
  }
  __device__ __forceinline__ int scale_bytes() const { return kScaling == WideScaling::own ? 2 : p_.scale_bytes; }
  /// The scales and zeros of this thread's two rows for half a stage.
  __device__ __forceinline__ void fetch_group(int half) {
    if constexpr (kScheme == WeightScheme::f8 && kScaling == WideScaling::none) return;
    std::uint32_t(&scales)[2] = scales_[kHalves ? 0 : half];
    std::uint32_t(&zeros)[2] = zeros_[kHalves ? 0 : half];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = group_row_ + half * second_group_ + 8 * i;
      if constexpr (kScaling != WideScaling::none) scales[i] = load_scale(groups_ + row * scale_bytes());
      if (kScheme != WeightScheme::f8 && p_.zero_bytes != 0)
        asm volatile("ld.shared.u8 %0, [%1];"
                     : "=r"(zeros[i])
                     : "r"(groups_ + Form::kParts * p_.groups_of_stage * kSchemeTileRows * scale_bytes() + row)
                     : "memory");
    }
  }
  /// A pair of x's type, or the bits of an f32.
  __device__ __forceinline__ std::uint32_t load_scale(std::uint32_t at) const {
    if (kScaling == WideScaling::other && p_.scale_bytes == 4) {
      std::uint32_t bits;
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(bits) : "r"(at) : "memory");
      return bits;
    }
    std::uint16_t bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(at) : "memory");
    if constexpr (kScaling == WideScaling::own) return bits * 0x10001u;
    if (p_.weight.scale_dtype == DType::bf16) return static_cast<std::uint32_t>(bits) << 16;
    return __float_as_uint(__half2float(__ushort_as_half(bits)));
  }
  /// The scaled fragments of the stage that was fetched, or of a half of it.
  __device__ __forceinline__ void convert(int unit, std::uint32_t (&a)[kSteps][4]) {
#pragma unroll
    for (int i = 0; i < kSteps / kHalfSteps; ++i) {
      const int half = unit + i;
      const std::uint32_t(&zeros)[2] = zeros_[kHalves ? 0 : half];
      const std::uint32_t(&scales)[2] = scales_[kHalves ? 0 : half];
      const std::uint32_t offsets[1][2] = {{offset_of<T, kScheme>(zeros[0]), offset_of<T, kScheme>(zeros[1])}};
      uint4 raw = raw_[half % Form::kChunks];
      if constexpr (Form::kChunks == 1)
        if (half == 1) raw = {raw.z, raw.w, 0, 0};
      std::uint32_t pairs[kHalfSteps][4];
      widen<T, kScheme, PieceOrder::wgmma>(raw, offsets, pairs);
#pragma unroll
      for (int step = 0; step < kHalfSteps; ++step)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          std::uint32_t pair = pairs[step][j];
          if constexpr (kScaling == WideScaling::own) pair = times<T>(pair, scales[j % 2]);
          if constexpr (kScaling == WideScaling::other) pair = times_f32<T>(pair, __uint_as_float(scales[j % 2]));
          a[i * kHalfSteps + step][j] = pair;
        }
    }
    // Here, while matmuls run, and not after a wait for them.
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[step][i])::"memory");
  }

  /// Starts the matmuls of a unit, a stage or a half of it, from a_[kBuffer] and, while they run, makes the next unit's
  /// fragments where those of the unit before were.
  template <int kBuffer>
  __device__ __forceinline__ void multiply_unit(int& slot, int& before) {
    constexpr bool kBegins = !kHalves || kBuffer == 0;  // a stage
    constexpr bool kEnds = !kHalves || kBuffer == 1;
    if constexpr (kBegins) {
      slot = __shfl_sync(0xffffffffu, place_.slot, 0);
      barrier_wait(memory_.ring.has_x + 8 * slot, place_.parity);
    }
    const std::uint64_t x = wgmma_descriptor(memory_.x + slot * Form::kXBytes, 16, 1024) + (kBegins ? 0 : kHalfSteps * 2);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) wgmma_wide<T>(sums_, a_[kBuffer][step], x + step * 2);
    wgmma_commit();
    if (!kEnds && p_.groups_of_stage > 1) fetch_group(1);
    if constexpr (kEnds) {
      place_.advance(p_.n_stages);
      --n_left_;
      if (n_left_ > 0) fetch();
    }
    wgmma_wait<1>();
    if constexpr (kBegins) release(before);
    if constexpr (kEnds) before = slot;
    if (!kEnds || n_left_ > 0) convert(kEnds ? 0 : 1, a_[1 - kBuffer]);
  }
  /// The sums over the next `n` stages, the first of which has its fragments in a_[0].
  __device__ __forceinline__ void multiply(int n) {
#pragma unroll
    for (int g = 0; g < kColumns; ++g)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums_[g][j] = 0;
    own_accumulators(sums_);
    int slot = 0;
    int before = -1;  // the slot whose matmuls may still run
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
      multiply_unit<0>(slot, before);
      if (!kHalves && ++i == n) break;
      multiply_unit<1>(slot, before);
    }
    wgmma_wait<0>();
    own_accumulators(sums_);
    release(before);
    if (!kHalves && n % 2 != 0)
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int j = 0; j < 4; ++j) a_[0][step][j] = a_[1][step][j];
  }
  /// This warp has read the stage.
  __device__ __forceinline__ void release(int slot) {
    if (slot >= 0 && thread_ % 32 == 0) barrier_arrive(memory_.ring.empty + 8 * slot);
  }

  /// What finishes the sums of this thread's two rows of the weight.
  struct Finish {
    float scale[2] = {1, 1};
    float bias[2] = {0, 0};
  };
  __device__ __forceinline__ Finish finish_of(std::int64_t column) const {
    Finish finish;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t at = column + fragment_row(thread_, i);
      if (at >= p_.weight.n) continue;
      if (p_.weight.row_scales != nullptr) finish.scale[i] = __ldg(p_.weight.row_scales + at);
      if (p_.bias != nullptr)
        finish.bias[i] = p_.out_is_f32 ? static_cast<const float*>(p_.bias)[at] : to_f32(static_cast<const T*>(p_.bias)[at]);
    }
    return finish;
  }
  /// Writes the columns of out from `column` on, 64 of them, in rows from `row` on. A loop, because unrolled code runs once.
  __device__ __forceinline__ void store(int row, std::int64_t column) {
    constexpr int kAtOnce = Form::kColumnsAtOnce;
    const Finish finish = finish_of(column);
#pragma unroll 1
    for (int done = 0; done < kColumns; done += kAtOnce) {
      store_some(reinterpret_cast<float(&)[kAtOnce][4]>(sums_), finish, row + done * 8, column);
#pragma unroll
      for (int g = 0; g + kAtOnce < kColumns; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[g][i] = sums_[g + kAtOnce][i];
    }
  }
  /// The same for the rows that this block of a cluster finishes: adds the sums of all blocks in their order, which lie in
  /// the blocks' shared memory where x was. The cluster has no other tile.
  __device__ __forceinline__ void store_share(int row, std::int64_t column) {
    static_assert(Form::kSumBytes <= kLeastWideStages * Form::kXBytes);
    constexpr int kAtOnce = 2;  // groups of 8 columns
    constexpr int kMostBlocks = 4;
    static_assert(std::tuple_size_v<WideClusters> == kMostBlocks + 1);
    const int n_blocks = p_.plan.n_blocks;
    const Finish finish = finish_of(column);
    const std::uint32_t own = memory_.x + (part_ * 128 + thread_) * 16;
    named_barrier(1, Form::kMultipliers);  // all have read x
#pragma unroll
    for (int g = 0; g < kColumns; ++g)
      store_shared(own + g * Form::kMultipliers * 16, {__float_as_uint(sums_[g][0]), __float_as_uint(sums_[g][1]),
                                                       __float_as_uint(sums_[g][2]), __float_as_uint(sums_[g][3])});
    cluster_barrier_with_memory();
    const WideStages share = wide_stages(kColumns / kAtOnce, at_.rank, n_blocks);
#pragma unroll 1
    for (int unit = share.begin; unit < share.end; ++unit) {
      float some[kAtOnce][4] = {};
      uint4 given[kMostBlocks][kAtOnce];
#pragma unroll
      for (int i = 0; i < kMostBlocks; ++i)
#pragma unroll
        for (int g = 0; g < kAtOnce; ++g)
          if (i < n_blocks) given[i][g] = load_of_block(own + (unit * kAtOnce + g) * Form::kMultipliers * 16, i);
#pragma unroll
      for (int i = 0; i < kMostBlocks; ++i)
#pragma unroll
        for (int g = 0; g < kAtOnce; ++g)
          if (i < n_blocks) add_partial(some[g], given[i][g]);
      store_some(some, finish, row + unit * kAtOnce * 8, column);
    }
  }

  template <int n>
  __device__ __forceinline__ void store_some(float (&sums)[n][4], const Finish& finish, int row, std::int64_t column) const {
#pragma unroll
    for (int g = 0; g < n; ++g)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[g][i] = sums[g][i] * finish.scale[i >> 1] + finish.bias[i >> 1];
    if (p_.stores_vectors)
      store_vectors(sums, row, column);
    else
      store_single(sums, row, column);
  }
  /// Rounds the sums. A warp has 16 columns of out: matrices of 8 x 8, transposed in shared memory, where the two halves of
  /// a row change places in every other four rows, so that no bank is used twice.
  template <int n>
  __device__ __forceinline__ void store_vectors(const float (&sums)[n][4], int row, std::int64_t column) const {
    const int lane = thread_ % 32;
    const std::uint32_t own = memory_.store + (part_ * 4 + thread_ / 32) * Form::kWarpBytes;
    __syncwarp();
#pragma unroll
    for (int g = 0; g < n; g += 2) {
      std::uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = pack_pair<T>(sums[g + i / 2][i % 2 * 2], sums[g + i / 2][i % 2 * 2 + 1]);
      const int at = g * 8 + lane / 16 * 8 + lane % 8;
      store_matrices_transposed(own + at * 32 + ((lane / 8 ^ at / 4) & 1) * 16, pairs);
    }
    __syncwarp();
    auto* const out = static_cast<T*>(p_.out);
    const std::int64_t first = column + thread_ / 32 * 16 + lane % 2 * 8;
#pragma unroll
    for (int g = 0; g < n; g += 2) {
      const int at = g * 8 + lane / 2;
      const uint4 values = load_shared(own + at * 32 + ((lane ^ at / 4) & 1) * 16);
      if (row + at < p_.n_rows && first < p_.weight.n)
        store_global(out + static_cast<std::int64_t>(row + at) * p_.weight.n + first, values);
    }
  }
  template <int n>
  __device__ __forceinline__ void store_single(const float (&sums)[n][4], int row, std::int64_t column) const {
#pragma unroll
    for (int g = 0; g < n; ++g)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = row + stream_column(thread_, g, i);
        const std::int64_t to = column + stream_row(thread_, i);
        if (at >= p_.n_rows || to >= p_.weight.n) continue;
        if (p_.out_is_f32)
          static_cast<float*>(p_.out)[at * p_.weight.n + to] = sums[g][i];
        else
          static_cast<T*>(p_.out)[at * p_.weight.n + to] = from_f32<T>(sums[g][i]);
      }
  }

  const SchemeWideParams& p_;
  const WideRing& memory_;
  const WidePlace at_;
  int part_;                ///< the warpgroup, and its tile of the stage
  int thread_;              ///< of the warpgroup
  const int group_row_;     ///< the thread's first row in the scales and zeros of a stage
  const int second_group_;  ///< rows from those of the first half to those of the second
  int n_left_ = 0;          ///< stages of the block
  RingPlace place_;
  static constexpr std::uint32_t kMiddle = kScheme == WeightScheme::i4 ? 8 : 128;
  // Of the halves of the stage in raw_ and of the thread's rows; with kHalves, of the half that is widened next.
  std::uint32_t zeros_[2][2] = {{kMiddle, kMiddle}, {kMiddle, kMiddle}};
  std::uint32_t scales_[2][2];
  std::uint32_t groups_ = 0;  ///< of the stage in raw_
  uint4 raw_[Form::kChunks];
  std::uint32_t a_[2][kSteps][4];
  float sums_[kColumns][4];
};

#endif  // BATON_SM90A

}  // namespace baton::cuda
