/// The streaming GEMM over 8-bit floats.
#include "kernels/cuda/schemes/stream/kernel.cuh"

namespace baton::cuda {

void stream_f8(const Device& device, DType dtype, int width, const SchemeStreamParams& params, const CUtensorMap& x_map) {
  visit_scheme_width(dtype, width, [&]<class T>(T, auto constant) {
    launch_scheme_stream<WeightScheme::f8, T, decltype(constant)::value, 2>(device, params, x_map);
  });
}

}  // namespace baton::cuda
