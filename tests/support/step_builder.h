/// Steps packed by hand, for tests below the engine.
#pragma once

#include <span>
#include <vector>

#include "kernels/batch.h"
#include "plan/attention_plan.h"

namespace baton::testing {

/// One sequence's rows in a step: `tokens` stand at the end of kv_len positions.
struct StepSequence {
  SequenceRows rows;
  std::vector<TokenId> tokens;
  bool logits_of_every_row = false;  ///< else of the last
  SamplingMetadata sampling;         ///< row is filled in
};

/// Packs one layer group. Sequences must stand in depth_first_order.
inline StepInput pack_step(std::span<const StepSequence> sequences, const AttentionShape& shape,
                           const AttentionPlanOptions& options, std::vector<std::int32_t> reset_slots = {}) {
  std::vector<SequenceRows> planned;
  std::vector<TokenId> token_ids;
  std::vector<std::int64_t> kv_indices;
  std::vector<SamplingMetadata> samples;
  for (const StepSequence& sequence : sequences) {
    planned.push_back(sequence.rows);
    const std::int32_t begin = sequence.rows.kv_len - sequence.rows.n_rows;
    for (std::int32_t i = 0; i < sequence.rows.n_rows; ++i) {
      const std::int32_t position = begin + i;
      const std::int64_t block = sequence.rows.blocks[static_cast<std::size_t>(position / shape.block_len)].value;
      kv_indices.push_back(block * shape.block_len + position % shape.block_len);
      if (sequence.logits_of_every_row || i + 1 == sequence.rows.n_rows) {
        SamplingMetadata sampling = sequence.sampling;
        sampling.slot = sequence.rows.slot.value;
        sampling.row = static_cast<std::int32_t>(token_ids.size());
        samples.push_back(sampling);
      }
      token_ids.push_back(sequence.tokens[static_cast<std::size_t>(i)]);
    }
  }
  const AttentionPlan plan = plan_attention(planned, shape, options);
  StepInput step;
  step.header().n_rows = static_cast<std::int32_t>(plan.rows.size());
  step.append(SectionKind::token_ids, token_ids);
  step.append(SectionKind::reset_slots, reset_slots);
  step.append(SectionKind::samples, samples);
  append_plan(step, plan);
  step.append(SectionKind::kv_indices, kv_indices);
  step.finish();
  return step;
}

}  // namespace baton::testing
