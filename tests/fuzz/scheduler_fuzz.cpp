/// Fuzzes the scheduler: any sequence of commands (arrivals, cancellations, plans, commits) keeps the invariants, and
/// every sequence that is not cancelled ends with the tokens that it gets alone. The simulated device detects reads of
/// other sequences' blocks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <fuzzer/FuzzedDataProvider.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "engine/scheduler.h"
#include "support/sequence_editor.h"
#include "support/simulated_device.h"

namespace {

using baton::FinishReason;
using baton::SequenceId;
using baton::TokenId;
using baton::testing::SimulatedDevice;

class Load {
 public:
  explicit Load(FuzzedDataProvider& input)
      : input_(input),
        n_blocks_(input.ConsumeIntegralInRange<std::int32_t>(3, 40)),
        options_(any_options(input)),
        groups_(any_groups(input, n_blocks_, 2 * options_.max_num_batched_tokens)),
        cache_({.block_len = baton::testing::kBlockLen,
                .groups = groups_,
                .max_rows_in_flight = 2 * options_.max_num_batched_tokens,
                .enable_prefix_caching = input.ConsumeIntegralInRange(0, 3) != 0}),
        scheduler_(options_, cache_),
        device_(groups_, options_.max_num_seqs + options_.max_drafts) {}

