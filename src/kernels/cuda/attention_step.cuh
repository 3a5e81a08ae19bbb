/// The step's arrays of one layer group, found through the header on the device.
#pragma once

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/mma.cuh"

namespace baton::cuda {

struct StepArrays {
  const AttentionItem* items;
  const std::int32_t* block_lists;
  const std::int32_t* merge_offsets;
  const std::int32_t* merge_inputs;
  const std::int32_t* pairs;
  const std::int32_t* worker_offsets;
  int n_workers;  ///< 0: the plan assigns no pairs
  int n_rows;     ///< rows of this step; a graph may have been captured for more
  int n_items;
  int n_shared_items;
  int n_partials;
  int most_merge_inputs;

  __device__ explicit StepArrays(const AttentionParams& p) {
    const auto& sections = reinterpret_cast<const StepHeader*>(p.step)->groups[p.group];
    items = reinterpret_cast<const AttentionItem*>(p.step + sections.items.offset);
    n_rows = min(p.n_rows, reinterpret_cast<const StepHeader*>(p.step)->n_rows);
    n_items = sections.items.count;
    n_shared_items = sections.n_shared_items;
    block_lists = reinterpret_cast<const std::int32_t*>(p.step + sections.block_lists.offset);
    pairs = reinterpret_cast<const std::int32_t*>(p.step + sections.pairs.offset);
    worker_offsets = reinterpret_cast<const std::int32_t*>(p.step + sections.worker_offsets.offset);
    n_workers = sections.worker_offsets.count - 1;
    merge_offsets = reinterpret_cast<const std::int32_t*>(p.step + sections.merge_offsets.offset);
    merge_inputs = reinterpret_cast<const std::int32_t*>(p.step + sections.merge_inputs.offset);
    n_partials = sections.n_partials;
    most_merge_inputs = sections.most_merge_inputs;
  }
};

/// Stores four neighbouring numbers of an output row, rounded to nearest even if the row is 16-bit.
template <class T>
__device__ __forceinline__ void store_output(const AttentionParams& p, std::int64_t index, float4 x) {
  if (p.out_is_f32)
    *reinterpret_cast<float4*>(p.out + index * 4) = x;
  else
    *reinterpret_cast<uint2*>(p.out + index * 2) = {pack_pair<T>(x.x, x.y), pack_pair<T>(x.z, x.w)};
}

}  // namespace baton::cuda
