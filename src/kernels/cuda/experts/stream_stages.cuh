/// What a stage of a streamed weight is: how it gets to a warp's part of shared memory, and how a warp multiplies it by places.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/experts/grouped_scheme.cuh"

namespace baton::cuda {

constexpr int kStreamRows = kSchemeTileRows;       ///< of the weight, of a unit
constexpr int kStreamColumns = kLaneStageColumns;  ///< of a stage

struct GroupedStreamParams {
  GroupedSchemeParams scheme;  ///< of dense weights only `group` and `out_dtype`
  int n_ring_stages;           ///< of a warp
  int stage_bytes;             ///< in shared memory: values, scales, zeros
  int scale_bytes;             ///< of a stage
  int zero_bytes;
  bool reads_ahead;  ///< the offsets were written before the kernel before this one began
};

#ifdef BATON_SM90A

/// Loads from a stage, which the compiler may reorder: `at` passes through as_of_now.
__device__ __forceinline__ uint4 load_piece(std::uint32_t at) {
  uint4 x;
  asm("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at));
  return x;
}
__device__ __forceinline__ std::uint32_t load_word(std::uint32_t at) {
  std::uint32_t word;
  asm("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(at));
  return word;
}

/// Row of the weight that lane group g has in each 8: rows whose swizzled chunks lie in different banks are neighbours.
__device__ __forceinline__ int dense_row(int group) { return group / 2 + group % 2 * 4; }

/// 64 rows of dense weights by 64 columns: a box of 8 KiB, whose chunks of 16 bytes are swizzled.
template <class T>
struct DenseStage {
  static constexpr WeightScheme kScheme = WeightScheme::dense;
  static constexpr int kValueBytes = kStreamRows * kStreamColumns * 2;

  static __device__ __forceinline__ void copy(const GroupedStreamParams& p, const CUtensorMap* map, int expert, int column,
                                              int stage, std::uint32_t slot, std::uint32_t barrier, std::uint64_t policy) {
    barrier_expect(barrier, kValueBytes);
    copy_box(slot, map, stage * kStreamColumns, expert * p.scheme.group.n + column, barrier, policy);
  }
  /// What a lane has of the stage.
  using Values = uint4[2][4][2];
  static __device__ __forceinline__ void load(const GroupedStreamParams&, std::uint32_t slot, int, int lane, Values& to) {
    const int row = dense_row(lane / 4);
    const std::uint32_t of_row = slot + static_cast<std::uint32_t>(row * kBoxRowBytes);
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) {
      const auto chunk = static_cast<std::uint32_t>(((unit * 4 + lane % 4) ^ row) * 16);
#pragma unroll
      for (int tile = 0; tile < 4; ++tile)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          to[unit][tile][half] = load_piece(of_row + (tile * 16 + half * 8) * kBoxRowBytes + chunk);
    }
  }
  /// Adds the stage: the sums of 16 rows each, in the order of the matrix units.
  static __device__ __forceinline__ void multiply(const GroupedStreamParams&, const Values& values, const uint4 (&x)[2],
                                                  float (&sums)[4][4]) {
#pragma unroll
    for (int unit = 0; unit < 2; ++unit)
#pragma unroll
      for (int tile = 0; tile < 4; ++tile) {
        const uint4& low = values[unit][tile][0];
        const uint4& high = values[unit][tile][1];
        const std::uint32_t first[4] = {low.x, high.x, low.y, high.y};
        const std::uint32_t second[4] = {low.z, high.z, low.w, high.w};
        multiply_16x8x16<T>(sums[tile], first, x[unit].x, x[unit].y);
        multiply_16x8x16<T>(sums[tile], second, x[unit].z, x[unit].w);
      }
  }
  /// Where sums[tile][2 * half + e] belongs.
  static __device__ __forceinline__ int row_of(int lane, int tile, int half) {
    return tile * 16 + half * 8 + dense_row(lane / 4);
  }

 private:
  static constexpr int kBoxRowBytes = 128;
};

/// The same of weights in 8 and 4 bits, in the order of lanes, with the scales and zeros of the stage.
template <class T, WeightScheme kOfWeight>
struct SchemeStage {
  static constexpr WeightScheme kScheme = kOfWeight;
  static constexpr int kPieces = kStagePieces(kScheme);
  static constexpr int kValueBytes = kPieces * kPieceBytes;

  static __device__ __forceinline__ void copy(const GroupedStreamParams& p, const CUtensorMap*, int expert, int column,
                                              int stage, std::uint32_t slot, std::uint32_t barrier, std::uint64_t policy) {
    const SchemeView& weight = p.scheme.weight;
    const std::int64_t tile = static_cast<std::int64_t>(expert) * weight.n_tiles + column / kStreamRows;
    const std::int64_t group = tile * weight.n_groups + ((stage * kStreamColumns) >> weight.group_shift);
    barrier_expect(barrier, kValueBytes + p.scale_bytes + p.zero_bytes);
    copy_bytes(slot, weight.values + (tile * weight.n_chunks + stage * kPieces) * kPieceBytes, kValueBytes, barrier, policy);
    if (p.scale_bytes > 0)
      copy_bytes(slot + kValueBytes, weight.scales + group * (kSchemeTileRows * size_of(weight.scale_dtype)), p.scale_bytes,
                 barrier, policy);
    if (p.zero_bytes > 0)
      copy_bytes(slot + kValueBytes + p.scale_bytes, weight.zeros + group * kSchemeTileRows, p.zero_bytes, barrier, policy);
  }
  /// What a lane has of the stage: of 32 rows each.
  struct Values {
    HalfValues<kScheme> halves[2][2];
    StageGroups groups[2];
  };
  static __device__ __forceinline__ void load(const GroupedStreamParams& p, std::uint32_t slot, int stage, int lane,
                                              Values& to) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      load_groups(p, slot + kValueBytes, stage, block * kWarpRows + lane / 4 * 4, lane, to.groups[block]);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece)
          to.halves[block][half][piece] = load_piece(slot + piece * kPieceBytes + block * 1024 + half * 512 + lane * 16);
    }
  }
  static __device__ __forceinline__ void multiply(const GroupedStreamParams& p, const Values& values, const uint4 (&x)[2],
                                                  float (&sums)[4][4]) {
    const SchemeView& weight = p.scheme.weight;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      StageScales scales;
      scales_of<kScheme>(weight, values.groups[block], scales);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        WideHalf wide;
        widen_half<T, kScheme>(weight, values.halves[block][half], values.groups[block], half, wide);
        multiply_half<T, kScheme>(wide, scales, half, x, sums[2 * block + half]);
      }
    }
  }
  static __device__ __forceinline__ int row_of(int lane, int tile, int half) {
    return tile / 2 * kWarpRows + lane / 4 * 4 + tile % 2 * 2 + half;
  }

 private:
  static __device__ __forceinline__ int size_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

  /// From shared memory; the groups of a stage lie one after the other.
  static __device__ __forceinline__ void load_groups(const GroupedStreamParams& p, std::uint32_t at, int stage, int row,
                                                     int lane, StageGroups& to) {
    const SchemeView& weight = p.scheme.weight;
    const std::uint32_t zeros = at + p.scale_bytes + row;
    if constexpr (kScheme == WeightScheme::f4) {
      const int first = (stage * kStreamColumns) >> weight.group_shift;
#pragma unroll
      for (int unit = 0; unit < 2; ++unit) {
        const int group = ((stage * kStreamColumns + unit * 32 + lane % 4 * 8) >> weight.group_shift) - first;
        to.zeros[unit] = load_word(zeros + group * kSchemeTileRows);
      }
    } else {
      const bool has_two = weight.group_shift == 5;
      const int size = size_of(weight.scale_dtype);
#pragma unroll
      for (int unit = 0; unit < 2; ++unit) {
        const int group = has_two ? unit : 0;
        const std::uint32_t from = at + (group * kSchemeTileRows + row) * size;
        if (size == 4) {
          to.scales[unit] = load_piece(from);
        } else {
          to.scales[unit].x = load_word(from);
          to.scales[unit].y = load_word(from + 4);
        }
        if constexpr (kScheme != WeightScheme::f8)
          if (weight.zeros != nullptr) to.zeros[unit] = load_word(zeros + group * kSchemeTileRows);
      }
    }
  }
};

#endif  // BATON_SM90A

}  // namespace baton::cuda
