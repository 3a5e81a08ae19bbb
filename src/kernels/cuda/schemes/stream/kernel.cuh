/// The kernels of scheme_stream.h, which one source for each scheme instantiates. As in stream_gemm.cu, each block takes an
/// equal run of stages, a thread copies the weight's stages to a ring and another one x's, and rows of the weight are
/// wgmma's M. Warpgroups widen a chunk in registers while the matrix units work on the chunk before. Up to 8 rows of x by
/// weights of 8 bits and integers of 4 have a kernel of their own (skinny_kernel.cuh). Up to 32 rows, two sets of one warpgroup
/// take the stages in turn; with more, two warpgroups share the x of a stage, because x is then most of what a block reads. More
/// than 128 rows are multiplied 128 at once by a tile of the weight, which the L2 keeps.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/schemes/stream/multiplier.cuh"
#include "kernels/cuda/schemes/stream/ring.cuh"
#include "kernels/cuda/schemes/stream/skinny_kernel.cuh"

namespace baton::cuda {

#ifdef BATON_SM90A

/// The L2's policy for weights that other rows of x need next.
__device__ __forceinline__ std::uint64_t read_again_policy() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// A stage's values, scales and zeros.
template <class Form>
__device__ __forceinline__ void copy_scheme_weights(const SchemeStreamParams& p, const SchemeRing& memory) {
  const std::uint64_t read_once = read_once_policy();
  const std::uint64_t read_again = read_again_policy();
  const SchemeView& weight = p.weight;
  copy_scheme_stages(p, memory.ring, [&](const StreamStage& stage, int i, int slot) {
    if (i >= kSchemeFillStages && i < p.n_stages) barrier_wait(memory.ring.has_weight + 8 * (i - kSchemeFillStages), 0);
    const std::uint32_t barrier = memory.ring.has_weight + 8 * slot;
    barrier_expect(barrier, Form::kValueBytes + memory.group_bytes);
    const PassOfTile pass = pass_of_tile<Form>(p, stage.tile);
    const std::uint64_t policy = pass.pass + 1 < p.n_passes ? read_again : read_once;
    const int group = (stage.k * Form::kStageK) >> weight.group_shift;
    const int n_rows = p.groups_of_stage * kSchemeTileRows;  // of scales and zeros
#pragma unroll
    for (int part = 0; part < Form::kParts; ++part) {
      // A second tile that does not exist is the first again; its sums are not stored.
      const std::int64_t tile = min(pass.tile * Form::kParts + part, weight.n_tiles - 1);
      copy_bytes(memory.ring.stages + slot * Form::kValueBytes + part * Form::kChunks * kPieceBytes,
                 weight.values + (tile * weight.n_chunks + stage.k * Form::kChunks) * kPieceBytes, Form::kChunks * kPieceBytes,
                 barrier, policy);
      const std::int64_t row = (tile * weight.n_groups + group) * kSchemeTileRows;
      const std::uint32_t groups = memory.groups + slot * memory.group_bytes;
      if (p.scale_bytes != 0)
        copy_bytes(groups + part * n_rows * p.scale_bytes, weight.scales + row * p.scale_bytes, n_rows * p.scale_bytes, barrier,
                   policy);
      if (p.zero_bytes != 0)
        copy_bytes(groups + Form::kParts * n_rows * p.scale_bytes + part * n_rows, weight.zeros + row, n_rows, barrier, policy);
    }
  });
}

#endif  // BATON_SM90A

template <WeightScheme kScheme, class T, int kWidth, int kScaledSteps>
__global__ void __launch_bounds__(SchemeForm<kScheme, kWidth>::kThreads, 1)
    scheme_stream_kernel([[maybe_unused]] const __grid_constant__ SchemeStreamParams p,
                         [[maybe_unused]] const __grid_constant__ CUtensorMap x_map) {
#ifdef BATON_SM90A
  using Form = SchemeForm<kScheme, kWidth>;
  extern __shared__ __align__(1024) std::byte shared[];
  const int n_group_bytes = group_bytes<Form>(p);
  const std::uint32_t x = shared_address(shared);
  const std::uint32_t values = x + p.n_stages * Form::kXBytes;
  const std::uint32_t groups = values + p.n_stages * Form::kValueBytes;
  const std::uint32_t join = groups + p.n_stages * n_group_bytes;
  const std::uint32_t barriers = join + Form::kJoinBytes;
  const SchemeRing memory{
      {values, barriers, barriers + 8 * kMostSchemeStages, barriers + 16 * kMostSchemeStages}, x, groups, join, n_group_bytes};
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) init_ring(memory.ring, p.n_stages, Form::kSetThreads / 32);
  __syncthreads();
  if constexpr (Form::kMovesRegisters) {
    if (thread < Form::kMultipliers)
      take_registers<240>();
    else
      give_registers<24>();
  }
  if (thread < Form::kMultipliers) {
    wait_for_kernel_before();
    SchemeMultiplier<kScheme, T, kWidth, kScaledSteps>(p, memory).run();
  } else if (thread == Form::kMultipliers) {
    copy_scheme_weights<Form>(p, memory);
  } else if (thread == Form::kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    copy_scheme_stages(p, memory.ring, [&](const StreamStage& stage, int /*i*/, int slot) {
      const std::uint32_t barrier = memory.ring.has_x + 8 * slot;
      barrier_expect(barrier, Form::kXBytes);
#pragma unroll
      for (int box = 0; box < Form::kBoxes; ++box)
        copy_box(x + slot * Form::kXBytes + box * (kWidth * kBoxK * 2), &x_map, stage.k * Form::kStageK + box * kBoxK,
                 pass_of_tile<Form>(p, stage.tile).pass * kWidth, barrier);
    });
  }
#endif
}

