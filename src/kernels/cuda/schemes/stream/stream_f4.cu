/// The streaming GEMM over 4-bit floats. Numbers are multiplied by their scales, which all groups of 16 columns and more have in
/// common.
#include "kernels/cuda/schemes/stream/kernel.cuh"

namespace baton::cuda {

void stream_f4(const Device& device, DType dtype, int width, const SchemeStreamParams& params, const CUtensorMap& x_map) {
  visit_scheme_width(dtype, width, [&]<class T>(T, auto constant) {
    launch_scheme_stream<WeightScheme::f4, T, decltype(constant)::value, 1>(device, params, x_map);
  });
}

}  // namespace baton::cuda
