/// Builds the rows, sampling metadata and work lists of a step, and counts what each sequence reads.
#include "engine/step/batch_builder.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "engine/step/sampler.h"

namespace baton {

/// A step being built: its sequences in batch order, and its sections. The memory is reused by every step.
struct BatchBuilder::Work {
  std::vector<SequenceRows> unordered;        ///< in plan order
  std::vector<std::int32_t> order;            ///< indices into the plan, in batch order
  std::vector<SequenceRows> rows;             ///< of the layer group being added
  std::vector<std::int32_t> first_row;        ///< first row of each sequence, then one past the last row
  std::vector<std::int32_t> sequence_of_row;  ///< in batch order
  std::vector<SequenceReads> reads;           ///< in batch order
  std::vector<TokenId> token_ids;
  std::vector<std::int64_t> kv_indices;
  std::vector<SamplingMetadata> samples;
  SamplingLists lists;
  std::vector<std::int32_t> reset_slots;
  std::vector<StateRun> state_runs;
  std::vector<std::int32_t> relayed;  ///< tokens that each sequence reads in shared reads
  std::size_t n_step_bytes = 0;       ///< size of the last step built

  void clear() {
    unordered.clear();
    first_row.clear();
    sequence_of_row.clear();
    reads.clear();
    token_ids.clear();
    samples.clear();
    lists.clear();
    reset_slots.clear();
    state_runs.clear();
  }
};

namespace {

TokenId token_at(const Sequence& sequence, const PlannedSequence& planned, std::int32_t position) {
  if (position < sequence.n_tokens()) return sequence.schedule->tokens[static_cast<std::size_t>(position)];
  if (!planned.drafts.empty()) return planned.drafts.at(static_cast<std::size_t>(position - sequence.n_tokens()));
  check(position == sequence.n_tokens() && sequence.schedule->n_samples_in_flight > 0,
        "BatchBuilder: a row whose token is not sampled");
  return kLastTokenOfSlot;
}

DraftSource source_of(const PlannedSequence& planned, const Sequence& sequence) {
  if (planned.has_forced_drafts) return DraftSource::grammar;
  return sequence.schedule->speculation->drafts_by_model() ? DraftSource::mtp : DraftSource::ngram;
}

/// A sequence's rows as the attention of a layer group sees them.
SequenceRows rows_of(const Sequence& sequence, const PlannedSequence& planned, int group) {
  return {planned.slot, sequence.schedule->table.blocks_of(group), planned.first_position + planned.n_rows, planned.n_rows,
          sequence.schedule->table.groups[static_cast<std::size_t>(group)].first_block};
}

StateRun run_of(const PlannedSequence& planned, std::int32_t first_row) {
  return {.first_row = first_row,
          .n_rows = planned.n_rows,
          .position = planned.first_position,
          .read_slot = planned.state.read == StateSlots::kNone ? StateRun::kZeroState : planned.state.read,
          .write_slot = planned.state.write,
          .n_replayed = planned.state.replayed.n,
          .first_replayed = planned.state.replayed.first,
          .n_drafts = planned.state.kept.n,
          .first_kept = planned.state.kept.first};
}

/// Positions that a sequence would read in one layer as a leaf of its own: its context once for every tile of its rows.
std::int64_t plain_tokens(std::span<const TokenRow> rows, std::int32_t row_tile) {
  std::int64_t n_tokens = 0;
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(row_tile)) {
    const std::size_t end = std::min(rows.size(), begin + static_cast<std::size_t>(row_tile));
    n_tokens += rows[end - 1].kv_hi - rows[begin].kv_lo;
  }
  return n_tokens;
}

}  // namespace

BatchBuilder::BatchBuilder(std::vector<LayerGroup> groups, const AttentionPlanOptions& options, bool has_recurrent_layers)
    : groups_(std::move(groups)),
      options_(options),
      has_recurrent_layers_(has_recurrent_layers),
      work_(std::make_unique<Work>()) {
  check(!groups_.empty(), "BatchBuilder: no layer group");
  const auto full = std::ranges::find(groups_, 0, [](const LayerGroup& group) { return group.shape.window; });
  order_group_ = full != groups_.end() ? static_cast<int>(full - groups_.begin()) : 0;
}
BatchBuilder::~BatchBuilder() = default;
BatchBuilder::BatchBuilder(BatchBuilder&&) noexcept = default;

