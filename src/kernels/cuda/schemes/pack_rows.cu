/// Packs rows of a file; the threads of a grid loop over 16 bytes of packed values, and over scales.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/schemes/scheme_kernels.h"
#include "kernels/cuda/schemes/scheme_values.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnitsOfPiece = kPieceBytes / 16;

__device__ std::int64_t thread_of_grid() { return blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; }
__device__ std::int64_t threads_of_grid() { return static_cast<std::int64_t>(gridDim.x) * kThreads; }

__device__ void store_unit(const SchemeView& to, std::int64_t first_tile, std::int64_t unit, const std::uint32_t (&words)[4]) {
  auto* const values = reinterpret_cast<uint4*>(const_cast<std::byte*>(to.values));
  values[first_tile * to.n_chunks * kUnitsOfPiece + unit] = {words[0], words[1], words[2], words[3]};
}

template <WeightScheme kScheme, PieceOrder kOrder>
__global__ void __launch_bounds__(kThreads) pack_values_kernel(SchemeRows rows, SchemeView to, std::int64_t n_units) {
  constexpr int kChunkK = chunk_columns(kScheme);
  const std::int64_t row_bytes = row_value_bytes(kScheme, to.k);
  const std::int64_t first_tile = rows.first_row / kSchemeTileRows;
  for (std::int64_t u = thread_of_grid(); u < n_units; u += threads_of_grid()) {
    const auto thread = static_cast<int>(u % kUnitsOfPiece);
    const std::int64_t piece = u / kUnitsOfPiece;
    const std::int64_t first_row = piece / to.n_chunks * kSchemeTileRows;
    const std::int64_t first_column = piece % to.n_chunks * kChunkK;
    std::uint32_t words[4] = {0, 0, 0, 0};
    if constexpr (kOrder == PieceOrder::wgmma && !has_half_bytes(kScheme)) {
      // The unit of 16 bytes from which one in wgmma's order comes has a row's columns of two chunks.
      const int unit = static_cast<int>(piece % 2) * kUnitsOfPiece + thread;
      const std::int64_t row = first_row + unit / 4;
      const std::int64_t pair_column = piece % to.n_chunks / 2 * 2 * kChunkK + (unit % 4 ^ unit / 8 % 4) * 2;
#pragma unroll
      for (int byte = 0; byte < 16; ++byte) {
        const std::int64_t column = pair_column + byte / 4 * 16 + byte % 2 * 8 + byte / 2 % 2;
        if (row >= rows.n_rows || column >= to.k) continue;
        const auto code = static_cast<std::uint32_t>(rows.values[row * row_bytes + column]);
        words[byte / 4] |= code << (byte % 4 * 8);
      }
    } else {
#pragma unroll
      for (int step = 0; step < kChunkK / 16; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            constexpr bool by_lanes = kOrder == PieceOrder::lanes;
            const std::int64_t row = first_row + (by_lanes ? lane_row(thread, i) : fragment_row(thread, i));
            const std::int64_t column =
                first_column + (by_lanes ? lane_column(thread, step, i, e) : fragment_column(thread, step, i, e));
            if (row >= rows.n_rows || column >= to.k) continue;
            const auto* const at = reinterpret_cast<const std::uint8_t*>(rows.values) + row * row_bytes;
            const std::uint32_t code = kScheme == WeightScheme::i4 ? at[column / 2] >> (4 * e) & 15u : at[column];
            words[fragment_word(kScheme, step, i)] |= code << fragment_bit(kScheme, i, e);
          }
    }
    store_unit(to, first_tile, u, words);
  }
}

/// The row's scale and zero of each group of the packed weight. `scales` [tiles, groups, 64].
template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    pack_scales_kernel(SchemeRows rows, SchemeView to, To* scales, std::uint8_t* zeros, std::int64_t n_scales) {
  const std::int64_t first_tile = rows.first_row / kSchemeTileRows;
  for (std::int64_t u = thread_of_grid(); u < n_scales; u += threads_of_grid()) {
    const std::int64_t row = u / kSchemeTileRows / to.n_groups * kSchemeTileRows + u % kSchemeTileRows;
    const std::int64_t column = u / kSchemeTileRows % to.n_groups << to.group_shift;
    if (row >= rows.n_rows || column >= to.k) continue;
    const std::int64_t group = column / rows.scale_columns;
    const std::int64_t scale_row = (rows.first_row + row) / rows.scale_rows - rows.first_row / rows.scale_rows;
    const std::int64_t at = first_tile * to.n_groups * kSchemeTileRows + u;
    scales[at] = from_f32<To>(to_f32(reinterpret_cast<const From*>(rows.scales)[scale_row * rows.n_scales + group]));
    if (zeros != nullptr) zeros[at] = rows.zeros[row * rows.n_scales + group];
  }
}

