/// A scheduler that several tenants share, for tests of which is served when.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "support/scheduler_driver.h"
#include "support/sequence_editor.h"
#include "support/simulated_device.h"

namespace baton::testing {

/// A scheduler on a simulated device whose sequences have tenants: what each tenant was served, and how many steps a first
/// token took.
class Shared {
 public:
  Shared(const SchedulerOptions& options, std::int32_t n_blocks)
      : driver_(options, {{.n_blocks = n_blocks}}), scheduler(driver_.scheduler) {}

  std::int64_t add(Tenant tenant, std::vector<TokenId> prompt, std::int32_t max_tokens, std::int32_t priority = 0) {
    auto sequence = make_sequence(driver_.next_id(), std::move(prompt), max_tokens);
    SequenceEditor::task(*sequence).tenant = tenant;
    SequenceEditor::task(*sequence).priority = priority;
    return driver_.add(std::move(sequence));
  }

  std::int64_t add(std::vector<TokenId> prompt, std::int32_t max_tokens) { return add({}, std::move(prompt), max_tokens); }

  /// Prompts without common blocks, with about `n` tokens.
  std::vector<TokenId> own_prompt(std::int32_t n) { return prompt_of(static_cast<std::size_t>(n), 1000 * ++n_prompts_); }

  /// A prompt of its own whose answer has `n_new` tokens: it does not stop before.
  std::vector<TokenId> own_prompt_of_long_answer(std::int32_t n, std::int32_t n_new) {
    std::vector<TokenId> prompt = own_prompt(n);
    while (expected_tokens(prompt, n_new).size() < static_cast<std::size_t>(n + n_new)) ++prompt.back();
    return prompt;
  }

  void step() {
    driver_.commit_awaited();
    const StepPlan& plan = driver_.plan();
    n_preempted += plan.n_preempted;
    n_recomputed += plan.n_recomputed_tokens;
    n_rows.clear();
    n_decodes.clear();
    planned_.clear();
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
      const PlannedSequence& planned = plan.sequences[i];
      const std::int32_t tenant = scheduler.find(planned.id)->task->tenant.id;
      cost[tenant] += planned.n_rows + 3 * planned.max_tokens;
      n_rows[tenant] += planned.n_rows;
      planned_.insert(planned.id);
      n_decodes[tenant] += static_cast<std::int32_t>(i) < plan.n_decodes ? 1 : 0;
    }
    driver_.commit_behind();
    ++n_steps;
  }

  /// Runs until the sequence has a token or has ended; returns the number of steps.
  std::int64_t steps_to_first_token(std::int64_t id) {
    const std::int64_t begin = n_steps;
    while (driver_.is_unfinished(id) && scheduler.find(SequenceId{id})->n_generated() == 0) {
      step();
      if (n_steps - begin > 100'000) return -1;
    }
    return n_steps - begin;
  }

  void run_to_end() {
    for (std::int64_t n = 0; scheduler.n_waiting() + scheduler.n_running() > 0 && n < 1'000'000; ++n) step();
    driver_.expect_empty();
  }

  std::int32_t n_running_of(std::int32_t tenant) const {
    std::int32_t n = 0;
    for (const SequenceId id : scheduler.unfinished()) {
      const Sequence& sequence = *scheduler.find(id);
      n += sequence.schedule->state == SequenceState::running && sequence.task->tenant.id == tenant ? 1 : 0;
    }
    return n;
  }

  /// Unfinished sequences.
  std::int64_t n_of(std::int32_t tenant) const {
    return std::ranges::count_if(scheduler.unfinished(),
                                 [&](SequenceId id) { return scheduler.find(id)->task->tenant.id == tenant; });
  }
  /// Sequences that may decode in the next step.
  std::set<SequenceId> decoding_of(std::int32_t tenant) const {
    std::set<SequenceId> ids;
    for (const SequenceId id : scheduler.unfinished()) {
      const Sequence& sequence = *scheduler.find(id);
      if (sequence.schedule->state == SequenceState::running && sequence.task->tenant.id == tenant &&
          sequence.n_rows_left() == 1)
        ids.insert(id);
    }
    return ids;
  }
  /// Whether the sequence does not run, because it was preempted.
  bool is_waiting(SequenceId id) const {
    const Sequence* const sequence = scheduler.find(id);
    return sequence != nullptr && sequence->schedule->state == SequenceState::waiting;
  }
  /// Whether the last step had rows of the sequence.
  bool has_row(SequenceId id) const { return planned_.contains(id); }

 private:
  SchedulerDriver driver_;

 public:
  Scheduler& scheduler;
  std::int64_t n_steps = 0;
  int n_preempted = 0;
  std::int64_t n_recomputed = 0;                           ///< tokens, after preemptions
  std::map<std::int32_t, std::int64_t> cost;               ///< by tenant: computed rows, a row that gives a token four times
  std::map<std::int32_t, std::int32_t> n_rows, n_decodes;  ///< by tenant, of the last step

 private:
  std::set<SequenceId> planned_;
  TokenId n_prompts_ = 0;
};

}  // namespace baton::testing
