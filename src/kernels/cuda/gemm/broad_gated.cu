/// The kernels of the broad GEMM for weights of gated blocks.
#include "kernels/cuda/gemm/broad_kernel.cuh"

namespace baton::cuda {

BroadKernel gated_broad_kernel(DType dtype, const BroadTile& tile) { return broad_kernel_of<BroadForm::gated>(dtype, tile); }

}  // namespace baton::cuda