unsigned blocks_for(const Device& device, std::int64_t n) {
  return static_cast<unsigned>(std::min<std::int64_t>((n + kThreads - 1) / kThreads, 16LL * device.n_multiprocessors));
}

/// Copies rows [begin, end) of the file to `room` and packs them there.
void pack_some(const Device& device, const StoredMatrix& weight, PieceOrder order, std::byte* room, std::int64_t begin,
               std::int64_t end, const SchemeView& to) {
  SchemeRows rows;
  rows.first_row = begin;
  rows.n_rows = end - begin;
  rows.n_scales = weight.n_groups();
  rows.scale_rows = weight.scale_rows;
  rows.scale_columns = weight.scale_columns;
  rows.order = order;
  const auto upload = [&](const ConstTensorView& some) {
    std::byte* const at = room;
    room += aligned_part(some.size_bytes());
    check_cuda(cudaMemcpyAsync(at, some.data, some.size_bytes(), cudaMemcpyHostToDevice, device.stream), "pack_stored");
    return at;
  };
  rows.values = upload(weight.values.rows(begin, end));
  rows.scales = upload(weight.scales.rows(begin / weight.scale_rows, (end - 1) / weight.scale_rows + 1));
  if (weight.row_scales.data != nullptr)
    rows.row_scales = reinterpret_cast<const float*>(upload(weight.row_scales.rows(begin, end)));
  if (weight.zeros.data != nullptr) rows.zeros = reinterpret_cast<const std::uint8_t*>(upload(weight.zeros.rows(begin, end)));
  pack_rows(device, weight.scheme, rows, to);
}

}  // namespace

void pack_stored(const Device& device, const StoredMatrix& weight, PieceOrder order, std::span<std::byte> room,
                 const SchemeView& to) {
  // Of a row in the file: values, scales, zeros and the row's scale.
  const std::int64_t row_bytes =
      weight.values.shape[1] + weight.n_groups() * (static_cast<std::int64_t>(size_bytes(weight.scales.dtype)) + 1) + 4;
  const std::int64_t step = (static_cast<std::int64_t>(room.size()) - 1024) / row_bytes / kSchemeTileRows * kSchemeTileRows;
  check(step > 0, "pack_stored: a row exceeds the scratch memory");
  for (std::int64_t begin = 0; begin < to.n; begin += step)
    pack_some(device, weight, order, room.data(), begin, std::min(to.n, begin + step), to);
}

void pack_rows(const Device& device, WeightScheme scheme, const SchemeRows& rows, const SchemeView& to) {
  if (scheme == WeightScheme::f4) return pack_f4_rows(device, rows, to);
  const std::int64_t n_tiles = (rows.n_rows + kSchemeTileRows - 1) / kSchemeTileRows;
  visit_scheme(scheme, [&](auto constant) {
    constexpr WeightScheme kScheme = decltype(constant)::value;
    if constexpr (kScheme != WeightScheme::f4) {
      const std::int64_t n_units = n_tiles * to.n_chunks * kUnitsOfPiece;
      auto* const kernel = rows.order == PieceOrder::lanes ? pack_values_kernel<kScheme, PieceOrder::lanes>
                                                           : pack_values_kernel<kScheme, PieceOrder::wgmma>;
      kernel<<<blocks_for(device, n_units), kThreads, 0, device.stream>>>(rows, to, n_units);
    }
  });
  check_launch("pack_rows");
  const std::int64_t n_scales = n_tiles * to.n_groups * kSchemeTileRows;
  auto* const zeros = rows.zeros == nullptr ? nullptr : const_cast<std::uint8_t*>(to.zeros);
  const unsigned n_blocks = blocks_for(device, n_scales);
  visit_element(to.scale_dtype, [&](auto from) {
    using From = decltype(from);
    if (to.scales == nullptr)
      pack_scales_kernel<From>
          <<<n_blocks, kThreads, 0, device.stream>>>(rows, to, const_cast<float*>(to.row_scales), zeros, n_scales);
    else
      pack_scales_kernel<From><<<n_blocks, kThreads, 0, device.stream>>>(
          rows, to, reinterpret_cast<From*>(const_cast<std::byte*>(to.scales)), zeros, n_scales);
  });
  check_launch("pack_rows");
}

}  // namespace baton::cuda
