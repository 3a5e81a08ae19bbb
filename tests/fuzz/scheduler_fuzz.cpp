/// Fuzzes the scheduler: any sequence of commands (arrivals, cancellations, plans, commits) keeps the invariants, and
/// every sequence that is not cancelled ends with the tokens that it gets alone. The simulated device detects reads of
/// other sequences' blocks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include <fuzzer/FuzzedDataProvider.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "engine/schedule/scheduler.h"
#include "support/scheduler_driver.h"
#include "support/sequence_editor.h"
#include "support/simulated_device.h"

namespace {

using baton::TokenId;
using baton::testing::SchedulerDriver;

class Load {
 public:
  explicit Load(FuzzedDataProvider& input)
      : input_(input),
        n_blocks_(input.ConsumeIntegralInRange<std::int32_t>(3, 40)),
        options_(any_options(input)),
        n_state_slots_(input.ConsumeBool() ? options_.max_num_seqs + input.ConsumeIntegralInRange<std::int32_t>(0, 12) : 0),
        groups_(any_groups(input, n_blocks_, 2 * options_.max_num_batched_tokens, n_state_slots_ > 0)),
        has_caching_(input.ConsumeIntegralInRange(0, 3) != 0),
        n_tier_slots_(has_caching_ && groups_.size() == 1 && input.ConsumeBool() ? input.ConsumeIntegralInRange(1, 60) : 0),
        driver_(options_, groups_, has_caching_, n_tier_slots_, n_state_slots_,
                n_tier_slots_ > 0 && n_state_slots_ > 0 ? input.ConsumeIntegralInRange(1, 12) : 0) {
    driver_.max_pinned_blocks = input.ConsumeIntegralInRange<std::int32_t>(0, n_blocks_ - 2);
  }

