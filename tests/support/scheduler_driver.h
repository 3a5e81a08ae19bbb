/// Drives a scheduler over a simulated device as the engine does, and checks what every load must keep.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/simulated_device.h"

namespace baton::testing {

/// A scheduler, its cache and its device, with one step in flight. After each plan and each commit all invariants must
/// hold. Every sequence must end once: with exactly the tokens that it gets alone or, if it was cancelled, with the
/// first of them. In a cache of one layer group registered prefixes are pinned when they are computed, and must have all their blocks
/// and, in a model with states, a snapshot then.
class SchedulerDriver {
 public:
  static constexpr std::int32_t kStateInterval = 2 * kBlockLen;

  SchedulerDriver(const SchedulerOptions& options, const std::vector<CacheGroup>& groups, bool enable_prefix_caching = true,
                  std::int32_t n_tier_slots = 0, std::int32_t n_state_slots = 0, std::int32_t n_tier_states = 0)
      : cache({.block_len = kBlockLen,
               .groups = groups,
               .max_rows_in_flight = 2 * options.max_num_batched_tokens,
               .enable_prefix_caching = enable_prefix_caching,
               .n_tier_slots = n_tier_slots,
               .n_tier_states = n_tier_states,
               .n_state_slots = n_state_slots,
               .n_state_owners = options.max_num_seqs,
               .n_kept_rows = n_state_slots > 0 ? n_kept_rows(options) : 0,
               .state_interval = kStateInterval}),
        scheduler(options, cache),
        device_(groups, options.max_num_seqs + options.max_drafts, n_state_slots, n_kept_rows(options)) {}

  KvCache cache;
  Scheduler scheduler;
  std::int64_t n_accepted = 0;         ///< drafts
  std::int64_t n_model_drafts = 0;     ///< sequences for which the model drafted after a step
  std::int32_t max_pinned_blocks = 0;  ///< a prefix beyond is unpinned at once; so is one beyond the slots for snapshots

  /// Called before a step runs. It may cancel sequences.
  std::function<void(const StepPlan&)> before_commit = [](const StepPlan&) {};

  /// The id of the next sequence: ids ascend from 0.
  std::int64_t next_id() const { return next_id_; }
  /// Adds a waiting sequence with this id. Returns the id.
  std::int64_t add(std::unique_ptr<Sequence> sequence) {
    EXPECT_EQ(sequence->task->id.value, next_id_);
    const std::vector<TokenId> prompt(sequence->schedule->tokens.begin(), sequence->schedule->tokens.end());
    expected_[next_id_] = expected_tokens(prompt, sequence->task->max_len - sequence->task->prompt_len);
    scheduler.add(std::move(sequence));
    scheduler.check_invariants();
    return next_id_++;
  }

  std::size_t n_unfinished() const { return expected_.size(); }
  bool is_unfinished(std::int64_t id) const { return expected_.contains(id); }
  /// Cancels the sequence that has `n_before` unfinished ones before it.
  void cancel(std::size_t n_before) {
    const auto at = std::next(expected_.begin(), static_cast<std::ptrdiff_t>(n_before));
    scheduler.finish(SequenceId{at->first}, FinishReason::abort);
    scheduler.check_invariants();
  }

