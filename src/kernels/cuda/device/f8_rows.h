/// The order of columns of rows in 8 bits (kernels/ops.h) on a CUDA device. Pure arithmetic.
#pragma once

namespace baton::cuda {

/// Where column c of 16 stands: matrix units take the columns of a row in the order in which a thread has a weight's
/// (schemes/scheme_layout.h). Pairs of columns stay together.
constexpr int f8_place(int c) { return c % 8 / 2 * 4 + c / 8 * 2 + c % 2; }

}  // namespace baton::cuda
