/// Steps built by hand, for tests below the engine.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "kernels/batch.h"
#include "plan/attention_plan.h"

namespace baton::testing {

/// One sequence's rows in a step: `tokens` are the last of its kv_len positions.
struct StepSequence {
  SequenceRows rows;
  std::vector<TokenId> tokens;
  bool logits_of_every_row = false;  ///< otherwise only of the last row
  SamplingMetadata sampling;         ///< row is filled in
  bool is_recurrent = false;         ///< it has a state in recurrent layers, in the slot of its number
};

/// Builds a step with a layer group for each of `shapes`, which have the same block length and share the block tables.
/// Sequences must be in depth_first_order.
inline StepInput pack_groups_step(std::span<const StepSequence> sequences, std::span<const AttentionShape> shapes,
                                  const AttentionPlanOptions& options, std::vector<std::int32_t> reset_slots = {}) {
  const std::int32_t block_len = shapes[0].block_len;
  std::vector<SequenceRows> planned;
  std::vector<TokenId> token_ids;
  std::vector<std::int64_t> kv_indices;
  std::vector<SamplingMetadata> samples;
  std::vector<StateRun> state_runs;
  for (const StepSequence& sequence : sequences) {
    planned.push_back(sequence.rows);
    const std::int32_t begin = sequence.rows.kv_len - sequence.rows.n_rows;
    const std::int32_t slot = sequence.rows.slot.value;
    if (sequence.is_recurrent)
      state_runs.push_back({static_cast<std::int32_t>(token_ids.size()), sequence.rows.n_rows, begin,
                            begin == 0 ? StateRun::kZeroState : slot, slot});
    for (std::int32_t i = 0; i < sequence.rows.n_rows; ++i) {
      const std::int32_t position = begin + i;
      const std::int64_t block = sequence.rows.blocks[static_cast<std::size_t>(position / block_len)].value;
      kv_indices.push_back(block * block_len + position % block_len);
      if (sequence.logits_of_every_row || i + 1 == sequence.rows.n_rows) {
        SamplingMetadata sampling = sequence.sampling;
        sampling.slot = sequence.rows.slot.value;
        sampling.row = static_cast<std::int32_t>(token_ids.size());
        samples.push_back(sampling);
      }
      token_ids.push_back(sequence.tokens[static_cast<std::size_t>(i)]);
    }
  }
  StepInput step(static_cast<std::int32_t>(shapes.size()));
  step.header().n_rows = static_cast<std::int32_t>(token_ids.size());
  step.append(SectionKind::token_ids, token_ids);
  step.append(SectionKind::reset_slots, reset_slots);
  step.append(SectionKind::samples, samples);
  step.append(SectionKind::state_runs, state_runs);
  for (int group = 0; group < step.header().n_groups; ++group) {
    append_plan(step, plan_attention(planned, shapes[static_cast<std::size_t>(group)], options), group);
    step.append(SectionKind::kv_indices, kv_indices, group);
  }
  step.finish();
  return step;
}

/// The same for one layer group.
inline StepInput pack_step(std::span<const StepSequence> sequences, const AttentionShape& shape,
                           const AttentionPlanOptions& options, std::vector<std::int32_t> reset_slots = {}) {
  return pack_groups_step(sequences, std::span(&shape, 1), options, std::move(reset_slots));
}

}  // namespace baton::testing
