/// Scheduler: random loads in tiny caches on a simulated device. Checks every guarantee of scheduler.h after every
/// step.
#include "engine/scheduler.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "support/sequence_editor.h"
#include "support/simulated_device.h"

namespace baton {
namespace {

using testing::build;
using testing::expected_tokens;
using testing::kBlockLen;
using testing::make_sequence;
using testing::prompt_of;
using testing::SimulatedDevice;

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
};

struct LoadCounts {
  int n_preempted = 0;
  int n_deferred = 0;
  int n_overtaken = 0;
  int n_cancelled = 0;
  int n_mixed_steps = 0;  ///< with decodes and prefill
  int n_drafts = 0;
  int n_accepted = 0;
  int n_mixed_with_drafts = 0;
  int n_cached = 0;  ///< tokens found at first admissions
};

class RandomLoad {
 public:
  RandomLoad(std::uint32_t seed, const LoadOptions& options)
      : rng_(seed),
        options_(options),
        groups_(options.groups.empty() ? std::vector<CacheGroup>{{.n_blocks = options.n_blocks}} : options.groups),
        cache_({.block_len = kBlockLen,
                .groups = groups_,
                .max_rows_in_flight = 2 * options.max_num_batched_tokens,
                .enable_prefix_caching = options.caching}),
        scheduler_({.max_num_seqs = options.max_num_seqs,
                    .max_num_batched_tokens = options.max_num_batched_tokens,
                    .max_prefill_tokens = options.max_prefill_tokens,
                    .max_drafts = options.max_drafts,
                    .drafters_wait_alone = options.drafters_wait_alone},
                   cache_),
        device_(groups_, options.max_num_seqs + options.max_drafts),
        longest_(options.longest > 0 ? options.longest : (options.n_blocks - (options.with_pin ? 2 : 0)) * kBlockLen) {
    if (options.with_pin) pin();
  }

  /// Every sequence that is not cancelled ends with exactly the tokens that it gets alone, and nothing is left over.
  void run(int n_sequences, LoadCounts* counts) {
    std::int64_t n_steps = 0;
    while (true) {
      while (next_id_ < n_sequences && rng_() % options_.mean_gap == 0) arrive();
      if (rng_() % 30 == 0 && !expected_.empty()) cancel(counts);
      const bool awaited = !in_flight_.empty() && scheduler_.awaits_commit();
      while (awaited && !in_flight_.empty()) commit(counts);
      const bool is_empty = plan(counts);
      const std::size_t n_kept = is_empty ? 0 : 1;
      if (in_flight_.size() > n_kept) {
        while (in_flight_.size() > n_kept) commit(counts);
      } else if (is_empty && !awaited) {
        ASSERT_EQ(scheduler_.n_running() + scheduler_.n_waiting(), 0) << "nothing is planned, nothing runs, and sequences wait";
        if (next_id_ == n_sequences) {
          take();  // sequences cancelled since the last step
          break;
        }
      }
      take();
      // Every step that is not empty computes at least one row, and a row is computed at most once for each admission
      // of its sequence.
      ASSERT_LE(++n_steps,
                100 + options_.mean_gap * static_cast<std::uint32_t>(n_sequences) * 4 + 2 * (kMaxPreemptions + 1) * n_rows_due_)
          << "it goes on for ever";
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(expected_.empty()) << expected_.size() << " sequences never ended";
    EXPECT_EQ(cache_.n_pinned(0), options_.with_pin ? 2 : 0);
    EXPECT_EQ(cache_.n_used(), cache_.n_pinned()) << "blocks leaked";
  }

 private:
  void pin() {
    scheduler_.add(make_sequence(next_id_++, prompt_of(8, 1), 0));
    while (scheduler_.n_waiting() + scheduler_.n_running() > 0) {
      const auto step = build(scheduler_, scheduler_.plan());
      scheduler_.commit(step.plan, device_.run(step));
    }
    scheduler_.take_finished();
    EXPECT_EQ(cache_.pin({}, prompt_of(8, 1)).n_blocks, 2);
  }

  void arrive() {
    static const std::vector<CacheScope> scopes{{}, {}, {"", "x", 8}, {"", "y", 8}};
    std::vector<TokenId> prompt = prompt_of(4 * (rng_() % 6), 1);  // common beginnings
    while (prompt.empty() || rng_() % 5 != 0) prompt.push_back(static_cast<TokenId>(1 + rng_() % 3));
    if (static_cast<std::int32_t>(prompt.size()) > longest_ - 2) prompt.resize(static_cast<std::size_t>(longest_ - 2));
    const auto n = static_cast<std::int32_t>(prompt.size());
    const auto max_tokens =
        1 + static_cast<std::int32_t>(rng_() % static_cast<std::uint32_t>(std::min(options_.most_new_tokens, longest_ - n)));
    expected_[next_id_] = expected_tokens(prompt, max_tokens);
    n_rows_due_ += n + max_tokens;
    auto sequence = make_sequence(next_id_++, prompt, max_tokens, scopes[rng_() % scopes.size()]);
    SequenceEditor::task(*sequence).priority =
        static_cast<std::int32_t>(rng_() % static_cast<std::uint32_t>(options_.n_priorities));
    if (options_.max_drafts > 0 && rng_() % 4 != 0)
      SequenceEditor::schedule(*sequence).speculation.emplace(
          SpeculationOptions{.n_tokens = 5, .lookup_max = 2, .lookup_min = 1});
    scheduler_.add(std::move(sequence));
  }

  void cancel(LoadCounts* counts) {
    auto at = expected_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(rng_() % expected_.size()));
    scheduler_.finish(SequenceId{at->first}, FinishReason::abort);
    ++counts->n_cancelled;
  }

