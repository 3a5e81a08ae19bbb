/// The order of columns of rows in 8 bits (kernels/ops.h) on a CUDA device. Pure arithmetic.
#pragma once

namespace baton::cuda {

/// Columns that change places among themselves; a row has a multiple of them.
inline constexpr int kF8Block = 64;

/// Where column c of a block stands: matrix units take the columns of a row in the order in which weights lie
/// (schemes/scheme_layout.h). Of each step of 16 columns, 2 q, 2 q + 8, 2 q + 1 and 2 q + 9 are a word, and the words q of all
/// steps are 16 bytes.
constexpr int f8_place(int c) { return c % 8 / 2 * 16 + c / 16 * 4 + c % 2 * 2 + c % 16 / 8; }

}  // namespace baton::cuda
