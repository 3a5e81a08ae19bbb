/// The streaming kernel for 1 to 8 rows of x, by weights of 8 bits and integers of 4. As in kernel.cuh, each block takes
/// an equal run of stages, and a thread copies the weight's stages to a ring and another one x's. Eight warps multiply by
/// mma.sync (skinny_multiplier.cuh). When the weight's last stage has been requested, a warp brings the first bytes of the next
/// matmul's weight into the L2.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/schemes/stream/ring.cuh"
#include "kernels/cuda/schemes/stream/skinny_form.cuh"
#include "kernels/cuda/schemes/stream/skinny_multiplier.cuh"

namespace baton::cuda {

#ifdef BATON_SM90A

/// A stage's values, scales and zeros.
template <class Form>
__device__ __forceinline__ void copy_skinny_weight(const SkinnyParams& p, const SchemeRing& memory) {
  const std::uint64_t policy = read_once_policy();
  const SchemeView& weight = p.weight;
  copy_scheme_stages(p, memory.ring, [&](const StreamStage& stage, int i, int slot) {
    if (i >= kSkinnyFillStages && i < p.n_stages) barrier_wait(memory.ring.has_weight + 8 * (i - kSkinnyFillStages), 0);
    const std::uint32_t barrier = memory.ring.has_weight + 8 * slot;
    barrier_expect(barrier, Form::kValueBytes + memory.group_bytes);
    const std::int64_t tile = stage.tile;
    copy_bytes(memory.ring.stages + slot * Form::kValueBytes,
               weight.values + (tile * weight.n_chunks + stage.k * Form::kChunks) * kPieceBytes, Form::kValueBytes, barrier,
               policy);
    const int n_rows = p.groups_of_stage * kSchemeTileRows;  // of scales and zeros
    const std::int64_t row = (tile * weight.n_groups + ((stage.k * Form::kStageK) >> weight.group_shift)) * kSchemeTileRows;
    const std::uint32_t groups = memory.groups + slot * memory.group_bytes;
    if (p.scale_bytes != 0) copy_bytes(groups, weight.scales + row * p.scale_bytes, n_rows * p.scale_bytes, barrier, policy);
    if (p.zero_bytes != 0) copy_bytes(groups + n_rows * p.scale_bytes, weight.zeros + row, n_rows, barrier, policy);
  });
}

/// Brings the line of 128 bytes that holds `at` into the L2.
__device__ __forceinline__ void bring_to_l2(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

/// A warp brings the first bytes of the next matmul's runs into the L2, not faster than memory gives them: what other kernels
/// read meanwhile would wait.
__device__ __forceinline__ void bring_next_weight(const SkinnyParams& p) {
  constexpr int kAtOnce = 16 << 10;
  constexpr int kLine = 128;
  constexpr unsigned kPauseNs = 500;
  const std::byte* const from = p.next_values + static_cast<std::int64_t>(blockIdx.x) * p.next_run_bytes;
#pragma unroll 1
  for (int at = 0; at < p.next_ahead_bytes; at += kAtOnce) {
    if (at > 0) __nanosleep(kPauseNs);
    for (int line = at + static_cast<int>(threadIdx.x) % 32 * kLine; line < min(at + kAtOnce, p.next_ahead_bytes);
         line += 32 * kLine)
      bring_to_l2(from + line);
  }
}

/// x of the stages: to the ring, or once each to slots of their own.
template <class Form>
__device__ __forceinline__ void copy_skinny_x(const SkinnyParams& p, const SchemeRing& memory, const CUtensorMap& map) {
  const auto copy = [&](const StreamStage& stage, int slot) {
    const std::uint32_t barrier = memory.ring.has_x + 8 * slot;
    barrier_expect(barrier, Form::kXBytes);
#pragma unroll
    for (int box = 0; box < Form::kBoxes; ++box)
      copy_box(memory.x + slot * Form::kXBytes + box * (kSkinnyWidth * kBoxK * 2), &map, stage.k * Form::kStageK + box * kBoxK,
               0, barrier);
  };
  if (!p.x_stays) {
    copy_scheme_stages(p, memory.ring, [&](const StreamStage& stage, int /*i*/, int slot) { copy(stage, slot); });
    return;
  }
  StreamStage stage{0, p.schedule.begin(static_cast<int>(blockIdx.x)) % p.schedule.k_stages};
#pragma unroll 1
  for (int i = 0; i < p.schedule.k_stages; ++i, stage.advance(p.schedule.k_stages)) copy(stage, stage.k);
}

#endif  // BATON_SM90A

/// Sums are scaled after a multiple of `kScaledSteps` times 16 columns.
template <WeightScheme kScheme, class T, int kScaledSteps>
__global__ void __launch_bounds__(SkinnyForm<kScheme>::kThreads, 1)
    skinny_kernel([[maybe_unused]] const __grid_constant__ SkinnyParams p,
                  [[maybe_unused]] const __grid_constant__ CUtensorMap x_map) {
#ifdef BATON_SM90A
  using Form = SkinnyForm<kScheme>;
  extern __shared__ __align__(1024) std::byte shared[];
  const int n_group_bytes = skinny_group_bytes(p);
  const std::uint32_t x = shared_address(shared);
  const std::uint32_t values = x + (p.x_stays ? p.schedule.k_stages : p.n_stages) * Form::kXBytes;
  const std::uint32_t groups = values + p.n_stages * Form::kValueBytes;
  const std::uint32_t join = groups + p.n_stages * n_group_bytes;
  const std::uint32_t barriers = join + Form::kJoinBytes;
  const SchemeRing memory{
      {values, barriers, barriers + 8 * kMostSchemeStages, barriers + 16 * kMostSchemeStages}, x, groups, join, n_group_bytes};
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) init_ring(memory.ring, p.x_stays ? kMostSchemeStages : p.n_stages, Form::kReaders);
  __syncthreads();
  if (thread < Form::kMultipliers) {
    // They need not wait for the kernel before: x arrives only after its end.
    SkinnyMultiplier<kScheme, T, kScaledSteps>(p, memory).run();
  } else if (thread < Form::kMultipliers + 32) {
    if (thread == Form::kMultipliers) copy_skinny_weight<Form>(p, memory);
    __syncwarp();
    bring_next_weight(p);
  } else if (thread == Form::kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    copy_skinny_x<Form>(p, memory, x_map);
  }
#endif
}

template <WeightScheme kScheme, class T, int kScaledSteps>
void launch_skinny(const Device& device, SkinnyParams p, const CUtensorMap& x_map) {
  using Form = SkinnyForm<kScheme>;
  const SchemeView& weight = p.weight;
  const int group_columns = std::min(1 << weight.group_shift, Form::kStageK);
  p.schedule = {weight.n_tiles, static_cast<int>((weight.k + Form::kStageK - 1) / Form::kStageK), device.n_multiprocessors};
  p.next_run_bytes = static_cast<int>(p.next_bytes / device.n_multiprocessors / 16 * 16);
  p.next_ahead_bytes =
      static_cast<int>(std::min<std::int64_t>(p.next_run_bytes, kMostBytesAhead / device.n_multiprocessors / 16 * 16));
  p.scale_bytes = weight.scales == nullptr ? 0 : static_cast<int>(size_bytes(weight.scale_dtype));
  p.zero_bytes = weight.zeros == nullptr ? 0 : 1;
  p.groups_of_stage = Form::kStageK / group_columns;
  p.unit_shift = std::countr_zero(static_cast<unsigned>(group_columns / (kScaledSteps * 16)));
  const int n_of_block = p.schedule.begin(1);  // no block has more stages
  const int all_x_bytes = p.schedule.k_stages * Form::kXBytes;
  p.x_stays = p.schedule.k_stages <= std::min(kMostSchemeStages, n_of_block / 2) && all_x_bytes <= kMostBytesOfAllX;
  const int fixed_bytes = Form::kJoinBytes + kSchemeBarrierBytes + (p.x_stays ? all_x_bytes : 0);
  const int stage_bytes = Form::kValueBytes + skinny_group_bytes(p) + (p.x_stays ? 0 : Form::kXBytes);
  const int n_that_fit = (static_cast<int>(device.max_shared_bytes) - fixed_bytes) / stage_bytes;
  // A slot serves one set. Otherwise one that runs ahead of a late copy would take the parity of the phase before for its own.
  p.n_stages = std::min({kMostSchemeStages, n_of_block + Form::kSets - 1, n_that_fit}) / Form::kSets * Form::kSets;
  auto* const kernel = skinny_kernel<kScheme, T, kScaledSteps>;
  // The most that any weight needs: launches that were captured keep it.
  baton::cuda::check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(device.max_shared_bytes)),
      "skinny");
  prefer_shared_memory(kernel);
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(p.schedule.n_blocks)), Form::kThreads,
                    p.n_stages * stage_bytes + fixed_bytes, "skinny", p, x_map);
}

}  // namespace baton::cuda
