/// Finds the next token of each row of a step, and plans the attention of the passes after the first.
#include "engine/step/draft_builder.h"

#include <limits>
#include <numeric>
#include <utility>

#include "core/check.h"

namespace baton {
namespace {

/// The most likely token of a row.
SamplingMetadata greedy_sample(std::int32_t row, SlotId slot) {
  SamplingMetadata metadata;
  metadata.row = row;
  metadata.slot = slot.value;
  metadata.max_tokens = std::numeric_limits<std::int32_t>::max();
  return metadata;
}

/// What is known of a sequence's tokens.
struct KnownTokens {
  const Sequence* sequence = nullptr;  ///< null: it has ended
  const StepOutcome* outcome = nullptr;

  std::optional<TokenId> at(std::int32_t position) const {
    if (sequence == nullptr) return std::nullopt;
    const std::int32_t n_tokens = sequence->n_tokens();
    if (position < n_tokens) return sequence->schedule->tokens[static_cast<std::size_t>(position)];
    const auto i = static_cast<std::size_t>(position - n_tokens);
    if (outcome == nullptr || i >= outcome->tokens.size()) return std::nullopt;
    return outcome->tokens[i].token;
  }
};

/// Of each slot that the plan names.
std::vector<KnownTokens> known_tokens(const StepPlan& plan, const BuiltStep& step, std::span<const StepOutcome> outcomes) {
  std::vector<KnownTokens> known;
  auto outcome = outcomes.begin();
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const PlannedSequence& planned = plan.sequences[i];
    const auto slot = static_cast<std::size_t>(planned.slot.value);
    if (slot >= known.size()) known.resize(slot + 1);
    known[slot].sequence = step.sequences[i].sequence;
    if (outcome != outcomes.end() && outcome->id == planned.id) known[slot].outcome = &*outcome++;
  }
  return known;
}

/// The token after that of each row. A sequence's rows follow one another.
std::vector<TokenId> next_tokens(const StepView& view, std::span<const KnownTokens> known) {
  const auto rows = view.span<TokenRow>(SectionKind::rows);
  const auto tokens = view.span<TokenId>(SectionKind::token_ids);
  std::vector<TokenId> next(rows.size(), 0);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (const auto token = known[static_cast<std::size_t>(rows[r].slot)].at(rows[r].position + 1))
      next[r] = *token;
    else if (r + 1 < rows.size() && rows[r + 1].slot == rows[r].slot && tokens[r + 1] >= 0)
      next[r] = tokens[r + 1];
  }
  return next;
}

template <class T>
void copy_section(const StepView& from, SectionKind kind, StepInput& to) {
  to.append(kind, from.span<T>(kind));
}

/// Copies the attention of a step with one layer group.
void copy_group(const StepView& from, StepInput& to) {
  to.group(0) = from.group(0);
  copy_section<TokenRow>(from, SectionKind::rows, to);
  copy_section<std::int64_t>(from, SectionKind::kv_indices, to);
  copy_section<AttentionItem>(from, SectionKind::items, to);
  for (const SectionKind kind : {SectionKind::block_lists, SectionKind::merge_offsets, SectionKind::merge_inputs,
                                 SectionKind::pairs, SectionKind::worker_offsets})
    copy_section<std::int32_t>(from, kind, to);
}

}  // namespace

