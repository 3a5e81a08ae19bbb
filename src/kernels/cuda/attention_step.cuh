/// The step's arrays of one layer group, found through the header on the device.
#pragma once

#include "kernels/cuda/attention_params.h"

namespace baton::cuda {

struct StepArrays {
  const AttentionItem* items;
  const std::int32_t* block_lists;
  const std::int32_t* merge_offsets;
  const std::int32_t* merge_inputs;
  const std::int32_t* pairs;
  const std::int32_t* worker_offsets;
  int n_workers;  ///< 0: pairs are not dealt
  int n_rows;     ///< of the step: a graph may have been recorded for more
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

}  // namespace baton::cuda