  /// Plans a step and checks it. Returns true if it is empty.
  bool plan(LoadCounts* counts) {
    std::set<SequenceId> decoding;
    for (const SequenceId id : scheduler_.unfinished()) {
      const Sequence& sequence = *scheduler_.find(id);
      const bool may_sit_out =
          options_.drafters_wait_alone && sequence.schedule->speculation && sequence.schedule->n_samples_in_flight > 0;
      if (sequence.schedule->state == SequenceState::running && sequence.n_rows_left() == 1 && !may_sit_out)
        decoding.insert(id);
    }
    StepPlan plan = scheduler_.plan();
    scheduler_.check_invariants();
    EXPECT_LE(plan.n_rows, options_.max_num_batched_tokens);
    if (plan.n_decodes > 0 && options_.max_prefill_tokens > 0) {
      EXPECT_LE(plan.n_rows - plan.n_decodes, options_.max_prefill_tokens) << "prefill makes decodes wait";
    }
    counts->n_mixed_steps += plan.n_decodes > 0 && plan.n_prefill() > 0 ? 1 : 0;
    counts->n_mixed_with_drafts += plan.n_drafts > 0 && plan.n_prefill() > 0 ? 1 : 0;
    counts->n_drafts += plan.n_drafts;
    EXPECT_LE(plan.n_drafts, options_.max_drafts);
    EXPECT_TRUE(plan.n_drafts == 0 || plan.n_preempted == 0) << "a draft in a step without room";
    for (const SequenceId id : decoding) {
      const bool has_row = std::ranges::any_of(plan.sequences, [&](const PlannedSequence& p) { return p.id == id; });
      EXPECT_TRUE(has_row || scheduler_.find(id)->schedule->state == SequenceState::waiting)
          << "a decode was left out of a step";
    }
    counts->n_preempted += plan.n_preempted;
    counts->n_deferred += scheduler_.n_deferred();
    look_for_overtaking(plan, counts);
    if (plan.is_empty()) return true;
    in_flight_.push_back(build(scheduler_, std::move(plan)));
    return false;
  }

  /// Sequences of a priority are not overtaken without limit, unless they wait for a prefix that is being computed.
  void look_for_overtaking(const StepPlan& plan, LoadCounts* counts) {
    for (const SequenceId admitted : plan.admitted) {
      if (scheduler_.find(admitted)->schedule->n_admissions == 1)
        counts->n_cached += scheduler_.find(admitted)->stats().cached_tokens;
      for (const SequenceId id : scheduler_.unfinished()) {
        Sequence& waiting = *scheduler_.find(id);
        if (waiting.schedule->state != SequenceState::waiting ||
            waiting.task->priority != scheduler_.find(admitted)->task->priority || !(id < admitted))
          continue;
        const std::int32_t n_match = waiting.is_prefill_only() ? waiting.task->prompt_len : waiting.n_tokens() - 1;
        const auto found = cache_.find(SequenceEditor::schedule(waiting).table, waiting.schedule->tokens, n_match, plan.step);
        if (found.n_pending > 0 || is_begun(plan, waiting, n_match, static_cast<std::size_t>(found.n_ready))) continue;
        ++counts->n_overtaken;
        EXPECT_LE(++n_overtaken_[id], kMaxOvertaken) << "sequence " << id.value << " starves";
      }
    }
  }