  void run() {
    while (input_.remaining_bytes() > 0) {
      switch (input_.ConsumeIntegralInRange(0, 7)) {
        case 0: arrive(); break;
        case 1: cancel(); break;
        case 2:
          driver_.commit_oldest();
          driver_.take();
          break;
        case 3: register_prefix(); break;
        case 4:
          if (driver_.n_pins() > 0) driver_.unpin_oldest();
          break;
        default: step(); break;
      }
    }
    for (int n_steps = 0; step(); ++n_steps) baton::check(n_steps < 100'000, "the sequences never end");
    driver_.expect_nothing_left();
  }

 private:
  static baton::SchedulerOptions any_options(FuzzedDataProvider& input) {
    baton::SchedulerOptions options;
    options.max_num_seqs = input.ConsumeIntegralInRange<std::int32_t>(1, 12);
    options.max_num_batched_tokens = input.ConsumeIntegralInRange<std::int32_t>(options.max_num_seqs, 60);
    options.max_prefill_tokens = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::int32_t>(1, 20) : 0;
    options.max_drafts = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::int32_t>(1, 20) : 0;
    options.drafters_wait_alone = input.ConsumeBool();
    options.has_mtp = options.max_drafts > 0 && input.ConsumeBool();
    options.uses_step_times = input.ConsumeBool();
    options.state_loads = input.ConsumeIntegralInRange(0, 4);
    return options;
  }

  /// One layer group without a window and, unless there are states, possibly one with a window.
  static std::vector<baton::CacheGroup> any_groups(FuzzedDataProvider& input, std::int32_t n_blocks, std::int32_t n_rows,
                                                   bool has_states) {
    std::vector<baton::CacheGroup> groups{{.n_blocks = n_blocks}};
    if (has_states || !input.ConsumeBool()) return groups;
    baton::CacheGroup group{.window = input.ConsumeIntegralInRange<std::int32_t>(1, 30)};
    const std::int32_t longest = n_blocks * baton::testing::kBlockLen;
    group.n_blocks =
        group.n_needed_alone(longest, n_rows, baton::testing::kBlockLen) + input.ConsumeIntegralInRange<std::int32_t>(0, 10);
    groups.push_back(group);
    return groups;
  }

  void arrive() {
    const std::int32_t longest = longest_len();
    std::vector<TokenId> prompt = baton::testing::prompt_of(input_.ConsumeIntegralInRange<std::size_t>(0, 24), 1);
    const auto n_own = input_.ConsumeIntegralInRange<std::size_t>(prompt.empty() ? 1 : 0, 6);
    for (std::size_t i = 0; i < n_own; ++i) prompt.push_back(input_.ConsumeIntegralInRange<TokenId>(1, 3));
    prompt.resize(std::min(prompt.size(), static_cast<std::size_t>(longest - 1)));
    const auto room = longest - static_cast<std::int32_t>(prompt.size());
    const auto max_tokens = input_.ConsumeIntegralInRange<std::int32_t>(1, std::min(room, 20));
    static const std::vector<baton::CacheScope> scopes{{}, {"", "x", 8}, {"", "y", 8}};
    auto sequence = baton::testing::make_sequence(driver_.next_id(), prompt, max_tokens,
                                                  scopes[input_.ConsumeIntegralInRange<std::size_t>(0, scopes.size() - 1)]);
    baton::SequenceEditor::task(*sequence).priority = input_.ConsumeIntegralInRange<std::int32_t>(-1, 1);
    baton::SequenceEditor::task(*sequence).tenant = {input_.ConsumeIntegralInRange<std::int32_t>(0, 2),
                                                     input_.ConsumeIntegralInRange<std::int32_t>(1, 3)};
    if (options_.max_drafts > 0 && input_.ConsumeBool()) {
      baton::SpeculationOptions speculation{.n_tokens = 5, .lookup_max = 2, .lookup_min = 1};
      if (options_.has_mtp && input_.ConsumeBool())
        speculation = {.n_tokens = input_.ConsumeIntegralInRange(1, 4), .method = baton::DraftMethod::mtp};
      baton::SequenceEditor::schedule(*sequence).speculation.emplace(speculation);
    }
    driver_.add(std::move(sequence));
  }

  /// The longest sequence fits beside the blocks that may be pinned.
  std::int32_t longest_len() const { return (n_blocks_ - driver_.max_pinned_blocks) * baton::testing::kBlockLen; }

  /// What a prefix or a mark computes: full blocks, and no token.
  void register_prefix() {
    const auto n_blocks =
        input_.ConsumeIntegralInRange<std::int32_t>(1, std::min(7, longest_len() / baton::testing::kBlockLen));
    std::vector<TokenId> prompt = baton::testing::prompt_of(static_cast<std::size_t>(n_blocks * baton::testing::kBlockLen), 1);
    for (auto n = input_.ConsumeIntegralInRange<std::size_t>(0, 4); n > 0; --n)
      prompt[prompt.size() - n] = input_.ConsumeIntegralInRange<TokenId>(1, 3);
    driver_.add(baton::testing::make_sequence(driver_.next_id(), std::move(prompt), 0));
  }

  void cancel() {
    if (driver_.n_unfinished() == 0) return;
    driver_.cancel(input_.ConsumeIntegralInRange<std::size_t>(0, driver_.n_unfinished() - 1));
    driver_.take();
  }

  /// A step of the engine. Returns false if there was nothing to do.
  bool step() {
    const bool has_committed = driver_.commit_awaited();
    const baton::StepPlan& plan = driver_.plan();
    baton::check(plan.n_rows <= options_.max_num_batched_tokens, "more rows than a step has");
    const bool is_empty = plan.is_empty();
    return driver_.commit_behind() || has_committed || !is_empty || driver_.needs_plan();
  }

  FuzzedDataProvider& input_;
  std::int32_t n_blocks_;
  baton::SchedulerOptions options_;
  std::int32_t n_state_slots_;  ///< of recurrent layers; 0: the model has none
  std::vector<baton::CacheGroup> groups_;
  bool has_caching_;
  std::int32_t n_tier_slots_;  ///< of the host tier; 0: there is none
  SchedulerDriver driver_;
};

/// Ends the program by a signal that libFuzzer handles, so that it writes the input: it does not handle the trap of gtest's
/// break_on_failure.
class AbortOnFailure : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) std::abort();
  }
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  ::testing::UnitTest::GetInstance()->listeners().Append(new AbortOnFailure());  // gtest deletes it
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  Load(input).run();
  return 0;
}
