/// Memory runs out on the pool's threads while they make masks or follow tokens: the sequences of that work end, and nothing else.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/parallel.h"
#include "engine/step/step_masks.h"
#include "support/failing_allocations.h"
#include "support/grammar_vocabulary.h"

void* operator new(std::size_t size) { return baton::test::allocate(size); }
void operator delete(void* bytes) noexcept { std::free(bytes); }
void operator delete(void* bytes, std::size_t) noexcept { std::free(bytes); }

namespace baton {
namespace {

using grammar::GrammarKind;
using testing::constraint_of;

TokenId token_of(std::string_view text) { return testing::encode(*testing::tiny_vocabulary(), text)[0]; }

/// One sequence for each of several grammars.
struct Sequences {
  explicit Sequences(bool are_behind) {
    for (int i = 0; i < 8; ++i) {
      SequenceTask task;
      task.id = SequenceId{i};
      task.request = RequestId{i};
      task.prompt_len = 1;
      task.max_len = 100;
      task.stop_ids = {testing::kEndOfText};
      task.constraint = std::make_shared<const Constraint>(
          constraint_of(GrammarKind::regex, "x" + std::string(static_cast<std::size_t>(i + 1), 'y') + "[^z]*"));
      owned.push_back(std::make_unique<Sequence>(std::move(task), std::vector<TokenId>{7}));
      if (are_behind) owned.back()->grammar->push(token_of("x"));
      step.sequences.push_back({owned.back().get(), {i, 1}});
      step.masked.push_back({i, i});
      step.drafts_of_sample.emplace_back();
    }
  }
  std::vector<std::unique_ptr<Sequence>> owned;
  BuiltStep step;
};

TEST(MaskMemory, that_runs_out_on_a_thread_of_the_pool_ends_sequences_and_not_the_program) {
  if (n_available_threads() == 1) GTEST_SKIP() << "there is no pool";
  for (const bool are_behind : {false, true}) {
    // Until a thread of the pool has had a part in it.
    for (std::int64_t n_failed = 0; n_failed == 0;) {
      Sequences of(are_behind);
      std::vector<std::int32_t> row_of(8);
      std::vector<std::uint32_t> bits(8 * 5);
      StepMasks masks;
      test::FailingAllocations::instance().fail("engine pool", 0, 1'000'000);
      masks.build(of.step, {row_of, bits, 5});
      n_failed = test::FailingAllocations::instance().stop();
      const auto failures = masks.take_failures();
      EXPECT_EQ(failures.empty(), n_failed == 0);
      for (const StepMasks::Failure& failure : failures) {
        EXPECT_EQ(failure.error.code, ErrorCode::out_of_memory);
        EXPECT_FALSE(failure.error.message.empty());
      }
    }
  }
}

}  // namespace
}  // namespace baton
