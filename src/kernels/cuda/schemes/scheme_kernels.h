/// The kernels of weights in 8 and 4 bits that need no object: packing, a general GEMM, and dense copies of some rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/schemes/scheme_layout.h"

namespace baton::cuda {

/// Rows of a weight as they come from a file, in device memory: whole tiles, but for the last.
struct SchemeRows {
  const std::byte* values = nullptr;    ///< [n_rows, bytes of a row]
  const std::byte* scales = nullptr;    ///< [all, n_scales] of scale_dtype, the first for first_row
  const float* row_scales = nullptr;    ///< [n_rows] of f4, or null: 1
  const std::uint8_t* zeros = nullptr;  ///< [n_rows, n_scales], or null
  std::int64_t first_row = 0;           ///< a multiple of 64
  std::int64_t n_rows = 0;
  std::int64_t n_scales = 0;  ///< of a row
  std::int64_t scale_rows = 1;
  std::int64_t scale_columns = 1;
  PieceOrder order = PieceOrder::wgmma;  ///< of the packed weight
};

/// Bytes of a part of device memory that others follow.
constexpr std::size_t aligned_part(std::size_t n_bytes) { return (n_bytes + 255) / 256 * 256; }

/// Packs a weight from host memory, some rows at a time through `room`, device memory that holds the values, scales and zeros of a
/// tile. The tiles of `to` are all zeros before. The weight must stay in host memory until the stream has run.
void pack_stored(const Device& device, const StoredMatrix& weight, PieceOrder order, std::span<std::byte> room,
                 const SchemeView& to);

/// Writes the rows' tiles of a packed weight, whose memory is all zeros before.
void pack_rows(const Device& device, WeightScheme scheme, const SchemeRows& rows, const SchemeView& to);

/// The same for f4 alone, which pack_rows calls.
void pack_f4_rows(const Device& device, const SchemeRows& rows, const SchemeView& to);

/// out[r, c] = x[r, order[c]], or x[r, c] without an order, and 0 from k on. x [rows, k], out [rows, at least k] of one float
/// dtype; order [k] i32 or null.
void arrange_columns(const Device& device, const ConstTensorView& x, const std::int32_t* order, const TensorView& out);

/// out = x W^T + bias for any device, shape and float dtype, without matrix units. The order of the f32 sums depends on k
/// alone. `bias` [n] of out's dtype, or null data.
void multiply_general(const Device& device, WeightScheme scheme, const ConstTensorView& x, const SchemeView& weight,
                      const ConstTensorView& bias, const TensorView& out);

/// out = rows of the weight from first_row on, a multiple of 64, as dense [rows, k] float: each weight is rounded once.
void widen_rows(const Device& device, WeightScheme scheme, const SchemeView& weight, std::int64_t first_row,
                const TensorView& out);

}  // namespace baton::cuda
