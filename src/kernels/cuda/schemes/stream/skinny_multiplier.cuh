/// The multiplying warps of skinny_kernel.cuh, by mma.sync. A warp needs no other one until the end of its
/// tile, so warps widen, multiply and wait at different times.
///
/// The f32 sums of a group of columns are scaled once. So a sum depends on the weight's shape, the device and the kernel,
/// not on the other rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/partial_sums.cuh"
#include "kernels/cuda/schemes/stream/ring.cuh"
#include "kernels/cuda/schemes/stream/skinny_form.cuh"
#include "kernels/cuda/schemes/widen.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

template <WeightScheme kScheme, class T, int kScaledSteps>
class SkinnyMultiplier {
  static constexpr int kWidth = kSkinnyWidth;
  using Form = SkinnyForm<kScheme>;
  static constexpr int kRowTiles = kSchemeTileRows / 16;
  static constexpr int kUnits = Form::kSteps / kScaledSteps;  ///< of a chunk
  /// A tile's sums, four at a time: of one row of x and neighbouring rows of the weight. A thread has one such quad or none.
  static constexpr int kQuadsOfRow = kSchemeTileRows / 4;
  static constexpr int kQuads = kWidth * kQuadsOfRow;
  static_assert(kQuads <= Form::kMultipliers && kQuads % 32 == 0);
  static constexpr int kBlocksAtOnce = 4;  ///< whose sums are requested together

