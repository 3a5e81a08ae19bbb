/// The kernels of scheme_wide.h. Rows of the weight are wgmma's M and come from registers, where they are widened and scaled
/// while the matrix units work; 160 to 256 rows of x are N. One thread copies the weight's stages to a ring and another one
/// x's. Tiles go round the blocks in an order that keeps the weight and x in the L2; where tiles are few, the blocks of a
/// cluster divide the columns of each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/launch_clusters.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/schemes/wide/multiplier.cuh"

namespace baton::cuda {

#ifdef BATON_SM90A

/// One thread's copies of all stages of a block: `copy(tile, k, slot)`.
template <class Copy>
__device__ __forceinline__ void copy_wide_stages(const SchemeWideParams& p, const Ring& ring, const WidePlace& at,
                                                 Copy&& copy) {
  const WideStages stages = wide_stages(p.k_stages, at.rank, p.plan.n_blocks);
  RingPlace place;
  bool is_filled = false;
#pragma unroll 1
  for (int i = at.cluster; i < p.plan.n_tiles; i += p.plan.n_clusters) {
    const WideGemmTile tile = wide_tile(i, p.n_row_tiles, p.n_passes);
#pragma unroll 1
    for (int k = stages.begin; k < stages.end; ++k) {
      if (is_filled) barrier_wait(ring.empty + 8 * place.slot, place.parity ^ 1);
      copy(tile, k, place.slot);
      place.advance(p.n_stages);
      is_filled = is_filled || place.slot == 0;
    }
  }
}

/// A stage's values, scales and zeros.
template <class Form>
__device__ __forceinline__ void copy_wide_weights(const SchemeWideParams& p, const WideRing& memory, const WidePlace& at) {
  std::uint64_t policy;
  if (p.n_passes == 1)
    policy = read_once_policy();
  else
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  const SchemeView& weight = p.weight;
  const int n_rows = p.groups_of_stage * kSchemeTileRows;  // of scales and zeros
  copy_wide_stages(p, memory.ring, at, [&](const WideGemmTile& tile, int k, int slot) {
    const std::uint32_t barrier = memory.ring.has_weight + 8 * slot;
    barrier_expect(barrier, Form::kValueBytes + memory.group_bytes);
    const int group = (k * kWideStageK) >> weight.group_shift;
    const std::uint32_t groups = memory.groups + slot * memory.group_bytes;
#pragma unroll
    for (int part = 0; part < Form::kParts; ++part) {
      // A second tile that does not exist is the first again; its sums are not stored.
      const std::int64_t own = min(tile.weight * Form::kParts + part, weight.n_tiles - 1);
      copy_bytes(memory.ring.stages + slot * Form::kValueBytes + part * Form::kPartBytes,
                 weight.values + (own * weight.n_chunks + k * Form::kChunks) * kPieceBytes, Form::kPartBytes, barrier, policy);
      const std::int64_t row = (own * weight.n_groups + group) * kSchemeTileRows;
      if (p.scale_bytes != 0)
        copy_bytes(groups + part * n_rows * p.scale_bytes, weight.scales + row * p.scale_bytes, n_rows * p.scale_bytes, barrier,
                   policy);
      if (p.zero_bytes != 0)
        copy_bytes(groups + Form::kParts * n_rows * p.scale_bytes + part * n_rows, weight.zeros + row, n_rows, barrier, policy);
    }
  });
}

#endif  // BATON_SM90A

template <WeightScheme kScheme, class T, int kWidth, WideScaling kScaling>
__global__ void __launch_bounds__(WideForm<kScheme, kWidth>::kThreads, 1)
    scheme_wide_kernel([[maybe_unused]] const __grid_constant__ SchemeWideParams p,
                       [[maybe_unused]] const __grid_constant__ CUtensorMap x_map) {
#ifdef BATON_SM90A
  using Form = WideForm<kScheme, kWidth>;
  extern __shared__ __align__(1024) std::byte shared[];
  const int n_group_bytes = wide_group_bytes<Form>(p);
  const std::uint32_t x = shared_address(shared);
  const std::uint32_t values = x + p.n_stages * Form::kXBytes;
  const std::uint32_t groups = values + p.n_stages * Form::kValueBytes;
  const std::uint32_t store = groups + p.n_stages * n_group_bytes;
  const std::uint32_t barriers = store + Form::kStoreBytes;
  const WideRing memory{
      {values, barriers, barriers + 8 * kMostWideStages, barriers + 16 * kMostWideStages}, x, groups, store, n_group_bytes};
  const auto thread = static_cast<int>(threadIdx.x);
  const WidePlace at{static_cast<int>(blockIdx.x) / p.plan.n_blocks, static_cast<int>(blockIdx.x) % p.plan.n_blocks};
  if (thread == 0) init_ring(memory.ring, p.n_stages, Form::kMultipliers / 32);
  __syncthreads();
  if (thread < Form::kMultipliers) {
    take_registers<232>();
    wait_for_kernel_before();
    WideMultiplier<kScheme, T, kWidth, kScaling>(p, memory, at).run();
    return;
  }
  give_registers<40>();
  if (thread == Form::kMultipliers) {
    copy_wide_weights<Form>(p, memory, at);
  } else if (thread == Form::kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    copy_wide_stages(p, memory.ring, at, [&](const WideGemmTile& tile, int k, int slot) {
      const std::uint32_t barrier = memory.ring.has_x + 8 * slot;
      barrier_expect(barrier, Form::kXBytes);
      copy_box(x + slot * Form::kXBytes, &x_map, k * kWideStageK, tile.pass * kWidth, barrier);
    });
  }
#endif
}

template <WeightScheme kScheme, class T, int kWidth, WideScaling kScaling>
void launch_scheme_wide(const Device& device, SchemeWideParams p, const CUtensorMap& x_map) {
  using Form = WideForm<kScheme, kWidth>;
  const SchemeView& weight = p.weight;
  p.n_row_tiles = (weight.n_tiles + Form::kParts - 1) / Form::kParts;
  p.n_passes = (p.n_rows + kWidth - 1) / kWidth;
  p.k_stages = static_cast<int>((weight.k + kWideStageK - 1) / kWideStageK);
  p.plan = wide_plan(p.n_row_tiles * p.n_passes, p.k_stages, p.clusters);
  p.scale_bytes = weight.scales == nullptr ? 0 : static_cast<int>(size_bytes(weight.scale_dtype));
  p.zero_bytes = weight.zeros == nullptr ? 0 : 1;
  p.groups_of_stage = weight.group_shift == 5 ? 2 : 1;
  const int stage_bytes = Form::kXBytes + Form::kValueBytes + wide_group_bytes<Form>(p);
  const int other_bytes = Form::kStoreBytes + kWideBarrierBytes;
  p.n_stages = std::min(kMostWideStages, (static_cast<int>(device.max_shared_bytes) - other_bytes) / stage_bytes);
  const int shared_bytes = p.n_stages * stage_bytes + other_bytes;
  auto* const kernel = scheme_wide_kernel<kScheme, T, kWidth, kScaling>;
  // The most, not this launch's: launches that were captured before need theirs.
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(device.max_shared_bytes)),
      "scheme_wide");
  launch_clusters(device, kernel, dim3(static_cast<unsigned>(p.plan.n_clusters * p.plan.n_blocks)), p.plan.n_blocks,
                  Form::kThreads, shared_bytes, "scheme_wide", p, x_map);
}