DraftPass DraftBuilder::first(const StepPlan& plan, const BuiltStep& step, std::span<const StepOutcome> outcomes,
                              std::span<const DraftRun> runs) {
  const StepView view = step.input.view();
  check(view.header->n_groups == 1, "DraftBuilder: a model with several layer groups");
  const auto rows = view.span<TokenRow>(SectionKind::rows);
  std::vector<std::int32_t> run_of_slot;
  std::vector<std::int32_t> slots;
  for (const PlannedSequence& planned : plan.sequences) {
    slots.push_back(planned.slot.value);
    run_of_slot.resize(std::max(run_of_slot.size(), static_cast<std::size_t>(planned.slot.value) + 1), -1);
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    run_of_slot[static_cast<std::size_t>(runs[i].slot.value)] = static_cast<std::int32_t>(i);

  DraftPass pass;
  std::vector<SamplingMetadata> samples;
  last_rows_.assign(runs.size(), 0);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::int32_t run = run_of_slot[static_cast<std::size_t>(rows[r].slot)];
    if (run < 0 || rows[r].position + 2 != runs[static_cast<std::size_t>(run)].n_tokens) continue;
    const auto row = static_cast<std::int32_t>(r);
    last_rows_[static_cast<std::size_t>(run)] = row;
    samples.push_back(greedy_sample(row, SlotId{rows[r].slot}));
    pass.run_of_sample.push_back(static_cast<std::size_t>(run));
  }
  check(samples.size() == runs.size(), "DraftBuilder: a sequence drafts without its last row");
  pass.hidden_rows.resize(rows.size());
  std::iota(pass.hidden_rows.begin(), pass.hidden_rows.end(), 0);
  pass.input.header().step = kDraftStep;
  pass.input.header().n_rows = view.header->n_rows;
  pass.input.append(SectionKind::token_ids, next_tokens(view, known_tokens(plan, step, outcomes)));
  pass.input.append(SectionKind::reset_slots, slots);
  pass.input.append(SectionKind::samples, samples);
  copy_group(view, pass.input);
  pass.input.finish();
  return pass;
}

/// The pass in which runs that want more than `n_before` drafts get one more.
DraftPass DraftBuilder::next(std::int32_t n_before, std::span<const DraftRun> runs) {
  std::vector<std::size_t> drafting;
  std::vector<SequenceRows> unordered;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].n_drafts <= n_before) continue;
    const BlockTable& table = runs[i].sequence->schedule->table;
    drafting.push_back(i);
    unordered.push_back({runs[i].slot, table.blocks_of(0), runs[i].n_tokens - 1 + n_before, 1, table.groups[0].first_block});
  }
  DraftPass pass;
  std::vector<SequenceRows> rows;
  std::vector<SamplingMetadata> samples;
  std::vector<std::int64_t> kv_indices;
  const std::int32_t block_len = group_.shape.block_len;
  for (const std::int32_t at : planner_.order(unordered)) {
    const std::size_t run = drafting[static_cast<std::size_t>(at)];
    const SequenceRows& row = rows.emplace_back(unordered[static_cast<std::size_t>(at)]);
    const std::int32_t position = row.kv_len - 1;
    const std::int64_t block = row.blocks[static_cast<std::size_t>(position / block_len)].value;
    kv_indices.push_back(block * block_len + position % block_len);
    pass.hidden_rows.push_back(last_rows_[run]);
    last_rows_[run] = static_cast<std::int32_t>(samples.size());
    samples.push_back(greedy_sample(last_rows_[run], row.slot));
    pass.run_of_sample.push_back(run);
  }
  pass.input.header().step = kDraftStep;
  pass.input.header().n_rows = static_cast<std::int32_t>(rows.size());
  pass.input.append(SectionKind::token_ids, std::vector<TokenId>(rows.size(), kLastTokenOfSlot));
  pass.input.append(SectionKind::samples, samples);
  append_plan(pass.input, planner_.plan(rows, group_.shape, options_));
  pass.input.append(SectionKind::kv_indices, kv_indices, 0);
  pass.input.finish();
  return pass;
}

std::vector<DraftPass> DraftBuilder::build(const StepPlan& plan, const BuiltStep& step, std::span<const StepOutcome> outcomes,
                                           std::span<const DraftRun> runs) {
  std::vector<DraftPass> passes;
  passes.push_back(first(plan, step, outcomes, runs));
  std::int32_t n_most = 1;
  for (const DraftRun& run : runs) n_most = std::max(n_most, run.n_drafts);
  for (std::int32_t n = 1; n < n_most; ++n) passes.push_back(next(n, runs));
  return passes;
}

std::vector<std::vector<TokenId>> read_drafts(std::span<const DraftPass> passes, std::span<const SampleResult> results,
                                              std::size_t n_runs) {
  std::vector<std::vector<TokenId>> drafts(n_runs);
  auto result = results.begin();
  for (std::size_t n = 0; n < passes.size(); ++n)
    for (const std::size_t run : passes[n].run_of_sample) {
      check(result != results.end(), "read_drafts: fewer results than samples");
      const bool is_token = result->was_finished == 0 && result->finished == FinishedBy::not_finished;
      if (is_token && drafts[run].size() == n) drafts[run].push_back(result->token);
      ++result;
    }
  return drafts;
}

}  // namespace baton