 public:
  __device__ SkinnyMultiplier(const SkinnyParams& p, const SchemeRing& memory)
      : p_(p),
        memory_(memory),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32),
        set_(warp_ / Form::kPairs) {}

  __device__ void run() {
    const auto block = static_cast<int>(blockIdx.x);
    StreamWalk walk(p_.schedule, block);
    StreamSegment segment;
    next_ = set_;
    k_ = (p_.schedule.begin(block) + set_) % p_.schedule.k_stages;
    for (int i = 0; i < set_; ++i) place_.advance(p_.n_stages);
    int end = 0;  // of the segment, in stages of the run
    while (walk.next(segment)) {
      end += segment.end - segment.begin;
      const bool stores = segment.begin == 0;
      Finish finish;
      if (stores) finish = finish_of(segment.tile);  // read from memory while the tile is multiplied
      multiply(end);
      join();
      if (thread_ >= kQuads) continue;
      if (!stores) {
        store_partial(partials_of(block), as_partial(quad_));
      } else {
        if (segment.end < p_.schedule.k_stages) add_other_sums((segment.tile + 1) * p_.schedule.k_stages);
        store(segment.tile, finish);
      }
    }
  }

 private:
  /// This warp's sums over its stages before stage `end` of the run.
  __device__ __forceinline__ void multiply(int end) {
    float sums[kRowTiles][4];  // of a group
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[t][i] = sums[t][i] = 0;
    const int pair = warp_ % Form::kPairs;
    const std::uint32_t own_values = 2 * pair * kPieceBytes;
    const std::uint32_t own_x = lane_ % 8 * 128 + ((lane_ / 8) ^ (lane_ % 8)) * 16;  // in a box, which is swizzled
    const int last_unit = min(1 << p_.unit_shift, 2 * kUnits) - 1;                   // of a group, or of the pair
#pragma unroll 1
    while (next_ < end) {
      const int slot = place_.slot;
      barrier_wait(memory_.ring.has_weight + 8 * slot, place_.parity);
      const std::uint32_t values = memory_.ring.stages + slot * Form::kValueBytes + own_values;
      uint4 raw[2][kRowTiles];
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        uint4 of_tile[2];
        load_chunks<kScheme>(values, t * 32 + lane_, of_tile);
        raw[0][t] = of_tile[0];
        raw[1][t] = of_tile[1];
      }
      const int x_slot = p_.x_stays ? k_ : slot;
      barrier_wait(memory_.ring.has_x + 8 * x_slot, p_.x_stays ? 0 : place_.parity);
      const std::uint32_t x = as_of_now(memory_.x + x_slot * Form::kXBytes + own_x);
      const std::uint32_t groups = memory_.groups + slot * memory_.group_bytes;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int chunk = 2 * pair + c;
        std::uint32_t offsets[kRowTiles][kUnits][2];
        load_offsets(groups, chunk * kUnits, offsets);
#pragma unroll
        for (int step = 0; step < Form::kSteps; step += 2) {
          const int unit = (chunk * Form::kSteps + step + 1) / kScaledSteps;  // of the stage
          const bool is_scaled = (step + 2) % kScaledSteps == 0 && p_.scale_bytes != 0 && (unit & last_unit) == last_unit;
          std::uint32_t scales[kRowTiles][2];
          if (is_scaled) load_scales(groups, unit, scales);
          const int box = (chunk * Form::kSteps + step) / 4;
          const int half = (c * Form::kSteps + step) / 2 % 2;  // of the box
          std::uint32_t b[4];                                  // of two steps
          load_matrices(b, (x ^ (half * 64)) + box * (kWidth * kBoxK * 2));
#pragma unroll
          for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int t = 0; t < kRowTiles; ++t) {
              std::uint32_t a[Form::kSteps][4];  // of which one step is used
              widen<T, kScheme, PieceOrder::wgmma>(raw[c][t], offsets[t], a);
              multiply_16x8x16<T>(sums[t], a[step + j], b[2 * j], b[2 * j + 1]);
            }
          if (is_scaled) {
            widen_scales(scales);
#pragma unroll
            for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                sums_[t][i] += __uint_as_float(scales[t][i >> 1]) * sums[t][i];
                sums[t][i] = 0;
              }
          }
        }
      }
      own_accumulators(sums);
      __syncwarp();
      if (lane_ == 0) barrier_arrive(memory_.ring.empty + 8 * slot);
      advance();
    }
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[t][i] += sums[t][i];  // those of weights without groups
  }
  /// To the set's next stage.
  __device__ __forceinline__ void advance() {
#pragma unroll
    for (int i = 0; i < Form::kSets; ++i) {
      place_.advance(p_.n_stages);
      if (++k_ == p_.schedule.k_stages) k_ = 0;
    }
    next_ += Form::kSets;
  }
  /// Of this thread's first row of a row tile in the scales and zeros of the stage, for the group of a unit of columns.
  __device__ __forceinline__ int group_row(int unit, int row_tile) const {
    return (unit >> p_.unit_shift) * kSchemeTileRows + row_tile * 16 + lane_ / 4;
  }
  /// What widen subtracts in the chunk whose first unit is `unit`.
  __device__ __forceinline__ void load_offsets(std::uint32_t groups, int unit,
                                               std::uint32_t (&offsets)[kRowTiles][kUnits][2]) const {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int part = 0; part < kUnits; ++part)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          offsets[t][part][half] = offset_of<T, kScheme>(kScheme == WeightScheme::i4 ? 8 : 128);
    if (kScheme == WeightScheme::f8 || p_.zero_bytes == 0) return;
    const std::uint32_t zeros = groups + p_.groups_of_stage * kSchemeTileRows * p_.scale_bytes;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int part = 0; part < kUnits; ++part)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          offsets[t][part][half] = offset_of<T, kScheme>(load_byte(zeros + group_row(unit + part, t) + half * 8));
  }
  /// The scales of this thread's rows, in the bits of their dtype.
  __device__ __forceinline__ void load_scales(std::uint32_t groups, int unit, std::uint32_t (&scales)[kRowTiles][2]) const {
    if (p_.scale_bytes == 4) {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) scales[t][half] = load_word(groups + (group_row(unit, t) + half * 8) * 4);
    } else {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) scales[t][half] = load_half_word(groups + (group_row(unit, t) + half * 8) * 2);
    }
  }
  /// To f32.
  __device__ __forceinline__ void widen_scales(std::uint32_t (&scales)[kRowTiles][2]) const {
    if (p_.weight.scale_dtype == DType::bf16) {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
        for (std::uint32_t& scale : scales[t]) scale <<= 16;
    } else if (p_.weight.scale_dtype == DType::f16) {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
        for (std::uint32_t& scale : scales[t])
          scale = __float_as_uint(__half2float(__ushort_as_half(static_cast<std::uint16_t>(scale))));
    }
  }

  /// Adds the sums of all warps, in their order, to quad_.
  __device__ __forceinline__ void join() {
    if (has_joined_) named_barrier(2, Form::kMultipliers);  // the sums of the tile before have been read
    has_joined_ = true;
    constexpr int kWarpBytes = kWidth * Form::kJoinStride * 4;
    const std::uint32_t own = memory_.join + warp_ * kWarpBytes + (lane_ % 4 * 2 * Form::kJoinStride + lane_ / 4) * 4;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(own + (i % 2 * Form::kJoinStride + t * 16 + i / 2 * 8) * 4),
                     "f"(sums_[t][i])
                     : "memory");
    named_barrier(1, Form::kMultipliers);
    if (thread_ >= kQuads) return;
    const std::uint32_t at = memory_.join + (row() * Form::kJoinStride + thread_ % kQuadsOfRow * 4) * 4;
    uint4 given[Form::kWarps];
