/// Scheduler: random loads in tiny caches on a simulated device. Checks every guarantee of scheduler.h after every
/// step.
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/long_run.h"
#include "support/scheduler_driver.h"
#include "support/sequence_editor.h"
#include "support/simulated_device.h"

namespace baton {
namespace {

using testing::kBlockLen;
using testing::make_sequence;
using testing::prompt_of;
using testing::SchedulerDriver;

struct LoadOptions {
  std::int32_t n_blocks = 14;
  std::int32_t max_num_seqs = 5;
  std::int32_t max_num_batched_tokens = 11;
  std::int32_t max_prefill_tokens = 0;
  bool caching = true;
  bool with_pin = false;
  std::int32_t n_priorities = 1;
  std::uint32_t mean_gap = 3;  ///< steps between arrivals
  std::int32_t max_drafts = 0;
  bool drafters_wait_alone = false;
  std::vector<CacheGroup> groups = {};  ///< empty: one of n_blocks, without a window
  std::int32_t longest = 0;             ///< tokens of the longest sequence; 0: what n_blocks hold
  std::int32_t most_new_tokens = 20;
  bool by_size = false;
  std::int32_t n_tier_slots = 0;
  std::int32_t n_state_slots = 0;
  std::int32_t n_tier_states = 0;
  std::int32_t state_snapshot_interval = 0;
  bool has_mtp = false;  ///< the model drafts for half of the sequences that draft
};

struct LoadCounts {
  std::int64_t n_preempted = 0;
  std::int64_t n_deferred = 0;
  std::int64_t n_overtaken = 0;
  std::int64_t n_cancelled = 0;
  std::int64_t n_mixed_steps = 0;  ///< with decodes and prefill
  std::int64_t n_drafts = 0;
  std::int64_t n_model_drafts = 0;  ///< sequences that the model drafted for
  std::int64_t n_accepted = 0;
  std::int64_t n_mixed_with_drafts = 0;
  std::int64_t n_cached = 0;              ///< tokens found at first admissions
  std::int64_t n_loaded = 0;              ///< entries from the host tier
  std::int64_t n_forgotten = 0;           ///< entries
  std::int64_t n_loads_without_rows = 0;  ///< steps
  std::int64_t n_replayed = 0;            ///< tokens, at first admissions
  std::int64_t n_snapshots_evicted = 0;
  std::int64_t n_states_loaded = 0;
  std::int64_t n_states_forgotten = 0;
};

class RandomLoad {
 public:
  RandomLoad(std::uint32_t seed, const LoadOptions& options, LoadCounts* counts)
      : rng_(seed),
        options_(options),
        counts_(counts),
        driver_({.by_size = options.by_size,
                 .max_num_seqs = options.max_num_seqs,
                 .max_num_batched_tokens = options.max_num_batched_tokens,
                 .max_prefill_tokens = options.max_prefill_tokens,
                 .state_snapshot_interval = options.state_snapshot_interval,
                 .state_loads = 3,
                 .max_drafts = options.max_drafts,
                 .drafters_wait_alone = options.drafters_wait_alone,
                 .has_mtp = options.has_mtp},
                options.groups.empty() ? std::vector<CacheGroup>{{.n_blocks = options.n_blocks}} : options.groups,
                options.caching, options.n_tier_slots, options.n_state_slots, options.n_tier_states),
        longest_(options.longest > 0 ? options.longest : (options.n_blocks - (options.with_pin ? 2 : 0)) * kBlockLen) {
    if (options.with_pin) pin();
    driver_.before_commit = [this](const StepPlan& plan) {
      if (plan.n_drafts > 0 && rng_() % 20 == 0) cancel();
    };
  }

