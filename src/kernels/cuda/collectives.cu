/// Collectives of the CUDA backend, which has one rank.
#include "kernels/cuda/collectives.h"

namespace baton::cuda {

void all_reduce(const Device&, TensorView) {}  // the sum over one rank

void all_gather(const Device& device, TensorView out, ConstTensorView part) {
  if (part.size_bytes() == 0) return;
  check_cuda(cudaMemcpyAsync(out.data, part.data, part.size_bytes(), cudaMemcpyDeviceToDevice, device.stream), "all_gather");
}

}  // namespace baton::cuda