/// Gives a mask to each of a sequence's samples, the last ones from `first_sample` on.
void BatchBuilder::add_masks(std::int32_t sequence, std::size_t first_sample, BuiltStep& built) {
  for (std::size_t sample = first_sample; sample < work_->samples.size(); ++sample) {
    work_->samples[sample].mask = static_cast<std::int32_t>(built.masked.size());
    built.masked.push_back({sequence, static_cast<std::int32_t>(sample)});
  }
}

/// Lays out the rows and samples of the plan's sequences, in batch order.
void BatchBuilder::lay_out(const StepPlan& plan, BuiltStep& built) {
  Work& work = *work_;
  work.clear();
  const std::span<StepSequence> all = built.sequences;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i + 2 * kPrefetchDistance < all.size()) all[i + 2 * kPrefetchDistance].sequence->prefetch();
    if (i + kPrefetchDistance < all.size()) all[i + kPrefetchDistance].sequence->prefetch_table();
    const SequenceRows& rows = work.unordered.emplace_back(rows_of(*all[i].sequence, plan.sequences[i], order_group_));
    // The planner compares the tables' beginnings.
    __builtin_prefetch(rows.blocks.data());
  }
  const std::span<const std::int32_t> order = planner_.order(work.unordered);
  work.order.assign(order.begin(), order.end());
  for (std::size_t i = 0; i < work.order.size(); ++i) {
    const auto at = static_cast<std::size_t>(work.order[i]);
    if (i + kPrefetchDistance < work.order.size())
      all[static_cast<std::size_t>(work.order[i + kPrefetchDistance])].sequence->prefetch_sampling();
    const PlannedSequence& planned = plan.sequences[at];
    Sequence& sequence = *all[at].sequence;
    SequenceSampling& sampling = sequence.sampling.write();
    if (planned.max_tokens > 0 && !sampling.constant) sampling.constant = constant_sampling(sequence);
    count_tokens(sequence, sampling.counts);
    work.first_row.push_back(static_cast<std::int32_t>(work.token_ids.size()));
    work.sequence_of_row.insert(work.sequence_of_row.end(), static_cast<std::size_t>(planned.n_rows),
                                static_cast<std::int32_t>(work.reads.size()));
    if (has_recurrent_layers_) work.state_runs.push_back(run_of(planned, work.first_row.back()));
    Range& own_samples = all[at].samples;
    own_samples.first = static_cast<std::int32_t>(work.samples.size());
    for (std::int32_t position = planned.first_position; position < planned.first_position + planned.n_rows; ++position) {
      work.token_ids.push_back(token_at(sequence, planned, position));
      if (!sequence.scores_row(position)) continue;
      work.samples.push_back(make_scoring(sequence, static_cast<std::int32_t>(work.token_ids.size()) - 1, position));
      built.drafts_of_sample.emplace_back();
    }
    sampling.n_scored += sequence.n_scores(planned.first_position, planned.n_rows);
    work.reads.push_back({.id = sequence.task->id});
    own_samples.count = static_cast<std::int32_t>(work.samples.size()) - own_samples.first + planned.max_tokens;
    if (planned.max_tokens == 0) continue;
    const auto n_drafts = static_cast<std::int32_t>(planned.drafts.size());
    const std::int32_t first_row = static_cast<std::int32_t>(work.token_ids.size()) - 1 - n_drafts;
    const std::size_t first_sample = work.samples.size();
    work.samples.push_back(make_sampling(sequence, first_row, work.lists));
    built.drafts_of_sample.emplace_back();
    for (std::int32_t n = 1; n <= n_drafts; ++n) {
      const auto drafts = std::span(planned.drafts).first(static_cast<std::size_t>(n));
      work.samples.push_back(
          make_draft_sampling(sequence, drafts, SlotId{planned.first_draft_slot.value + n - 1}, first_row + n, work.lists));
      built.drafts_of_sample.push_back(drafts);
    }
    if (sampling.constant->has_grammar) add_masks(static_cast<std::int32_t>(at), first_sample, built);
  }
  work.first_row.push_back(static_cast<std::int32_t>(work.token_ids.size()));
  for (const SlotId slot : plan.reset_slots) work.reset_slots.push_back(slot.value);
}

