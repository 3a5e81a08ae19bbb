/// What the grouped matmuls by weights in 8 and 4 bits share: a warp has 32 rows of a weight, 64 columns at a time, widens
/// them in registers and multiplies them by 8 places at a time with the matrix units.
///
/// Weights are operand A, in the order of lanes (scheme_layout.h): lane 4 g + t has rows 4 g to 4 g + 3 and, of every 32
/// columns, the 8 from 8 t on, so its part of operand B is 16 adjacent bytes of place g. The f32 sums of 32 columns are
/// scaled once. Numbers of f4 are scaled as they are widened, each lane's by the scale of its 8 columns, and their sums by the
/// scale of the row at the end.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/direct_chunks.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/experts/grouped_units.cuh"
#include "kernels/cuda/experts/packed_experts.h"
#include "kernels/cuda/schemes/scheme_values.cuh"
#include "kernels/cuda/schemes/widen.cuh"

namespace baton::cuda {

struct GroupedSchemeParams {
  GroupedParams group;               ///< without weight
  SchemeView weight;                 ///< of the first expert; those of others follow
  const std::int32_t* permutations;  ///< [n_experts, k], or null
  DType out_dtype;
};

inline GroupedSchemeParams grouped_scheme_params(const GroupedMatmulArgs& args) {
  const auto& experts = static_cast<const CudaExperts&>(*args.experts);
  return {grouped_params(args, nullptr), experts.view, experts.permutations, args.out.dtype};
}

constexpr int kWarpRows = 32;  ///< of the weight
constexpr int kStageColumns = kLaneStageColumns;
constexpr int kStagePieces(WeightScheme scheme) { return kStageColumns / chunk_columns(scheme); }

/// Half of the rows that a lane has of a stage, two of four, as they are loaded.
template <WeightScheme kScheme>
using HalfValues = uint4[kStagePieces(kScheme)];
/// The same, widened: fragments of 16 columns.
using WideHalf = std::uint32_t[4][4];

/// Scales and zeros of a lane's four rows, for the first and the last 32 columns of a stage. Of f4 the zeros are scales.
struct StageGroups {
  uint4 scales[2];
  std::uint32_t zeros[2];
};
using StageScales = float[2][4];

/// Where a lane's part of a warp's rows lies.
template <WeightScheme kScheme>
class WeightReader {
 public:
  /// Rows [32 block, 32 block + 32) of an expert; those after the last tile are its last rows.
  __device__ __forceinline__ WeightReader(const SchemeView& weight, int expert, int block, int lane)
      : weight_(weight), first_column_(lane % 4 * 8) {
    block = min(block, 2 * weight.n_tiles - 1);
    const std::int64_t tile = static_cast<std::int64_t>(expert) * weight.n_tiles + block / 2;
    values_ = reinterpret_cast<const uint4*>(weight.values + tile * weight.n_chunks * kPieceBytes) + block % 2 * 64 + lane;
    const int row = block % 2 * kWarpRows + lane / 4 * 4;
    first_scale_ = tile * weight.n_groups * kSchemeTileRows + row;
    first_row_ = tile * kSchemeTileRows + row;
  }

  __device__ __forceinline__ void load_values(int stage, int half, HalfValues<kScheme>& to) const {
    constexpr int kPieces = kStagePieces(kScheme);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
      to[piece] =
          load_chunk_once(values_ + (static_cast<std::int64_t>(stage) * kPieces + piece) * (kPieceBytes / 16) + half * 32);
  }
  __device__ __forceinline__ void load_groups(int stage, StageGroups& to) const {
    if constexpr (kScheme == WeightScheme::f4) {
#pragma unroll
      for (int unit = 0; unit < 2; ++unit) {
        const int group = (stage * kStageColumns + unit * 32 + first_column_) >> weight_.group_shift;
        const std::int64_t at = first_scale_ + static_cast<std::int64_t>(group) * kSchemeTileRows;
        to.zeros[unit] = __ldg(reinterpret_cast<const std::uint32_t*>(weight_.zeros + at));
      }
    } else {
      load_group(stage * kStageColumns, to.scales[0], to.zeros[0]);
      if (weight_.group_shift == 5) {
        load_group(stage * kStageColumns + 32, to.scales[1], to.zeros[1]);
      } else {
        to.scales[1] = to.scales[0];
        to.zeros[1] = to.zeros[0];
      }
    }
  }
  /// Multiplies the sums of f4, of a lane's four rows and two places, by the scales of the rows; others are finished.
  __device__ __forceinline__ void scale_rows(float (&sums)[2][4]) const {
    if constexpr (kScheme == WeightScheme::f4) {
      const float4 scales = __ldg(reinterpret_cast<const float4*>(weight_.row_scales + first_row_));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        sums[0][e] *= scales.x;
        sums[0][2 + e] *= scales.y;
        sums[1][e] *= scales.z;
        sums[1][2 + e] *= scales.w;
      }
    }
  }

 private:
  __device__ __forceinline__ void load_group(int column, uint4& scales, std::uint32_t& zeros) const {
    const std::int64_t at = first_scale_ + static_cast<std::int64_t>(column >> weight_.group_shift) * kSchemeTileRows;
    if (weight_.scale_dtype == DType::f32) {
      scales = __ldg(reinterpret_cast<const uint4*>(weight_.scales + at * 4));
    } else {
      const uint2 pairs = __ldg(reinterpret_cast<const uint2*>(weight_.scales + at * 2));
      scales.x = pairs.x;
      scales.y = pairs.y;
    }
    if constexpr (kScheme != WeightScheme::f8)
      if (weight_.zeros != nullptr) zeros = __ldg(reinterpret_cast<const std::uint32_t*>(weight_.zeros + at));
  }