  void run() {
    while (input_.remaining_bytes() > 0) {
      switch (input_.ConsumeIntegralInRange(0, 5)) {
        case 0: arrive(); break;
        case 1: cancel(); break;
        case 2: commit(); break;
        default: step(); break;
      }
    }
    for (int n_steps = 0; scheduler_.n_waiting() + scheduler_.n_running() > 0 || !in_flight_.empty(); ++n_steps) {
      baton::check(n_steps < 100'000, "the sequences never end");
      step();
    }
    baton::check(expected_.empty(), "a sequence is lost");
    baton::check(cache_.n_used() == 0 && cache_.n_available() == cache_.n_blocks(), "blocks leaked");
  }

 private:
  static baton::SchedulerOptions any_options(FuzzedDataProvider& input) {
    baton::SchedulerOptions options;
    options.max_num_seqs = input.ConsumeIntegralInRange<std::int32_t>(1, 12);
    options.max_num_batched_tokens = input.ConsumeIntegralInRange<std::int32_t>(options.max_num_seqs, 60);
    options.max_prefill_tokens = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::int32_t>(1, 20) : 0;
    options.max_drafts = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::int32_t>(1, 20) : 0;
    options.drafters_wait_alone = input.ConsumeBool();
    return options;
  }

  /// One layer group without a window, and possibly one with a window.
  static std::vector<baton::CacheGroup> any_groups(FuzzedDataProvider& input, std::int32_t n_blocks, std::int32_t n_rows) {
    std::vector<baton::CacheGroup> groups{{.n_blocks = n_blocks}};
    if (!input.ConsumeBool()) return groups;
    baton::CacheGroup group{.window = input.ConsumeIntegralInRange<std::int32_t>(1, 30)};
    const std::int32_t longest = n_blocks * baton::testing::kBlockLen;
    group.n_blocks =
        group.n_needed_alone(longest, n_rows, baton::testing::kBlockLen) + input.ConsumeIntegralInRange<std::int32_t>(0, 10);
    groups.push_back(group);
    return groups;
  }

  void arrive() {
    const std::int32_t longest = n_blocks_ * baton::testing::kBlockLen;
    std::vector<TokenId> prompt = baton::testing::prompt_of(input_.ConsumeIntegralInRange<std::size_t>(0, 24), 1);
    const auto n_own = input_.ConsumeIntegralInRange<std::size_t>(prompt.empty() ? 1 : 0, 6);
    for (std::size_t i = 0; i < n_own; ++i) prompt.push_back(input_.ConsumeIntegralInRange<TokenId>(1, 3));
    prompt.resize(std::min(prompt.size(), static_cast<std::size_t>(longest - 1)));
    const auto room = longest - static_cast<std::int32_t>(prompt.size());
    const auto max_tokens = input_.ConsumeIntegralInRange<std::int32_t>(1, std::min(room, 20));
    static const std::vector<baton::CacheScope> scopes{{}, {"", "x", 8}, {"", "y", 8}};
    expected_[next_id_] = baton::testing::expected_tokens(prompt, max_tokens);
    auto sequence = baton::testing::make_sequence(next_id_++, prompt, max_tokens,
                                                  scopes[input_.ConsumeIntegralInRange<std::size_t>(0, scopes.size() - 1)]);
    baton::SequenceEditor::task(*sequence).priority = input_.ConsumeIntegralInRange<std::int32_t>(-1, 1);
    baton::SequenceEditor::task(*sequence).tenant = {input_.ConsumeIntegralInRange<std::int32_t>(0, 2),
                                                     input_.ConsumeIntegralInRange<std::int32_t>(1, 3)};
    if (options_.max_drafts > 0 && input_.ConsumeBool())
      baton::SequenceEditor::schedule(*sequence).speculation.emplace(
          baton::SpeculationOptions{.n_tokens = 5, .lookup_max = 2, .lookup_min = 1});
    scheduler_.add(std::move(sequence));
    scheduler_.check_invariants();
  }

  void cancel() {
    if (expected_.empty()) return;
    const auto n_before = input_.ConsumeIntegralInRange<std::size_t>(0, expected_.size() - 1);
    scheduler_.finish(SequenceId{std::next(expected_.begin(), static_cast<std::ptrdiff_t>(n_before))->first},
                      FinishReason::abort);
    scheduler_.check_invariants();
    take();
  }

  /// Plans a step and commits those before it, as the engine does: one stays in flight unless the next plan awaits it.
  void step() {
    const bool awaited = !in_flight_.empty() && scheduler_.awaits_commit();
    while (awaited && !in_flight_.empty()) commit();
    baton::StepPlan plan = scheduler_.plan();
    scheduler_.check_invariants();
    baton::check(plan.n_rows <= options_.max_num_batched_tokens, "more rows than a step has");
    const std::size_t n_kept = plan.is_empty() ? 0 : 1;
    if (!plan.is_empty()) in_flight_.push_back(baton::testing::build(scheduler_, std::move(plan)));
    while (in_flight_.size() > n_kept) commit();
  }

  void commit() {
    if (in_flight_.empty()) return;
    const SimulatedDevice::Step step = std::move(in_flight_.front());
    in_flight_.pop_front();
    scheduler_.commit(step.plan, device_.run(step));
    scheduler_.check_invariants();
    take();
  }

  void take() {
    for (const auto& sequence : scheduler_.take_finished()) {
      const auto expected = expected_.find(sequence->task->id.value);
      baton::check(expected != expected_.end(), "a sequence ended twice");
      const auto& tokens = expected->second;
      if (sequence->schedule->finished == FinishReason::abort) {
        baton::check(sequence->schedule->tokens.size() <= tokens.size(),
                     "a cancelled sequence has more tokens than it could get");
        baton::check(std::equal(sequence->schedule->tokens.begin(), sequence->schedule->tokens.end(), tokens.begin()),
                     "other tokens than alone");
      } else {
        baton::check(sequence->schedule->tokens == tokens, "other tokens than alone");
      }
      expected_.erase(expected);
    }
  }

  FuzzedDataProvider& input_;
  std::int32_t n_blocks_;
  baton::SchedulerOptions options_;
  std::vector<baton::CacheGroup> groups_;
  baton::KvCache cache_;
  baton::Scheduler scheduler_;
  SimulatedDevice device_;
  std::map<std::int64_t, std::vector<TokenId>> expected_;
  std::deque<SimulatedDevice::Step> in_flight_;
  std::int64_t next_id_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  GTEST_FLAG_SET(break_on_failure, true);  // a failed expectation of the device ends the program
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  Load(input).run();
  return 0;
}