  /// One step of the engine. Returns false if there was nothing to do.
  bool step() {
    const bool has_committed = commit_awaited();
    const bool is_empty = plan().is_empty();
    return commit_behind() || has_committed || !is_empty || needs_plan_;
  }
  /// Whether there may be more to do even if the last plan was empty and nothing ran.
  bool needs_plan() const { return needs_plan_; }
  /// Commits the steps in flight if the next plan awaits them. Returns whether it did.
  bool commit_awaited() {
    if (in_flight_.empty() || !(in_flight_.back().n_draft_passes || scheduler.awaits_commit())) return false;
    while (commit_oldest()) {
    }
    return true;
  }
  /// Plans a step, which is in flight then if it is not empty. The plan is valid until the next call.
  const StepPlan& plan() {
    StepPlan plan = scheduler.plan();
    scheduler.check_invariants();
    is_planned_ = !plan.is_empty();
    needs_plan_ = plan.needs_another();
    const std::vector<TierCopy> copies = cache.take_copies();
    copies_.insert(copies_.end(), copies.begin(), copies.end());
    if (!is_planned_) return empty_ = std::move(plan);
    InFlight& made = in_flight_.emplace_back(InFlight{build(scheduler, std::move(plan)), {}});
    made.step.copies = std::exchange(copies_, {});
    made.n_draft_passes = scheduler.plan_draft_passes(made.step.plan);
    return made.step.plan;
  }
  /// Commits the steps before the last plan. Returns whether there was one.
  bool commit_behind() {
    const std::size_t n_kept = is_planned_ ? 1 : 0;
    const bool has_some = in_flight_.size() > n_kept;
    while (in_flight_.size() > n_kept) commit_oldest();
    take();
    return has_some;
  }
  /// Runs and commits the oldest step in flight. Returns false if there is none.
  bool commit_oldest() {
    if (in_flight_.empty()) return false;
    const auto [step, n_draft_passes] = std::move(in_flight_.front());
    in_flight_.pop_front();
    before_commit(step.plan);
    const std::vector<StepOutcome> outcomes = device_.run(step);
    for (const StepOutcome& outcome : outcomes) n_accepted += outcome.n_accepted;
    std::vector<DraftRun> runs;
    if (n_draft_passes) {
      runs = scheduler.draft_runs(step.plan, outcomes, *n_draft_passes);
      // What was evicted for the runs goes to the host tier before they write.
      const std::vector<TierCopy> copies = cache.take_copies();
      copies_.insert(copies_.end(), copies.begin(), copies.end());
      EXPECT_TRUE(in_flight_.empty()) << "a step was planned that drafts would come after";
      device_.carry_out(std::exchange(copies_, {}));
    }
    std::vector<std::vector<TokenId>> drafts = draft(runs, outcomes);
    scheduler.commit(step.plan, outcomes);
    scheduler.offer(step.plan, runs, std::move(drafts), 0.001);
    scheduler.check_invariants();
    take();
    return true;
  }
  /// Takes the sequences that have ended and compares their tokens. Pins prefixes, see Scheduler::take_finished.
  void take() {
    for (const auto& sequence : scheduler.take_finished()) {
      EXPECT_LE(sequence->schedule->n_preemptions, kMaxPreemptions);
      EXPECT_LE(sequence->schedule->n_admissions, kMaxPreemptions + 1);
      const auto expected = expected_.find(sequence->task->id.value);
      ASSERT_NE(expected, expected_.end()) << "sequence " << sequence->task->id.value << " ended twice";
      std::vector<TokenId>& tokens = expected->second;
      if (sequence->schedule->finished == FinishReason::abort)
        tokens.resize(std::min(tokens.size(), sequence->schedule->tokens.size()));
      EXPECT_EQ(sequence->schedule->tokens, tokens) << "sequence " << sequence->task->id.value;
      expected_.erase(expected);
      if (sequence->is_prefix_prefill() && sequence->schedule->finished == FinishReason::length) pin(*sequence);
    }
  }
  /// Once all sequences have ended: unpins everything, and drops what is cached. Then nothing may be left.
  void expect_nothing_left() {
    expect_empty();
    while (!pins_.empty()) unpin_oldest();
    EXPECT_EQ(cache.n_used(), 0) << "blocks leaked";
    cache.drop_cached();
    scheduler.check_invariants();
    for (int g = 0; g < cache.n_groups(); ++g)
      EXPECT_EQ(static_cast<std::int32_t>(cache.free_blocks(g).size()), cache.n_blocks(g)) << "blocks leaked";
    EXPECT_EQ(cache.kept_rows().n_taken(), 0) << "drafts leaked";
    if (cache.states() != nullptr) {
      EXPECT_EQ(cache.states()->n_free(), cache.states()->n_slots()) << "slots leaked";
    }
    if (cache.tier() != nullptr) {
      EXPECT_EQ(cache.tier()->n_entries(), 0);
    }
    if (cache.state_tier() != nullptr) {
      EXPECT_EQ(cache.state_tier()->n_entries(), 0);
    }
  }
  std::size_t n_pins() const { return pins_.size(); }
  void unpin_oldest() {
    cache.unpin(pins_.front());
    pins_.pop_front();
    scheduler.check_invariants();
  }
  /// Runs at most `n_most` steps, to the end of all sequences. Then no block may be used but those of pinned prefixes.
  void run_to_end(std::int64_t n_most) {
    std::int64_t n = 0;
    while (step() && n < n_most) ++n;
    expect_empty();
  }
  void expect_empty() {
    take();
    EXPECT_TRUE(expected_.empty()) << expected_.size() << " sequences never ended";
    EXPECT_EQ(scheduler.n_waiting() + scheduler.n_running(), 0);
    EXPECT_EQ(cache.n_used(), cache.n_pinned()) << "blocks leaked";
    if (const StateSlots* const states = cache.states()) {
      EXPECT_EQ(states->n_free() + states->n_snapshots(), states->n_slots());
    }
  }

