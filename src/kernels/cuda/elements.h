/// Elements of float tensors in device memory, as the host asks for them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/device.h"

namespace baton::cuda {

/// Rounds `n` elements of device memory from one float dtype to another, to nearest even. The two may not overlap.
void convert(const Device& device, const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::int64_t n);

}  // namespace baton::cuda