#pragma unroll
    for (int w = 0; w < Form::kWarps; ++w) given[w] = load_shared(at + w * kWarpBytes);
#pragma unroll
    for (float& sum : quad_) sum = 0;
#pragma unroll
    for (int w = 0; w < Form::kWarps; ++w) add_partial(quad_, given[w]);
  }
  /// Of x, the quad's.
  __device__ __forceinline__ int row() const { return thread_ / kQuadsOfRow; }

  __device__ __forceinline__ uint4* partials_of(int block) const {
    return p_.partials + static_cast<std::int64_t>(block) * kQuads + thread_;
  }
  /// Adds the sums of the blocks after this one, whose runs begin before stage `tile_end`, in the blocks' order.
  __device__ __forceinline__ void add_other_sums(int tile_end) {
    const auto gives = [&](int block) { return block < p_.schedule.n_blocks && p_.schedule.begin(block) < tile_end; };
#pragma unroll 1
    for (int block = static_cast<int>(blockIdx.x) + 1; gives(block); block += kBlocksAtOnce) {
      uint4 given[kBlocksAtOnce];
      bool is_one[kBlocksAtOnce];
#pragma unroll
      for (int i = 0; i < kBlocksAtOnce; ++i) is_one[i] = i == 0 || gives(block + i);
      bool has_all;
#pragma unroll 1
      do {
        has_all = true;
#pragma unroll
        for (int i = 0; i < kBlocksAtOnce; ++i)
          if (is_one[i]) given[i] = load_partial(partials_of(block + i));
#pragma unroll
        for (int i = 0; i < kBlocksAtOnce; ++i) has_all = has_all && (!is_one[i] || is_written(given[i]));
      } while (!has_all);
#pragma unroll
      for (int i = 0; i < kBlocksAtOnce; ++i)
        if (is_one[i]) {
          reset_partial(partials_of(block + i));
          add_partial(quad_, given[i]);
        }
    }
  }

  /// Of the quad's four rows of the weight.
  struct Finish {
    float scale[4] = {1, 1, 1, 1};
    float bias[4] = {0, 0, 0, 0};
  };
  __device__ __forceinline__ std::int64_t first_column(int tile) const {
    return static_cast<std::int64_t>(tile) * kSchemeTileRows + thread_ % kQuadsOfRow * 4;
  }
  __device__ __forceinline__ Finish finish_of(int tile) const {
    Finish finish;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t column = first_column(tile) + i;
      if (column >= p_.weight.n) continue;
      if (p_.weight.row_scales != nullptr) finish.scale[i] = __ldg(p_.weight.row_scales + column);
      if (p_.bias != nullptr)
        finish.bias[i] =
            p_.out_is_f32 ? static_cast<const float*>(p_.bias)[column] : to_f32(static_cast<const T*>(p_.bias)[column]);
    }
    return finish;
  }
  __device__ __forceinline__ void store(int tile, const Finish& finish) const {
    const std::int64_t n = p_.weight.n;
    const std::int64_t column = first_column(tile);
    if (row() >= p_.n_rows) return;
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = quad_[i] * finish.scale[i] + finish.bias[i];
    if (p_.out_is_f32) {
      float* const to = static_cast<float*>(p_.out) + row() * n + column;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (column + i < n) to[i] = sums[i];
      return;
    }
    T* const to = static_cast<T*>(p_.out) + row() * n + column;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const std::uint32_t pair = pack_pair<T>(sums[i], sums[i + 1]);
      if (p_.stores_pairs) {
        if (column + i < n) *reinterpret_cast<std::uint32_t*>(to + i) = pair;
      } else {
        if (column + i < n) reinterpret_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(pair);
        if (column + i + 1 < n) reinterpret_cast<std::uint16_t*>(to)[i + 1] = static_cast<std::uint16_t>(pair >> 16);
      }
    }
  }

  const SkinnyParams& p_;
  const SchemeRing& memory_;
  const int thread_;
  const int lane_;
  const int warp_;
  const int set_;
  int next_ = 0;  ///< the set's next stage of the run
  int k_ = 0;     ///< and which one of its tile it is
  bool has_joined_ = false;
  RingPlace place_;
  float sums_[kRowTiles][4];
  float quad_[4];
};

}  // namespace baton::cuda

#endif  // BATON_SM90A