 private:
  struct InFlight {
    SimulatedDevice::Step step;
    std::optional<std::int32_t> n_draft_passes;  ///< see Scheduler::plan_draft_passes
  };

  /// What a model with a layer for drafts would draft: most of it is right.
  std::vector<std::vector<TokenId>> draft(std::span<const DraftRun> runs, std::span<const StepOutcome> outcomes) {
    std::vector<std::vector<TokenId>> all;
    for (const DraftRun& run : runs) {
      std::vector<TokenId> tokens(run.sequence->schedule->tokens.begin(), run.sequence->schedule->tokens.end());
      const auto outcome = std::ranges::find(outcomes, run.sequence->task->id, &StepOutcome::id);
      for (const TokenOutput& token : outcome->tokens) tokens.push_back(token.token);
      EXPECT_EQ(static_cast<std::int32_t>(tokens.size()), run.n_tokens);
      EXPECT_TRUE(cache.covers(run.sequence->schedule->table, run.n_tokens - 2 + run.n_drafts)) << "a draft has no place";
      std::vector<TokenId>& drafts = all.emplace_back();
      for (std::int32_t i = 0; i < run.n_drafts; ++i) {
        const std::uint64_t hash = SimulatedDevice::chain(tokens);
        if (const std::int32_t position = run.n_tokens - 2 + i; position >= run.sequence->schedule->n_planned)
          device_.write_draft(run.sequence->schedule->table.groups, position);
        drafts.push_back(SimulatedDevice::next_token(hash) + (hash % 4 == 0 ? 1 : 0));
        tokens.push_back(drafts.back());
      }
    }
    n_model_drafts += std::ssize(all);
    return all;
  }
  /// Sometimes fewer than steps have drafts.
  static std::int32_t n_kept_rows(const SchedulerOptions& options) { return options.max_drafts * 3 / 2; }

  void pin(const Sequence& prefix) {
    if (!cache.has_prefix_caching() || cache.n_groups() > 1) return;
    const KvCache::Pin pin =
        cache.pin(prefix.task->scope, std::span(prefix.schedule->tokens.begin(), prefix.schedule->tokens.end()));
    EXPECT_EQ(pin.n_blocks, prefix.task->prompt_len / kBlockLen);
    EXPECT_EQ(pin.snapshot != StateSlots::kNone, cache.states() != nullptr)
        << "prefix " << prefix.task->id.value << " has lost its snapshot";
    pins_.push_back(pin);
    const std::int32_t n_states = cache.states() != nullptr ? cache.states()->n_pinned() : 0;
    if (cache.n_pinned() <= max_pinned_blocks && n_states <= cache.n_snapshot_slots()) return;
    cache.unpin(pin);
    pins_.pop_back();
  }

  SimulatedDevice device_;
  std::deque<InFlight> in_flight_;
  std::deque<KvCache::Pin> pins_;
  bool is_planned_ = false;  ///< the last plan was not empty
  bool needs_plan_ = false;
  std::vector<TierCopy> copies_;  ///< that wait for the next step
  StepPlan empty_;
  std::map<std::int64_t, std::vector<TokenId>> expected_;
  std::int64_t next_id_ = 0;
};

}  // namespace baton::testing