void BuiltStep::restart() {
  input.restart();
  sequences.clear();
  drafts_of_sample.clear();
  masked.clear();
  nodes.clear();
  kv_bytes_requested = kv_bytes_saved = 0;
}

void BatchBuilder::reuse(BuiltStep ended) {
  const std::size_t most_bytes = std::max<std::size_t>(4 * work_->n_step_bytes, 64 << 10);
  if (spares_.size() < kMostSpares && ended.input.capacity_bytes() <= most_bytes) spares_.push_back(std::move(ended));
}

/// An empty step, in the memory of an ended one if there is one.
BuiltStep BatchBuilder::take_spare() {
  if (spares_.empty()) return {.input = StepInput(static_cast<std::int32_t>(groups_.size()))};
  BuiltStep built = std::move(spares_.back());
  spares_.pop_back();
  built.restart();
  return built;
}

BuiltStep BatchBuilder::build(const StepPlan& plan, std::span<Sequence* const> sequences) {
  check(plan.sequences.size() == sequences.size(), "BatchBuilder: other sequences than the plan's");
  Work& work = *work_;
  BuiltStep built = take_spare();
  if (built.input.capacity_bytes() < work.n_step_bytes) built.input.reserve(work.n_step_bytes + work.n_step_bytes / 8);
  built.sequences.reserve(sequences.size());
  for (Sequence* const sequence : sequences) built.sequences.push_back({sequence});
  built.drafts_of_sample.reserve(plan.sequences.size());
  lay_out(plan, built);

  StepHeader& header = built.input.header();
  header.step = plan.step;
  header.n_rows = static_cast<std::int32_t>(work.token_ids.size());
  built.input.append(SectionKind::token_ids, work.token_ids);
  built.input.append(SectionKind::reset_slots, work.reset_slots);
  built.input.append(SectionKind::samples, work.samples);
  built.input.append(SectionKind::token_counts, work.lists.counts);
  built.input.append(SectionKind::token_biases, work.lists.biases);
  built.input.append(SectionKind::token_bans, work.lists.bans);
  built.input.append(SectionKind::allowed_ids, work.lists.allowed_ids);
  built.input.append(SectionKind::state_runs, work.state_runs);
  for (int group = 0; group < static_cast<int>(groups_.size()); ++group) add_group(plan, group, built);
  built.input.finish();
  work.n_step_bytes = built.input.bytes().size();
  for (std::size_t i = 0; i < work.reads.size(); ++i) {
    const SequenceReads& reads = work.reads[i];
    built.kv_bytes_requested += reads.kv_bytes_requested;
    built.kv_bytes_saved += reads.kv_bytes_saved;
    built.sequences[static_cast<std::size_t>(work.order[i])].reads = reads;
  }
  return built;
}

/// Appends the sections of one layer group: its attention plan and the slots where keys and values are stored.
void BatchBuilder::add_group(const StepPlan& plan, int group, BuiltStep& built) {
  Work& work = *work_;
  const LayerGroup& of = groups_[static_cast<std::size_t>(group)];
  const std::int32_t block_len = of.shape.block_len;
  work.rows.clear();
  work.kv_indices.clear();
  for (const std::int32_t index : work.order) {
    const auto at = static_cast<std::size_t>(index);
    const SequenceRows& rows = work.rows.emplace_back(
        group == order_group_ ? work.unordered[at] : rows_of(*built.sequences[at].sequence, plan.sequences[at], group));
    // Rows of tokens whose keys were found are there for the state of recurrent layers alone.
    const std::int32_t n_found = built.sequences[at].sequence->schedule->table.n_found_blocks * block_len;
    for (std::int32_t position = rows.kv_len - rows.n_rows; position < rows.kv_len; ++position) {
      const std::int64_t block = rows.blocks[static_cast<std::size_t>(position / block_len)].value;
      work.kv_indices.push_back(position < n_found ? kNoKvIndex : block * block_len + position % block_len);
    }
  }
  const AttentionPlan& attention = planner_.plan(work.rows, of.shape, options_);
  append_plan(built.input, attention, group);
  built.input.append(SectionKind::kv_indices, work.kv_indices, group);
  add_reads(of, attention, built);
}

