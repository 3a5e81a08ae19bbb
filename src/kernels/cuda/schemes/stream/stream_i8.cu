/// The streaming GEMM over 8-bit integers.
#include "kernels/cuda/schemes/stream/kernel.cuh"

namespace baton::cuda {

void stream_i8(const Device& device, DType dtype, int width, const SchemeStreamParams& params, const CUtensorMap& x_map) {
  visit_scheme_width(dtype, width, [&]<class T>(T, auto constant) {
    launch_scheme_stream<WeightScheme::i8, T, decltype(constant)::value, 2>(device, params, x_map);
  });
}

}  // namespace baton::cuda
