/// The kernels of matmuls that need no object, one file each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Numbers of rows for which the skinny GEMM has kernels. With others, other GEMMs are as fast.
inline constexpr std::int64_t kSkinnyRows[] = {1, 2, 4};

/// Whether the skinny GEMM takes `n_rows` rows by a weight [n, k]: one of bf16 or f16, if the rows fit in shared memory.
bool can_multiply_skinny(const Device& device, std::int64_t n_rows, const ConstTensorView& weight);

/// The skinny GEMM: out = x W^T + bias for few rows, which streams a 16-bit weight once at memory bandwidth. The order of
/// the f32 sums depends on k alone. x of the weight's dtype and aligned to 16 bytes, out of the same dtype or f32. `bias`
/// [n] float, or null data. Weights may be read while the operation before still runs.
void multiply_skinny(const Device& device, const ConstTensorView& x, const ConstTensorView& weight, const ConstTensorView& bias,
                     const TensorView& out);

/// A weight with at most so many outputs is multiplied by the GEMM of narrow weights, whatever the number of rows; with more the skinny
/// GEMM is as fast for its numbers of rows, and cuBLASLt for more than eight.
inline constexpr std::int64_t kFewOutputs = 512;

/// Most rows that the GEMM of narrow weights multiplies by a weight [n, k], 128 or 8; 0: it does not take the weight. It takes bf16 or
/// f16, k a multiple of 8, n up to 16 for each multiprocessor, on devices of compute capability 9.0 or more, where kernels overlap.
std::int64_t most_narrow_rows(const Device& device, const ConstTensorView& weight);

/// out = x W^T + bias for 1 to most_narrow_rows rows. The order of the f32 sums depends on n, k and the number of rows. Operands as
/// multiply_skinny's. Weights may be read while the operation before still runs.
void multiply_narrow(const Device& device, const ConstTensorView& x, const ConstTensorView& weight, const ConstTensorView& bias,
                     const TensorView& out);

/// out[r] += bias, in f32, rounded once. out [rows, n] float, bias [n] float. For matmuls that cannot add the bias
/// themselves.
void add_bias(const Device& device, const TensorView& out, const ConstTensorView& bias);

/// Whether two areas of device memory are equal. `n_bytes` is a multiple of 4, and both are aligned to 4 bytes.
/// `flag`: 4 bytes of device memory to work with. Waits for the stream.
bool equal_bits(const Device& device, const std::byte* a, const std::byte* b, std::size_t n_bytes, std::byte* flag);

}  // namespace baton::cuda