/// Charges the KV bytes of every item to the sequences whose rows it covers.
void BatchBuilder::add_reads(const LayerGroup& group, const AttentionPlan& plan, BuiltStep& built) {
  const std::vector<std::int32_t>& first_row = work_->first_row;
  std::vector<SequenceReads>& reads = work_->reads;
  std::vector<std::int32_t>& relayed = work_->relayed;
  relayed.assign(reads.size(), 0);
  const std::int64_t token_bytes = group.shape.token_bytes() * group.n_layers;
  for (const AttentionItem& item : plan.items) {
    const std::int32_t len = item.kv_end - item.kv_begin;
    const std::int64_t bytes = len * token_bytes;
    const std::int32_t end_row = item.first_row + item.n_rows;
    auto i = static_cast<std::size_t>(work_->sequence_of_row[static_cast<std::size_t>(item.first_row)]);
    // Each share is a difference of the rounded running sum, so the shares add up to the item's bytes.
    for (std::int64_t from = 0; i < reads.size() && first_row[i] < end_row; ++i) {
      const bool is_last = first_row[i + 1] >= end_row;
      const std::int64_t until = is_last ? bytes : bytes * (first_row[i + 1] - item.first_row) / item.n_rows;
      reads[i].kv_bytes_requested += until - from;
      reads[i].kv_bytes_saved -= until - from;
      from = until;
      if (item.n_sequences < 2 || first_row[i + 1] > end_row) continue;  // counted by the item of its last row
      relayed[i] += len;
      reads[i].largest_group = std::max(reads[i].largest_group, item.n_sequences);
    }
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const auto begin = static_cast<std::size_t>(first_row[i]);
    const auto n_rows = static_cast<std::size_t>(first_row[i + 1]) - begin;
    reads[i].kv_bytes_saved += plain_tokens(std::span(plan.rows).subspan(begin, n_rows), plan.row_tile) * token_bytes;
    reads[i].relayed_tokens = std::max(reads[i].relayed_tokens, relayed[i]);
  }
  if (plan.stats.nodes.size() > built.nodes.size()) built.nodes = plan.stats.nodes;
}

void read_results(const StepPlan& plan, const BuiltStep& built, std::span<const SampleResult> results,
                  std::vector<StepOutcome>& outcomes) {
  check(results.size() == built.drafts_of_sample.size(), "read_results: another number of results than of samples");
  outcomes.clear();
  outcomes.reserve(plan.sequences.size());
  for (std::size_t p = 0; p < plan.sequences.size(); ++p) {
    const PlannedSequence& planned = plan.sequences[p];
    if (p + kPrefetchDistance < built.sequences.size()) {
      const StepSequence& coming = built.sequences[p + kPrefetchDistance];
      if (coming.sequence != nullptr) coming.sequence->prefetch();
      __builtin_prefetch(results.data() + coming.samples.first);
    }
    const Sequence* sequence = built.sequences[p].sequence;
    if (sequence == nullptr || sequence->schedule->finished) continue;
    const Range samples = built.sequences[p].samples;
    bool has_outcome = false;
    for (auto i = static_cast<std::size_t>(samples.first); i < static_cast<std::size_t>(samples.first + samples.count); ++i) {
      if (!has_outcome) {
        has_outcome = read_result(*sequence, results[i], outcomes.emplace_back());
        if (!has_outcome) outcomes.pop_back();
      } else if (auto outcome = read_result(*sequence, results[i])) {
        join(outcomes.back(), std::move(*outcome), built.drafts_of_sample[i]);
      }
    }
    if (has_outcome && !planned.drafts.empty()) outcomes.back().draft_source = source_of(planned, *sequence);
    if (!has_outcome && (planned.max_tokens == 0 || samples.count == 0)) outcomes.emplace_back().id = planned.id;
  }
}

}  // namespace baton
