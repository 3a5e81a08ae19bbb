/// Sequence: which class may change its parts, and what its events report.
#include "engine/schedule/sequence.h"

#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/sequence_editor.h"

namespace baton {
namespace {

template <class Part>
concept has_open_write = requires(Part& part) { part.write(); };

template <class Part>
constexpr bool is_read_only = !has_open_write<Part> && !std::is_move_assignable_v<Part> &&
                              std::is_const_v<std::remove_reference_t<decltype(*std::declval<Part&>())>> &&
                              std::is_const_v<std::remove_pointer_t<decltype(std::declval<Part&>().operator->())>>;

/// A part that all code may change; the test below must detect it.
struct OpenPart {
  int& write();
};

TEST(Sequence, lets_only_their_writers_change_its_parts) {
  static_assert(has_open_write<OpenPart>);
  static_assert(is_read_only<decltype(Sequence::task)>);
  static_assert(is_read_only<decltype(Sequence::schedule)>);
  static_assert(is_read_only<decltype(Sequence::sampling)>);
  static_assert(is_read_only<decltype(Sequence::report)>);
  Sequence sequence({}, {});
  SequenceEditor::schedule(sequence).n_planned = 3;
  EXPECT_EQ(sequence.schedule->n_planned, 3);
}

TEST(Sequence, waits_with_its_prompt_its_scope_and_its_speculation) {
  SequenceTask task;
  task.prompt_len = 3;
  task.max_len = 5;
  task.scope = {"", "salt", 8};
  task.speculation = SpeculationOptions{.n_tokens = 4};
  const Sequence sequence(std::move(task), {7, 8, 9});
  EXPECT_EQ(sequence.schedule->state, SequenceState::waiting);
  EXPECT_EQ(sequence.schedule->tokens, (std::vector<TokenId>{7, 8, 9}));
  EXPECT_EQ(sequence.schedule->table.scope.salt, "salt");
  EXPECT_TRUE(sequence.schedule->speculation);
  EXPECT_EQ(sequence.n_rows_left(), 3);
}

TEST(Sequence, tells_the_scheduler_s_counts_in_its_statistics) {
  SequenceTask task;
  task.prompt_len = 20;
  task.max_len = 30;
  Sequence sequence(std::move(task), std::vector<TokenId>(20, 7));
  SequenceSchedule& schedule = SequenceEditor::schedule(sequence);
  schedule.n_cached = 16;
  schedule.n_preemptions = 1;
  schedule.n_drafts = 9;
  schedule.n_accepted = 4;
  const SequenceStats stats = sequence.stats();
  EXPECT_EQ(stats.prompt_tokens, 20);
  EXPECT_EQ(stats.cached_tokens, 16);
  EXPECT_EQ(stats.n_preemptions, 1);
  EXPECT_EQ(stats.draft_tokens, 9);
  EXPECT_EQ(stats.accepted_tokens, 4);
  EXPECT_EQ(stats.largest_group, 1);
}

}  // namespace
}  // namespace baton
