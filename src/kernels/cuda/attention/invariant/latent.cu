/// The latent attention kernel of batch-invariant mode: the blocks, items and copies of attention/latent/kernel.cuh, with a state
/// for every chunk.
#include "kernels/cuda/attention/invariant/latent.h"

#include "kernels/cuda/attention/invariant/latent_consumer.cuh"
#include "kernels/cuda/attention/latent/kernel.cuh"

namespace baton::cuda {
namespace {

constexpr int kMostLatent = 512;

template <class T, int kLatent>
__global__ void __launch_bounds__(LatentTile<T, kLatent, true>::kThreads, 1)
    latent_invariant_kernel([[maybe_unused]] const __grid_constant__ AttentionParams p, [[maybe_unused]] float4* states) {
#ifdef BATON_SM90A
  using Tile = LatentTile<T, kLatent, true>;
  run_latent_attention<Tile, LatentInvariantConsumer<Tile>>(p, states);
#endif
}

template <class T, int kLatent>
void launch(const AttentionParams& params, std::byte* states, const Device& device) {
  launch_latent_tiles<LatentTile<T, kLatent, true>>(latent_invariant_kernel<T, kLatent>, device, device.n_multiprocessors,
                                                    params, reinterpret_cast<float4*>(states));
}

}  // namespace

std::size_t latent_state_bytes(const Device& device) {
  return static_cast<std::size_t>(device.n_multiprocessors) * kLatentTileRows * kMostLatent * sizeof(float);
}

void latent_invariant_attention(const AttentionParams& params, DType dtype, int latent_dim, std::byte* states,
                                const Device& device) {
  const bool is_f16 = dtype == DType::f16;
  if (latent_dim == 256)
    is_f16 ? launch<__half, 256>(params, states, device) : launch<__nv_bfloat16, 256>(params, states, device);
  else
    is_f16 ? launch<__half, 512>(params, states, device) : launch<__nv_bfloat16, 512>(params, states, device);
}

}  // namespace baton::cuda