  /// Every sequence that is not cancelled ends with exactly the tokens that it gets alone, and nothing is left over.
  void run(int n_sequences) {
    std::int64_t n_steps = 0;
    while (true) {
      while (driver_.next_id() < n_sequences && rng_() % options_.mean_gap == 0) arrive();
      if (rng_() % 30 == 0) cancel();
      const bool has_committed = driver_.commit_awaited();
      const bool is_empty = plan();
      if (!driver_.commit_behind() && is_empty && !has_committed && !driver_.needs_plan()) {
        ASSERT_EQ(driver_.scheduler.n_running() + driver_.scheduler.n_waiting(), 0)
            << "nothing is planned, nothing runs, and sequences wait";
        if (driver_.next_id() == n_sequences) break;
      }
      // Every step that is not empty computes at least one row, and a row is computed at most once for each admission
      // of its sequence.
      ASSERT_LE(++n_steps,
                100 + options_.mean_gap * static_cast<std::uint32_t>(n_sequences) * 4 + 2 * (kMaxPreemptions + 1) * n_rows_due_)
          << "it continues for ever";
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(driver_.cache.n_pinned(0), options_.with_pin ? 2 : 0);
    if (options_.with_pin) driver_.cache.unpin(pin_);
    driver_.expect_nothing_left();
    counts_->n_accepted += driver_.n_accepted;
    counts_->n_model_drafts += driver_.n_model_drafts;
    if (const HostTier* const tier = driver_.cache.tier()) {
      counts_->n_loaded += tier->n_loaded();
      counts_->n_forgotten += tier->n_forgotten();
    }
    if (const StateTier* const tier = driver_.cache.state_tier()) {
      counts_->n_states_loaded += tier->n_loaded();
      counts_->n_states_forgotten += tier->n_forgotten();
    }
    if (const StateSlots* const states = driver_.cache.states()) counts_->n_snapshots_evicted += states->n_evicted();
  }

 private:
  void pin() {
    driver_.add(make_sequence(driver_.next_id(), prompt_of(8, 1), 0));
    while (driver_.step()) {
    }
    pin_ = driver_.cache.pin({}, prompt_of(8, 1));
    EXPECT_EQ(pin_.n_blocks, 2);
  }

  void arrive() {
    static const std::vector<CacheScope> scopes{{}, {}, {"", "x", 8}, {"", "y", 8}};
    std::vector<TokenId> prompt = prompt_of(4 * (rng_() % 6), 1);  // common beginnings
    while (prompt.empty() || rng_() % 5 != 0) prompt.push_back(static_cast<TokenId>(1 + rng_() % 3));
    if (static_cast<std::int32_t>(prompt.size()) > longest_ - 2) prompt.resize(static_cast<std::size_t>(longest_ - 2));
    const auto n = static_cast<std::int32_t>(prompt.size());
    const auto max_tokens =
        1 + static_cast<std::int32_t>(rng_() % static_cast<std::uint32_t>(std::min(options_.most_new_tokens, longest_ - n)));
    n_rows_due_ += n + max_tokens;
    auto sequence = make_sequence(driver_.next_id(), prompt, max_tokens, scopes[rng_() % scopes.size()]);
    SequenceEditor::task(*sequence).priority =
        static_cast<std::int32_t>(rng_() % static_cast<std::uint32_t>(options_.n_priorities));
    if (options_.max_drafts > 0 && rng_() % 4 != 0) {
      SpeculationOptions speculation{.n_tokens = 5, .lookup_max = 2, .lookup_min = 1};
      if (options_.has_mtp && rng_() % 2 == 0) speculation = {.n_tokens = 3, .method = DraftMethod::mtp};
      SequenceEditor::schedule(*sequence).speculation.emplace(speculation);
    }
    driver_.add(std::move(sequence));
  }

  void cancel() {
    if (driver_.n_unfinished() == 0) return;
    driver_.cancel(rng_() % driver_.n_unfinished());
    ++counts_->n_cancelled;
  }

  /// Plans a step and checks it. Returns true if it is empty.
  bool plan() {
    const Scheduler& scheduler = driver_.scheduler;
    std::set<SequenceId> decoding;
    for (const SequenceId id : scheduler.unfinished()) {
      const Sequence& sequence = *scheduler.find(id);
      const bool may_sit_out =
          options_.drafters_wait_alone && sequence.schedule->speculation && sequence.schedule->n_samples_in_flight > 0;
      if (sequence.schedule->state == SequenceState::running && sequence.n_rows_left() == 1 && !may_sit_out)
        decoding.insert(id);
    }
    const StepPlan& plan = driver_.plan();
    EXPECT_LE(plan.n_rows, options_.max_num_batched_tokens);
    EXPECT_LE(plan.n_loaded_tokens, std::max(kBlockLen, options_.max_num_batched_tokens)) << "a load makes decodes wait";
    counts_->n_loads_without_rows += plan.n_loaded_tokens > 0 && plan.is_empty() ? 1 : 0;
    if (plan.n_decodes > 0 && options_.max_prefill_tokens > 0) {
      EXPECT_LE(plan.n_rows - plan.n_decodes, options_.max_prefill_tokens) << "prefill makes decodes wait";
    }
    counts_->n_mixed_steps += plan.n_decodes > 0 && plan.n_prefill() > 0 ? 1 : 0;
    counts_->n_mixed_with_drafts += plan.n_drafts > 0 && plan.n_prefill() > 0 ? 1 : 0;
    counts_->n_drafts += plan.n_drafts;
    EXPECT_LE(plan.n_drafts, options_.max_drafts);
    EXPECT_TRUE(plan.n_drafts == 0 || plan.n_preempted == 0) << "a draft in a step without room";
    for (const SequenceId id : decoding) {
      const bool has_row = std::ranges::any_of(plan.sequences, [&](const PlannedSequence& p) { return p.id == id; });
      EXPECT_TRUE(has_row || scheduler.find(id)->schedule->state == SequenceState::waiting)
          << "a decode was left out of a step";
    }
    counts_->n_preempted += plan.n_preempted;
    counts_->n_deferred += scheduler.n_deferred();
    look_for_overtaking(plan);
    return plan.is_empty();
  }

  /// Whether sequences are in one line, in the order of arrival but for cohorts.
  bool are_in_line(const SequenceTask& a, const SequenceTask& b) const {
    const auto size_of = [](const SequenceTask& of) { return FairQueue::size_of(of.prompt_len, of.max_len, of.n_siblings); };
    return a.priority == b.priority && (!options_.by_size || size_of(a) == size_of(b));
  }

  /// Sequences of a line are overtaken by no more than the others of a cohort, unless they wait for a prefix that is being
  /// computed. A sequence that comes back after a preemption counts once.
  void look_for_overtaking(const StepPlan& plan) {
    Scheduler& scheduler = driver_.scheduler;
    for (const SequenceId admitted : plan.admitted) {
      if (scheduler.find(admitted)->schedule->n_admissions > 1) continue;
      counts_->n_cached += scheduler.find(admitted)->stats().cached_tokens;
      counts_->n_replayed += scheduler.find(admitted)->stats().replayed_tokens;
      for (const SequenceId id : scheduler.unfinished()) {
        Sequence& waiting = *scheduler.find(id);
        if (waiting.schedule->state != SequenceState::waiting || !are_in_line(*waiting.task, *scheduler.find(admitted)->task) ||
            !(id < admitted))
          continue;
        const std::int32_t n_match = waiting.is_prefill_only() ? waiting.task->prompt_len : waiting.n_tokens() - 1;
        const auto found =
            driver_.cache.find(SequenceEditor::schedule(waiting).table, waiting.schedule->tokens, n_match, plan.step);
        if (found.n_pending > 0 || is_begun(plan, waiting, n_match, static_cast<std::size_t>(found.n_ready))) continue;
        if (found.n_to_snapshot < found.n_ready && options_.n_state_slots > 0) continue;  // it may wait for a snapshot
        ++counts_->n_overtaken;
        EXPECT_LT(++n_overtaken_[id], kCohortTurns * static_cast<std::size_t>(options_.max_num_seqs))
            << "sequence " << id.value << " starves";
      }
    }
  }

  /// Whether a sequence of the plan, or one that loads from the host tier, has begun the block that the waiting one needs next.
  bool is_begun(const StepPlan& plan, const Sequence& waiting, std::int32_t n_match, std::size_t index) const {
    const auto end = static_cast<std::int32_t>(index + 1) * kBlockLen;
    if (end > n_match || !options_.caching) return false;
    const auto has_begun = [&](const Sequence& other) {
      return index < other.schedule->table.hashes.size() &&
             other.schedule->table.hashes[index] == waiting.schedule->table.hashes[index] && other.schedule->n_planned < end;
    };
    return std::ranges::any_of(plan.sequences,
                               [&](const PlannedSequence& of) { return has_begun(*driver_.scheduler.find(of.id)); }) ||
           std::ranges::any_of(driver_.scheduler.unfinished(), [&](SequenceId id) {
             const Sequence& other = *driver_.scheduler.find(id);
             return other.schedule->is_loading && has_begun(other);
           });
  }

  std::mt19937 rng_;
  LoadOptions options_;
  LoadCounts* counts_;
  SchedulerDriver driver_;
  std::int32_t longest_;
  std::map<SequenceId, std::size_t> n_overtaken_;
  std::int64_t n_rows_due_ = 0;
  KvCache::Pin pin_;
};

/// What the loads of a kind must do, for each seed.
struct LeastCount {
  const char* name;
  std::int64_t LoadCounts::*count;
  std::int64_t least;
};

/// Loads of one kind: each runs with a few seeds, and all together must have done so much, or they were too light to show anything.
struct LoadKind {
  std::string name;
  std::vector<LoadOptions> loads;
  int n_sequences = 0;   ///< of each load
  int n_long_seeds = 0;  ///< in a long run
  std::vector<LeastCount> least;
};

const LoadKind kLoadKinds[] = {
    {.name = "thousands_of_sequences_in_tiny_caches",
     .loads =
         {{},
          {.n_blocks = 9, .max_num_seqs = 8, .max_num_batched_tokens = 30, .with_pin = true},
          {.n_blocks = 11, .max_num_seqs = 3, .max_num_batched_tokens = 5, .caching = false},
          {.n_blocks = 200, .max_num_seqs = 16, .max_num_batched_tokens = 64, .max_prefill_tokens = 7, .mean_gap = 2},
          {.n_blocks = 30,
           .max_num_seqs = 12,
           .max_num_batched_tokens = 40,
           .max_prefill_tokens = 9,
           .n_priorities = 3,
           .mean_gap = 2},
          {.n_blocks = 12, .max_num_seqs = 6, .max_num_batched_tokens = 2},
          {.n_blocks = 40, .max_num_seqs = 24, .max_num_batched_tokens = 48, .mean_gap = 2},
          {.n_blocks = 20, .max_num_seqs = 8, .max_num_batched_tokens = 64, .caching = false, .n_priorities = 2},
          {.max_drafts = 6},
          {.n_blocks = 200,
           .max_num_seqs = 16,
           .max_num_batched_tokens = 64,
           .max_prefill_tokens = 9,
           .mean_gap = 2,
           .max_drafts = 30},
          {.n_blocks = 40,
           .max_num_seqs = 24,
           .max_num_batched_tokens = 48,
           .n_priorities = 2,
           .mean_gap = 2,
           .max_drafts = 20},
          {.n_blocks = 12, .max_num_seqs = 8, .max_num_batched_tokens = 30, .caching = false, .mean_gap = 2, .max_drafts = 30},
          {.n_blocks = 40,
           .max_num_seqs = 24,
           .max_num_batched_tokens = 48,
           .n_priorities = 2,
           .mean_gap = 2,
           .max_drafts = 20,
           .drafters_wait_alone = true},
          {.n_blocks = 12,
           .max_num_seqs = 8,
           .max_num_batched_tokens = 30,
           .mean_gap = 2,
           .max_drafts = 30,
           .drafters_wait_alone = true},
          {.max_num_seqs = 3, .mean_gap = 2, .by_size = true},
          {.n_blocks = 200, .max_num_seqs = 2, .mean_gap = 2, .most_new_tokens = 300, .by_size = true},
          {.n_blocks = 200,
           .max_num_seqs = 3,
           .max_num_batched_tokens = 30,
           .mean_gap = 2,
           .max_drafts = 20,
           .drafters_wait_alone = true,
           .most_new_tokens = 200,
           .by_size = true}},
     .n_sequences = 500,
     .n_long_seeds = 4,
     .least = {{"preempted", &LoadCounts::n_preempted, 50},
               {"deferred", &LoadCounts::n_deferred, 50},
               {"overtaken", &LoadCounts::n_overtaken, 10},
               {"cancelled", &LoadCounts::n_cancelled, 100},
               {"mixed steps", &LoadCounts::n_mixed_steps, 250},
               {"drafts", &LoadCounts::n_drafts, 2500},
               {"accepted", &LoadCounts::n_accepted, 100},
               {"mixed with drafts", &LoadCounts::n_mixed_with_drafts, 50}}},
    // A host tier that holds much, little, and one entry; prompts that are loaded at once and in pieces.
    {.name = "sequences_that_load_what_was_evicted",
     .loads =
         {{.n_tier_slots = 200},
          {.n_tier_slots = 12},
          {.n_tier_slots = 1},
          {.n_blocks = 9, .max_num_seqs = 8, .max_num_batched_tokens = 30, .with_pin = true, .n_tier_slots = 60},
          {.n_blocks = 12, .max_num_seqs = 6, .max_num_batched_tokens = 2, .n_tier_slots = 60},
          {.n_blocks = 30,
           .max_num_seqs = 12,
           .max_num_batched_tokens = 40,
           .max_prefill_tokens = 9,
           .n_priorities = 3,
           .mean_gap = 2,
           .n_tier_slots = 50},
          {.n_blocks = 12,
           .max_num_seqs = 8,
           .max_num_batched_tokens = 30,
           .mean_gap = 2,
           .max_drafts = 30,
           .drafters_wait_alone = true,
           .n_tier_slots = 30},
          {.max_drafts = 6, .n_tier_slots = 100},
          {.n_blocks = 14, .max_num_batched_tokens = 6, .groups = {{.n_blocks = 14}, {.n_blocks = 17}}, .n_tier_slots = 40},
          {.max_num_seqs = 3, .mean_gap = 2, .by_size = true, .n_tier_slots = 40}},
     .n_sequences = 500,
     .n_long_seeds = 4,
     .least = {{"loaded", &LoadCounts::n_loaded, 1000},
               {"forgotten", &LoadCounts::n_forgotten, 500},
               {"loads without rows", &LoadCounts::n_loads_without_rows, 5},
               {"preempted", &LoadCounts::n_preempted, 50},
               {"deferred", &LoadCounts::n_deferred, 50},
               {"cancelled", &LoadCounts::n_cancelled, 50},
               {"accepted", &LoadCounts::n_accepted, 25}}},
    // Blocks and states that were evicted come back together.
    {.name = "sequences_that_load_their_states",
     .loads = {{.n_tier_slots = 200, .n_state_slots = 6, .n_tier_states = 100},
               {.n_tier_slots = 200, .n_state_slots = 5, .n_tier_states = 5},
               {.n_tier_slots = 200, .n_state_slots = 7, .n_tier_states = 100, .state_snapshot_interval = 3 * kBlockLen},
               {.n_tier_slots = 12, .n_state_slots = 9, .n_tier_states = 1},
               {.max_drafts = 12, .drafters_wait_alone = true, .n_tier_slots = 90, .n_state_slots = 7, .n_tier_states = 30},
               {.n_blocks = 60, .most_new_tokens = 60, .n_tier_slots = 30, .n_state_slots = 6, .n_tier_states = 20},
               {.n_blocks = 9,
                .max_num_seqs = 8,
                .max_num_batched_tokens = 30,
                .with_pin = true,
                .n_tier_slots = 60,
                .n_state_slots = 10,
                .n_tier_states = 20},
               {.n_blocks = 14,
                .max_num_seqs = 6,
                .max_num_batched_tokens = 2,
                .n_tier_slots = 90,
                .n_state_slots = 8,
                .n_tier_states = 30},
               {.n_blocks = 30,
                .max_num_seqs = 12,
                .max_num_batched_tokens = 40,
                .max_prefill_tokens = 9,
                .n_priorities = 3,
                .mean_gap = 2,
                .n_tier_slots = 50,
                .n_state_slots = 16,
                .n_tier_states = 12},
               {.n_blocks = 40,
                .max_num_seqs = 1,
                .max_num_batched_tokens = 9,
                .n_tier_slots = 60,
                .n_state_slots = 1,
                .n_tier_states = 9},
               {.n_blocks = 20,
                .max_num_seqs = 3,
                .mean_gap = 2,
                .by_size = true,
                .n_tier_slots = 40,
                .n_state_slots = 5,
                .n_tier_states = 9}},
     .n_sequences = 500,
     .n_long_seeds = 6,
     .least = {{"states loaded", &LoadCounts::n_states_loaded, 150},
               {"states forgotten", &LoadCounts::n_states_forgotten, 100},
               {"loaded", &LoadCounts::n_loaded, 150},
               {"loads without rows", &LoadCounts::n_loads_without_rows, 1},
               {"replayed", &LoadCounts::n_replayed, 100},
               {"preempted", &LoadCounts::n_preempted, 50},
               {"cancelled", &LoadCounts::n_cancelled, 50}}},
    // States of recurrent layers: as many slots as sequences, a few snapshots, and many.
    {.name = "sequences_that_continue_from_snapshots",
     .loads = {{.n_blocks = 60, .most_new_tokens = 60, .n_state_slots = 5},
               {.n_blocks = 60, .most_new_tokens = 60, .n_state_slots = 6},
               {.n_blocks = 60, .most_new_tokens = 60, .n_state_slots = 9, .state_snapshot_interval = 2 * kBlockLen},
               {.n_blocks = 200,
                .max_num_seqs = 16,
                .max_num_batched_tokens = 64,
                .mean_gap = 2,
                .n_state_slots = 100,
                .state_snapshot_interval = 4 * kBlockLen},
               {.n_blocks = 14, .n_state_slots = 30},
               {.n_blocks = 9, .max_num_seqs = 8, .max_num_batched_tokens = 30, .with_pin = true, .n_state_slots = 10},
               {.n_blocks = 11, .max_num_seqs = 3, .max_num_batched_tokens = 5, .caching = false, .n_state_slots = 3},
               {.n_blocks = 200,
                .max_num_seqs = 16,
                .max_num_batched_tokens = 64,
                .max_prefill_tokens = 7,
                .mean_gap = 2,
                .n_state_slots = 100},
               {.n_blocks = 30,
                .max_num_seqs = 12,
                .max_num_batched_tokens = 40,
                .max_prefill_tokens = 9,
                .n_priorities = 3,
                .mean_gap = 2,
                .n_state_slots = 16},
               {.n_blocks = 12, .max_num_seqs = 6, .max_num_batched_tokens = 2, .n_state_slots = 8},
               {.n_blocks = 40, .max_num_seqs = 24, .max_num_batched_tokens = 48, .mean_gap = 2, .n_state_slots = 26},
               {.n_blocks = 200, .max_num_seqs = 2, .mean_gap = 2, .most_new_tokens = 300, .by_size = true, .n_state_slots = 9},
               {.n_blocks = 40, .max_num_seqs = 1, .max_num_batched_tokens = 9, .n_state_slots = 1},
               {.n_blocks = 60, .max_num_batched_tokens = 24, .max_drafts = 9, .most_new_tokens = 60, .n_state_slots = 12},
               {.n_blocks = 200,
                .max_num_seqs = 16,
                .max_num_batched_tokens = 64,
                .mean_gap = 2,
                .max_drafts = 40,
                .drafters_wait_alone = true,
                .most_new_tokens = 100,
                .n_state_slots = 60},
               {.n_blocks = 24,
                .max_num_seqs = 8,
                .max_num_batched_tokens = 30,
                .mean_gap = 2,
                .max_drafts = 7,
                .n_state_slots = 10},
               {.n_blocks = 20,
                .max_num_seqs = 6,
                .max_num_batched_tokens = 30,
                .caching = false,
                .max_drafts = 20,
                .drafters_wait_alone = true,
                .n_state_slots = 6}},
     .n_sequences = 400,
     .n_long_seeds = 6,
     .least = {{"preempted", &LoadCounts::n_preempted, 50},
               {"deferred", &LoadCounts::n_deferred, 50},
               {"cancelled", &LoadCounts::n_cancelled, 50},
               {"cached", &LoadCounts::n_cached, 1000},
               {"replayed", &LoadCounts::n_replayed, 300},
               {"snapshots evicted", &LoadCounts::n_snapshots_evicted, 500},
               {"drafts", &LoadCounts::n_drafts, 500},
               {"accepted", &LoadCounts::n_accepted, 50}}},
    // Layer groups with windows, in caches that just fit one long sequence and in caches that fit several.
    {.name = "sequences_that_give_back_what_has_left_a_window",
     .loads = {{.n_blocks = 20,
                .max_num_batched_tokens = 5,
                .groups = {{.n_blocks = 20}, {.n_blocks = 8, .window = 6}},
                .most_new_tokens = 60},
               {.n_blocks = 30,
                .max_num_seqs = 8,
                .max_num_batched_tokens = 5,
                .mean_gap = 2,
                .groups = {{.n_blocks = 30}, {.n_blocks = 16, .window = 20}},
                .most_new_tokens = 60},
               {.max_num_seqs = 8,
                .max_num_batched_tokens = 6,
                .mean_gap = 2,
                .groups = {{.n_blocks = 18, .window = 24}},
                .longest = 120,
                .most_new_tokens = 80},
               {.n_blocks = 14,
                .max_num_seqs = 8,
                .max_num_batched_tokens = 5,
                .caching = false,
                .mean_gap = 2,
                .groups = {{.n_blocks = 14}, {.n_blocks = 14, .window = 14}}},
               {.n_blocks = 30,
                .max_num_seqs = 8,
                .max_num_batched_tokens = 11,
                .with_pin = true,
                .groups = {{.n_blocks = 16, .window = 9}, {.n_blocks = 32}, {.n_blocks = 11, .window = 3}},
                .most_new_tokens = 40},
               {.max_num_seqs = 8,
                .max_num_batched_tokens = 6,
                .mean_gap = 2,
                .groups = {{.n_blocks = 12, .window = 10}},
                .longest = 120,
                .most_new_tokens = 80},
               {.max_num_batched_tokens = 4,
                .with_pin = true,
                .n_priorities = 2,
                .groups = {{.n_blocks = 18, .window = 8}, {.n_blocks = 22, .window = 17}},
                .longest = 90,
                .most_new_tokens = 50},
               {.n_blocks = 40,
                .max_num_seqs = 8,
                .max_num_batched_tokens = 5,
                .caching = false,
                .groups = {{.n_blocks = 40}, {.n_blocks = 10, .window = 7}}},
               {.n_blocks = 60,
                .max_num_seqs = 8,
                .max_num_batched_tokens = 12,
                .mean_gap = 2,
                .max_drafts = 8,
                .groups = {{.n_blocks = 60}, {.n_blocks = 13, .window = 8}},
                .most_new_tokens = 40},
               {.n_blocks = 200,
                .max_num_seqs = 16,
                .max_num_batched_tokens = 40,
                .mean_gap = 2,
                .max_drafts = 20,
                .groups = {{.n_blocks = 200}, {.n_blocks = 60, .window = 12}}}},
     .n_sequences = 300,
     .n_long_seeds = 6,
     .least = {{"preempted", &LoadCounts::n_preempted, 33},
               {"deferred", &LoadCounts::n_deferred, 33},
               {"drafts", &LoadCounts::n_drafts, 166},
               {"cached", &LoadCounts::n_cached, 333}}},
    // A layer of the model drafts after each step, for half of the sequences that draft.
    {.name = "sequences_that_the_model_drafts_for",
     .loads = {{.max_drafts = 12, .has_mtp = true},
               {.n_blocks = 60,
                .max_num_seqs = 8,
                .max_num_batched_tokens = 30,
                .mean_gap = 2,
                .max_drafts = 20,
                .drafters_wait_alone = true,
                .most_new_tokens = 60,
                .has_mtp = true},
               {.n_blocks = 12,
                .max_num_seqs = 8,
                .max_num_batched_tokens = 30,
                .caching = false,
                .max_drafts = 30,
                .has_mtp = true},
               {.n_blocks = 24,
                .max_num_seqs = 8,
                .max_num_batched_tokens = 30,
                .mean_gap = 2,
                .max_drafts = 7,
                .n_state_slots = 10,
                .has_mtp = true},
               {.max_drafts = 12,
                .drafters_wait_alone = true,
                .n_tier_slots = 90,
                .n_state_slots = 7,
                .n_tier_states = 30,
                .has_mtp = true}},
     .n_sequences = 400,
     .n_long_seeds = 6,
     .least = {{"model drafts", &LoadCounts::n_model_drafts, 500},
               {"accepted", &LoadCounts::n_accepted, 500},
               {"preempted", &LoadCounts::n_preempted, 50},
               {"states loaded", &LoadCounts::n_states_loaded, 10},
               {"cancelled", &LoadCounts::n_cancelled, 50}}},
};

class SchedulerLoad : public ::testing::TestWithParam<LoadKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, SchedulerLoad, ::testing::ValuesIn(kLoadKinds), [](const auto& of) { return of.param.name; });

TEST_P(SchedulerLoad, keeps_its_promises) {
  const LoadKind& kind = GetParam();
  LoadCounts counts;
  const int n_seeds = testing::is_long_run() ? kind.n_long_seeds : 1;
  for (std::uint32_t seed = 1; seed <= static_cast<std::uint32_t>(n_seeds); ++seed) {
    for (const LoadOptions& options : kind.loads) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", load " << &options - kind.loads.data());
      RandomLoad(seed, options, &counts).run(kind.n_sequences);
      if (HasFailure()) return;
    }
  }
  for (const auto& [name, count, least] : kind.least)
    EXPECT_GT(counts.*count, least * n_seeds) << name << ": the load was too light to show anything";
}

}  // namespace
}  // namespace baton