  /// Whether a sequence of the plan has begun the block that the waiting one needs next.
  bool is_begun(const StepPlan& plan, const Sequence& waiting, std::int32_t n_match, std::size_t index) const {
    const auto end = static_cast<std::int32_t>(index + 1) * kBlockLen;
    if (end > n_match || !options_.caching) return false;
    return std::ranges::any_of(plan.sequences, [&](const PlannedSequence& planned) {
      const Sequence& other = *scheduler_.find(planned.id);
      return index < other.schedule->table.hashes.size() &&
             other.schedule->table.hashes[index] == waiting.schedule->table.hashes[index] && other.schedule->n_planned < end;
    });
  }

  void commit(LoadCounts* counts) {
    const SimulatedDevice::Step step = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (step.plan.n_drafts > 0 && rng_() % 20 == 0) cancel(counts);
    const std::vector<StepOutcome> outcomes = device_.run(step);
    for (const StepOutcome& outcome : outcomes) counts->n_accepted += outcome.n_accepted;
    scheduler_.commit(step.plan, outcomes);
    scheduler_.check_invariants();
  }

  void take() {
    for (const auto& sequence : scheduler_.take_finished()) {
      EXPECT_LE(sequence->schedule->n_preemptions, kMaxPreemptions);
      EXPECT_LE(sequence->schedule->n_admissions, kMaxPreemptions + 1);
      const auto expected = expected_.find(sequence->task->id.value);
      ASSERT_NE(expected, expected_.end()) << "a sequence ended twice";
      if (sequence->schedule->finished != FinishReason::abort) {
        EXPECT_EQ(sequence->schedule->tokens, expected->second) << "sequence " << sequence->task->id.value;
      } else {
        EXPECT_TRUE(std::ranges::equal(sequence->schedule->tokens,
                                       std::span(expected->second).first(sequence->schedule->tokens.size())));
      }
      expected_.erase(expected);
    }
  }

  std::mt19937 rng_;
  LoadOptions options_;
  std::vector<CacheGroup> groups_;
  KvCache cache_;
  Scheduler scheduler_;
  SimulatedDevice device_;
  std::int32_t longest_;
  std::map<std::int64_t, std::vector<TokenId>> expected_;
  std::map<SequenceId, int> n_overtaken_;
  std::deque<SimulatedDevice::Step> in_flight_;
  std::int64_t next_id_ = 0;
  std::int64_t n_rows_due_ = 0;
};

TEST(SchedulerLoad, keeps_its_promises_to_thousands_of_sequences_in_tiny_caches) {
  LoadCounts counts;
  const LoadOptions loads[] = {
      {},
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
      {.n_blocks = 40, .max_num_seqs = 24, .max_num_batched_tokens = 48, .n_priorities = 2, .mean_gap = 2, .max_drafts = 20},
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
  };
  for (const std::uint32_t seed : {1u, 2u}) {
    for (const LoadOptions& options : loads) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << options.n_blocks << " blocks");
      RandomLoad(seed, options).run(500, &counts);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(counts.n_preempted, 100) << "the load was too light to show anything";
  EXPECT_GT(counts.n_deferred, 100);
  EXPECT_GT(counts.n_overtaken, 20);
  EXPECT_GT(counts.n_cancelled, 200);
  EXPECT_GT(counts.n_mixed_steps, 500);
  EXPECT_GT(counts.n_drafts, 5000);
  EXPECT_GT(counts.n_accepted, 200);
  EXPECT_GT(counts.n_mixed_with_drafts, 100);
}

/// Layer groups with windows, in caches that just fit one long sequence and in caches that fit several.
TEST(SchedulerLoad, keeps_its_promises_to_sequences_that_give_back_what_is_behind_a_window) {
  LoadCounts counts;
  const LoadOptions loads[] = {
      {.n_blocks = 20,
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
       .groups = {{.n_blocks = 200}, {.n_blocks = 60, .window = 12}}},
  };
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    for (const LoadOptions& options : loads) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", load " << &options - loads);
      RandomLoad(seed, options).run(300, &counts);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(counts.n_preempted, 100) << "the load was too light to show anything";
  EXPECT_GT(counts.n_deferred, 100);
  EXPECT_GT(counts.n_drafts, 500);
  EXPECT_GT(counts.n_cached, 1000) << "nothing was found";
}

}  // namespace
}  // namespace baton
