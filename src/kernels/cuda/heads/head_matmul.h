/// A dense matrix for each head on a CUDA device.
#pragma once

#include <memory>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// Copies the matrices to device memory. Errors: out_of_memory; unsupported: a dtype other than bf16 and f16, an n or k that is
/// not a multiple of 8, a k over 512.
Result<std::unique_ptr<PackedHeads>> pack_heads(const Device& device, const ConstTensorView& weights, std::string_view name);

/// x and out must be aligned to 16 bytes, with x_stride, x's columns and out's elements a head multiples of 8; out has x's dtype
/// or f32. A sum adds 16 terms at a time, from the first k to the last, so that a row's bits do not depend on the number of
/// rows. Weights may be read while the operation before still runs.
void head_matmul(const Device& device, const HeadMatmulArgs& args);

}  // namespace baton::cuda