  const SchemeView& weight_;
  int first_column_;  ///< of each 32
  const uint4* values_;
  std::int64_t first_scale_;
  std::int64_t first_row_;
};

/// Two 16-bit floats of a type that is known when the kernel runs.
__device__ __forceinline__ void widen_pair(std::uint32_t pair, DType dtype, float& first, float& second) {
  if (dtype == DType::bf16) {
    first = __uint_as_float(pair << 16);
    second = __uint_as_float(pair & 0xffff0000u);
  } else {
    first = __half2float(__ushort_as_half(static_cast<unsigned short>(pair & 0xffffu)));
    second = __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)));
  }
}

template <WeightScheme kScheme>
__device__ __forceinline__ void scales_of(const SchemeView& weight, const StageGroups& groups, StageScales& to) {
  if constexpr (kScheme != WeightScheme::f4) {
#pragma unroll
    for (int unit = 0; unit < 2; ++unit) {
      const uint4& raw = groups.scales[unit];
      float(&scales)[4] = to[unit];
      if (weight.scale_dtype == DType::f32) {
        scales[0] = __uint_as_float(raw.x);
        scales[1] = __uint_as_float(raw.y);
        scales[2] = __uint_as_float(raw.z);
        scales[3] = __uint_as_float(raw.w);
      } else {
        widen_pair(raw.x, weight.scale_dtype, scales[0], scales[1]);
        widen_pair(raw.y, weight.scale_dtype, scales[2], scales[3]);
      }
    }
  }
}

template <class T, WeightScheme kScheme>
__device__ __forceinline__ void widen_half(const SchemeView& weight, const HalfValues<kScheme>& values,
                                           const StageGroups& groups, int half, WideHalf& to) {
  std::uint32_t offsets[2][2] = {};  // of the first and the last 32 columns, of both rows
  if constexpr (kScheme == WeightScheme::f4) {
#pragma unroll
    for (int at = 0; at < 4; ++at)
      offsets[at / 2][at % 2] =
          (groups.zeros[at / 2] >> (8 * (2 * half + at % 2)) & 255u) * weight.f4.pair_factor + weight.f4.pair_base;
  } else if constexpr (kScheme != WeightScheme::f8) {
#pragma unroll
    for (int at = 0; at < 4; ++at) {
      const std::uint32_t zero = weight.zeros == nullptr ? (kScheme == WeightScheme::i4 ? 8 : 128)
                                                         : groups.zeros[at / 2] >> (8 * (2 * half + at % 2)) & 255u;
      offsets[at / 2][at % 2] = offset_of<T, kScheme>(zero);
    }
  }
  if constexpr (kStagePieces(kScheme) == 1) {
    widen<T, kScheme>(values[0], offsets, to);
  } else {
#pragma unroll
    for (int piece = 0; piece < 2; ++piece)
      widen<T, kScheme>(values[piece], reinterpret_cast<const std::uint32_t(&)[1][2]>(offsets[piece]),
                        reinterpret_cast<std::uint32_t(&)[2][4]>(to[2 * piece]));
  }
}

/// Adds half of a lane's rows times 8 places. x: what the lane has of them, for the first and the last 32 columns.
template <class T, WeightScheme kScheme>
__device__ __forceinline__ void multiply_half(const WideHalf& weight, const StageScales& scales, int half, const uint4 (&x)[2],
                                              float (&sums)[4]) {
#pragma unroll
  for (int unit = 0; unit < 2; ++unit) {
    if constexpr (kScheme == WeightScheme::f4) {
      multiply_16x8x16<T>(sums, weight[2 * unit], x[unit].x, x[unit].y);
      multiply_16x8x16<T>(sums, weight[2 * unit + 1], x[unit].z, x[unit].w);
    } else {
      float part[4] = {};
      multiply_16x8x16<T>(part, weight[2 * unit], x[unit].x, x[unit].y);
      multiply_16x8x16<T>(part, weight[2 * unit + 1], x[unit].z, x[unit].w);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] = fmaf(scales[unit][2 * half + i / 2], part[i], sums[i]);
    }
  }
}

/// The sums of place 2 t + e, in the order of the lane's rows.
__device__ __forceinline__ void sums_of_place(const float (&sums)[2][4], int e, float (&of_place)[4]) {
#pragma unroll
  for (int row = 0; row < 4; ++row) of_place[row] = sums[row / 2][row % 2 * 2 + e];
}

/// Calls `body` with the scheme of experts as a constant.
template <class Body>
void visit_expert_scheme(WeightScheme scheme, Body&& body) {
  switch (scheme) {
    case WeightScheme::f8: return body(std::integral_constant<WeightScheme, WeightScheme::f8>{});
    case WeightScheme::i8: return body(std::integral_constant<WeightScheme, WeightScheme::i8>{});
    case WeightScheme::i4: return body(std::integral_constant<WeightScheme, WeightScheme::i4>{});
    case WeightScheme::f4: return body(std::integral_constant<WeightScheme, WeightScheme::f4>{});
    default: check_failed("grouped_matmul: experts of a scheme without kernels");
  }
}

/// Calls `body` with a value of x's type, bf16 or f16.
template <class Body>
void visit_x(DType dtype, Body&& body) {
  dtype == DType::f16 ? body(__half{}) : body(__nv_bfloat16{});
}

/// Calls `body` with out as a pointer of its type.
template <class Body>
__device__ __forceinline__ void visit_out(const GroupedSchemeParams& p, Body&& body) {
  switch (p.out_dtype) {
    case DType::bf16: return body(static_cast<__nv_bfloat16*>(p.group.out));
    case DType::f16: return body(static_cast<__half*>(p.group.out));
    default: return body(static_cast<float*>(p.group.out));
  }
}

}  // namespace baton::cuda
