/// Packs rows of f4: scales first, a block for each row, because a row of MXFP4 has its scales over the largest; then values,
/// whose signs and zeros depend on the scales.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/schemes/scheme_kernels.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kUnitsOfPiece = kPieceBytes / 16;

/// The scales of row `row` of the rows.
__device__ __forceinline__ const std::uint8_t* scales_of(const SchemeRows& rows, std::int64_t row) {
  const std::int64_t scale_row = (rows.first_row + row) / rows.scale_rows - rows.first_row / rows.scale_rows;
  return reinterpret_cast<const std::uint8_t*>(rows.scales) + scale_row * rows.n_scales;
}
/// Where the packed scales of a row, by group, begin; they are kSchemeTileRows apart.
__device__ __forceinline__ std::uint8_t* packed_scales_of(const SchemeRows& rows, const SchemeView& to, std::int64_t row) {
  const std::int64_t of_weight = rows.first_row + row;
  return const_cast<std::uint8_t*>(to.zeros) + of_weight / kSchemeTileRows * to.n_groups * kSchemeTileRows +
         of_weight % kSchemeTileRows;
}

__global__ void __launch_bounds__(kThreads) pack_f4_scales_kernel(SchemeRows rows, SchemeView to) {
  __shared__ int largest;
  const std::int64_t row = blockIdx.x;
  const std::uint8_t* const from = scales_of(rows, row);
  const bool are_exponents = to.scale_dtype == DType::u8;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  if (are_exponents)
    for (std::int64_t g = threadIdx.x; g < rows.n_scales; g += kThreads) atomicMax(&largest, static_cast<int>(from[g]));
  __syncthreads();
  if (threadIdx.x == 0) {
    const float given = rows.row_scales == nullptr ? 1.0f : rows.row_scales[row];
    const float of_row = are_exponents ? e8m0_value(static_cast<std::uint8_t>(largest)) : 0x1p7f;
    const_cast<float*>(to.row_scales)[rows.first_row + row] = given * of_row;
  }
  std::uint8_t* const packed = packed_scales_of(rows, to, row);
  for (std::int64_t group = threadIdx.x; group << to.group_shift < to.k; group += kThreads) {
    const int scale = from[(group << to.group_shift) / rows.scale_columns];
    packed[group * kSchemeTileRows] = static_cast<std::uint8_t>(
        are_exponents ? max(0, to.f4.largest + scale - largest) : packed_e4m3(static_cast<unsigned>(scale) & 127u));
  }
}

/// A thread writes 16 bytes of packed values.
template <PieceOrder kOrder>
__global__ void __launch_bounds__(kThreads) pack_f4_values_kernel(SchemeRows rows, SchemeView to, std::int64_t n_units) {
  constexpr int kChunkK = chunk_columns(WeightScheme::f4);
  const std::int64_t row_bytes = row_value_bytes(WeightScheme::f4, to.k);
  const std::int64_t first_tile = rows.first_row / kSchemeTileRows;
  for (std::int64_t u = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; u < n_units;
       u += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const auto thread = static_cast<int>(u % kUnitsOfPiece);
    const std::int64_t piece = u / kUnitsOfPiece;
    const std::int64_t first_row = piece / to.n_chunks * kSchemeTileRows;
    const std::int64_t first_column = piece % to.n_chunks * kChunkK;
    std::uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int step = 0; step < kChunkK / 16; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        constexpr bool by_lanes = kOrder == PieceOrder::lanes;
        const std::int64_t row = first_row + (by_lanes ? lane_row(thread, i) : fragment_row(thread, i));
        const std::int64_t column =
            first_column + (by_lanes ? lane_column(thread, step, i, 0) : fragment_column(thread, step, i, 0));
        if (row >= rows.n_rows || column >= to.k) continue;
        if (packed_scales_of(rows, to, row)[(column >> to.group_shift) * kSchemeTileRows] == 0) continue;
        const bool is_negative =
            to.scale_dtype == DType::f8_e4m3 && (scales_of(rows, row)[column / rows.scale_columns] & 0x80u) != 0;
        const std::uint32_t both = reinterpret_cast<const std::uint8_t*>(rows.values)[row * row_bytes + column / 2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (column + e >= to.k) continue;
          const std::uint32_t code = both >> (4 * e) & 15u;
          words[step] |= place_f4(is_negative ? code ^ 8u : code, i, e);
        }
      }
    auto* const values = reinterpret_cast<uint4*>(const_cast<std::byte*>(to.values));
    values[first_tile * to.n_chunks * kUnitsOfPiece + u] = {words[0], words[1], words[2], words[3]};
  }
}

}  // namespace

void pack_f4_rows(const Device& device, const SchemeRows& rows, const SchemeView& to) {
  pack_f4_scales_kernel<<<static_cast<unsigned>(rows.n_rows), kThreads, 0, device.stream>>>(rows, to);
  check_launch("pack_f4_rows");
  const std::int64_t n_units = (rows.n_rows + kSchemeTileRows - 1) / kSchemeTileRows * to.n_chunks * kUnitsOfPiece;
  const auto n_blocks =
      static_cast<unsigned>(std::min<std::int64_t>((n_units + kThreads - 1) / kThreads, 32LL * device.n_multiprocessors));
  auto* const kernel =
      rows.order == PieceOrder::lanes ? pack_f4_values_kernel<PieceOrder::lanes> : pack_f4_values_kernel<PieceOrder::wgmma>;
  kernel<<<n_blocks, kThreads, 0, device.stream>>>(rows, to, n_units);
  check_launch("pack_f4_rows");
}

}  // namespace baton::cuda