template <WeightScheme kScheme, class T, int kWidth>
void launch_wide_scaling(const Device& device, const SchemeWideParams& p, const CUtensorMap& x_map) {
  if (p.weight.scales == nullptr) return launch_scheme_wide<kScheme, T, kWidth, WideScaling::none>(device, p, x_map);
  if constexpr (kScheme == WeightScheme::i4)
    if (p.weight.scale_dtype == (std::is_same_v<T, __half> ? DType::f16 : DType::bf16))
      return launch_scheme_wide<kScheme, T, kWidth, WideScaling::own>(device, p, x_map);
  launch_scheme_wide<kScheme, T, kWidth, WideScaling::other>(device, p, x_map);
}

/// The matmuls of scheme_wide.h for one scheme.
template <WeightScheme kScheme>
void launch_wide(const Device& device, DType dtype, int width, const SchemeWideParams& p, const CUtensorMap& x_map) {
  const auto launch = [&](auto zero) {
    using T = decltype(zero);
    switch (width) {
      case 160: return launch_wide_scaling<kScheme, T, 160>(device, p, x_map);
      case 192: return launch_wide_scaling<kScheme, T, 192>(device, p, x_map);
      case 256: return launch_wide_scaling<kScheme, T, 256>(device, p, x_map);
      default: check_failed("scheme_wide: a width that has no kernel");
    }
  };
  dtype == DType::f16 ? launch(__half{}) : launch(__nv_bfloat16{});
}

}  // namespace baton::cuda
