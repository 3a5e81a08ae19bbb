/// The step's arrays of one layer group, found through the header on the device.
#pragma once

#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/step_sections.cuh"

namespace baton::cuda {

struct StepArrays {
  const AttentionItem* items;
  const std::int32_t* block_lists;
  const std::int32_t* merge_offsets;
  const std::int32_t* merge_inputs;
  const std::int32_t* pairs;
  const std::int32_t* worker_offsets;
  int n_workers;  ///< 0: the plan assigns no pairs
  int n_wide_workers;
  bool has_wide_tiles;
  int n_rows;  ///< rows of this step; a graph may have been captured for more
  int n_items;
  int n_item_major;
  int n_partials;
  int most_merge_inputs;

  __device__ explicit StepArrays(const AttentionParams& p) {
    const LayerGroupHeader& group = group_header(p.step, p.group);
    items = section<AttentionItem>(p.step, group.section(SectionKind::items));
    n_rows = min(p.n_rows, step_header(p.step).n_rows);
    n_items = group.section(SectionKind::items).count;
    n_item_major = group.n_item_major;
    block_lists = section<std::int32_t>(p.step, group.section(SectionKind::block_lists));
    pairs = section<std::int32_t>(p.step, group.section(SectionKind::pairs));
    worker_offsets = section<std::int32_t>(p.step, group.section(SectionKind::worker_offsets));
    n_workers = group.section(SectionKind::worker_offsets).count - 1;
    n_wide_workers = group.n_larger_workers;
    has_wide_tiles = group.tile_kind != 0;
    merge_offsets = section<std::int32_t>(p.step, group.section(SectionKind::merge_offsets));
    merge_inputs = section<std::int32_t>(p.step, group.section(SectionKind::merge_inputs));
    n_partials = group.n_partials;
    most_merge_inputs = group.most_merge_inputs;
  }
};

/// Whether two kernels run and the plan has no worker for this block of one of them. Without workers for wide tiles no
/// block is spare, because all then wait for the kernel before.
__device__ __forceinline__ bool is_spare_block(const AttentionParams& p, bool is_wide) {
  if (!p.has_both_kernels) return false;
  const LayerGroupHeader& group = group_header(p.step, p.group);
  const int n_workers = group.section(SectionKind::worker_offsets).count - 1;
  const int n_wide = group.n_larger_workers;
  return n_wide > 0 && static_cast<int>(blockIdx.x) >= (is_wide ? n_wide : n_workers - n_wide);
}

/// The sink of a query head, if there are any.
__device__ __forceinline__ float sink_of(const AttentionParams& p, int head) {
  return p.sinks == nullptr ? 0.0f : __ldg(p.sinks + head);
}
/// The sum of a whole row's weights, given that of its keys and their maximum: with the sink of its head, if there are any.
__device__ __forceinline__ float finished_sum(const AttentionParams& p, float sink, float m, float l) {
  constexpr float kLog2E = 1.44269504f;
  return p.sinks == nullptr ? l : __fadd_rn(l, exp2_approx(__fmaf_rn(sink, kLog2E, -m)));
}

/// Stores four neighbouring numbers of an output row, rounded to nearest even if the row is 16-bit.
template <class T>
__device__ __forceinline__ void store_output(const AttentionParams& p, std::int64_t index, float4 x) {
  if (p.out_is_f32)
    *reinterpret_cast<float4*>(p.out + index * 4) = x;
  else
    *reinterpret_cast<uint2*>(p.out + index * 2) = {pack_pair<T>(x.x, x.y), pack_pair<T>(x.z, x.w)};
}

}  // namespace baton::cuda
