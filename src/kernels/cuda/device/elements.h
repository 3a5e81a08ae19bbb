/// Conversion and drawing of float elements in device memory, called by the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/device/device.h"
#include "kernels/random_packing.h"

namespace baton::cuda {

/// Converts `n` elements of device memory from one float dtype to another, rounded to nearest even. No overlap.
void convert(const Device& device, const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::int64_t n);

/// Writes rows [n_rows + n_zero_rows, k] of random numbers and zeros (see RandomRows).
void draw(const Device& device, const RandomRows& rows, std::int64_t k, std::byte* to, DType to_dtype);

}  // namespace baton::cuda
