/// The streaming GEMM over 4-bit integers. Groups of 32 columns have kernels of their own, because they end within a chunk.
#include "kernels/cuda/schemes/stream/kernel.cuh"

namespace baton::cuda {

void stream_i4(const Device& device, DType dtype, int width, const SchemeStreamParams& params, const CUtensorMap& x_map) {
  visit_scheme_width(dtype, width, [&]<class T>(T, auto constant) {
    if (params.weight.group_shift == 5)
      launch_scheme_stream<WeightScheme::i4, T, decltype(constant)::value, 2>(device, params, x_map);
    else
      launch_scheme_stream<WeightScheme::i4, T, decltype(constant)::value, 4>(device, params, x_map);
  });
}

}  // namespace baton::cuda