template <WeightScheme kScheme, class T, int kWidth, int kScaledSteps>
void launch_scheme_stream(const Device& device, SchemeStreamParams p, const CUtensorMap& x_map) {
  if constexpr (kWidth == kSkinnyWidth && kScheme != WeightScheme::f4) {
    launch_skinny<kScheme, T, kScaledSteps>(device, {p}, x_map);
  } else {
    using Form = SchemeForm<kScheme, kWidth>;
    const SchemeView& weight = p.weight;
    const int group_columns = std::min(1 << weight.group_shift, Form::kStageK);
    p.n_passes = (p.n_rows + kWidth - 1) / kWidth;
    p.schedule = {(weight.n_tiles + Form::kParts - 1) / Form::kParts * p.n_passes,
                  static_cast<int>((weight.k + Form::kStageK - 1) / Form::kStageK), device.n_multiprocessors};
    p.scale_bytes = weight.scales == nullptr ? 0 : static_cast<int>(size_bytes(weight.scale_dtype));
    p.zero_bytes = weight.zeros == nullptr ? 0 : 1;
    p.groups_of_stage = Form::kStageK / group_columns;
    p.unit_shift = std::countr_zero(static_cast<unsigned>(group_columns / (kScaledSteps * 16)));
    const int stage_bytes = Form::kXBytes + Form::kValueBytes + group_bytes<Form>(p);
    const int other_bytes = Form::kJoinBytes + kSchemeBarrierBytes;
    const int n_that_fit = std::min(kMostSchemeStages, (static_cast<int>(device.max_shared_bytes) - other_bytes) / stage_bytes);
    // A slot serves one set. Otherwise one that runs ahead of a late copy would take the parity of the phase before for its own.
    p.n_stages = n_that_fit / Form::kSets * Form::kSets;
    const int shared_bytes = p.n_stages * stage_bytes + other_bytes;
    auto* const kernel = scheme_stream_kernel<kScheme, T, kWidth, kScaledSteps>;
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "scheme_stream");
    launch_overlapped(device, kernel, dim3(static_cast<unsigned>(p.schedule.n_blocks)), Form::kThreads, shared_bytes,
                      "scheme_stream", p, x_map);
  }
}

/// Calls `body` with a value of x's type and the width as a constant.
template <class Body>
void visit_scheme_width(DType dtype, int width, Body&& body) {
  const auto visit = [&](auto zero) {
    switch (width) {
      case 8: return body(zero, std::integral_constant<int, 8>{});
      case 16: return body(zero, std::integral_constant<int, 16>{});
      case 32: return body(zero, std::integral_constant<int, 32>{});
      case 64: return body(zero, std::integral_constant<int, 64>{});
      case 128: return body(zero, std::integral_constant<int, 128>{});
      default: check_failed("scheme_stream: a width that has no kernel");
    }
  };
  dtype == DType::f16 ? visit(__half{}) : visit(__nv_bfloat16{});
}

}  // namespace baton::cuda
