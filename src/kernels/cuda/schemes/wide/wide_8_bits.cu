/// The GEMM for many rows of x over 8-bit floats and integers.
#include "kernels/cuda/schemes/wide/kernel.cuh"

namespace baton::cuda {

void wide_f8(const Device& device, DType dtype, int width, const SchemeWideParams& params, const CUtensorMap& x_map) {
  launch_wide<WeightScheme::f8>(device, dtype, width, params, x_map);
}

void wide_i8(const Device& device, DType dtype, int width, const SchemeWideParams& params, const CUtensorMap& x_map) {
  launch_wide<WeightScheme::i8>(device, dtype, width, params, x_map);
}

WideClusters wide_clusters(const Device& device) {
  WideClusters clusters{};
  using Form = WideForm<WeightScheme::f8, kMostWideWidth>;
  auto* const kernel = scheme_wide_kernel<WeightScheme::f8, __nv_bfloat16, kMostWideWidth, WideScaling::none>;
  const auto shared_bytes = static_cast<int>(device.max_shared_bytes);  // about what all forms take
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "wide_clusters");
  for (unsigned n_blocks = 1; n_blocks < clusters.size(); ++n_blocks) {
    cudaLaunchAttribute size{};
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim = {n_blocks, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(device.n_multiprocessors) * n_blocks);
    config.blockDim = dim3(Form::kThreads);
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.attrs = &size;
    config.numAttrs = 1;
    check_cuda(cudaOccupancyMaxActiveClusters(&clusters[n_blocks], kernel, &config), "wide_clusters");
  }
  return clusters;
}

}  // namespace baton::cuda
