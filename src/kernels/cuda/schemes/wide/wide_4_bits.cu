/// The GEMM for many rows of x over 4-bit integers.
#include "kernels/cuda/schemes/wide/kernel.cuh"

namespace baton::cuda {

void wide_i4(const Device& device, DType dtype, int width, const SchemeWideParams& params, const CUtensorMap& x_map) {
  launch_wide<WeightScheme::i4>(device, dtype, width, params, x_map);
}

}  // namespace baton::cuda
