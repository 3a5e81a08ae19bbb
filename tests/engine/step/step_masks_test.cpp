/// The masks of a step: which samples share one, what they allow, and what happens if one cannot be made.
#include "engine/step/step_masks.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "support/grammar_vocabulary.h"

namespace baton {
namespace {

using grammar::GrammarKind;
using testing::constraint_of;
using testing::kEndOfText;

/// Sequences with grammars, and a step that samples from each of them.
class Step {
 public:
  explicit Step(std::int32_t n_words = 5, const MaskBudget& budget = {})
      : masks(budget), n_words_(n_words), row_of_(8, 99), bits_(8 * static_cast<std::size_t>(n_words), ~0u) {}

  Sequence& add(Constraint constraint, std::vector<TokenId> drafts = {}, std::vector<TokenId> stop_ids = {kEndOfText}) {
    SequenceTask task;
    task.id = SequenceId{static_cast<std::int64_t>(owned_.size())};
    task.request = RequestId{0};
    task.prompt_len = 1;
    task.max_len = 100;
    task.stop_ids = std::move(stop_ids);
    task.constraint = std::make_shared<const Constraint>(std::move(constraint));
    owned_.push_back(std::make_unique<Sequence>(std::move(task), std::vector<TokenId>{7}));
    built_.sequences.push_back({owned_.back().get(), {static_cast<std::int32_t>(built_.masked.size()), 0}});
    const std::vector<TokenId>& kept = *drafts_.emplace_back(std::make_unique<std::vector<TokenId>>(std::move(drafts)));
    for (std::size_t n = 0; n <= kept.size(); ++n) {
      built_.masked.push_back({static_cast<std::int32_t>(owned_.size()) - 1, static_cast<std::int32_t>(built_.masked.size())});
      built_.drafts_of_sample.push_back(std::span(kept).first(n));
    }
    return *owned_.back();
  }
  /// An outcome of every sequence.
  std::vector<StepOutcome> take(const std::vector<std::vector<TokenId>>& tokens, std::optional<FinishReason> finished = {}) {
    std::vector<StepOutcome> outcomes;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      outcomes.push_back({.id = owned_[i]->task->id, .tokens = {}, .finished = finished, .stop_token = {}});
      for (const TokenId token : tokens[i]) outcomes.back().tokens.push_back({token, {}, {}});
      const auto n_accepted = std::ranges::mismatch(tokens[i], *drafts_[i]).in1 - tokens[i].begin();
      outcomes.back().n_accepted = static_cast<std::int32_t>(n_accepted);
    }
    masks.take(built_, outcomes);
    return outcomes;
  }
  std::int32_t build() { return build_some().n_rows; }
  StepMasks::Built build_some() {
    for (std::size_t i = 0; i < drafts_.size(); ++i)
      built_.sequences[i].samples.count = static_cast<std::int32_t>(drafts_[i]->size()) + 1;
    return masks.build(built_, {row_of_, bits_, n_words_});
  }
  /// Samples of a sequence that were not dropped.
  std::int32_t n_samples(std::size_t sequence) const { return built_.sequences[sequence].samples.count; }

  std::int32_t row(std::size_t mask) const { return row_of_[mask]; }
  bool allows(std::size_t mask, TokenId token) const {
    const auto at =
        static_cast<std::size_t>(row(mask)) * static_cast<std::size_t>(n_words_) + static_cast<std::size_t>(token) / 32;
    return (bits_[at] >> (token % 32) & 1) != 0;
  }
  std::size_t n_allowed(std::size_t mask) const {
    std::size_t n = 0;
    for (TokenId token = 0; token < 32 * n_words_; ++token) n += allows(mask, token) ? 1 : 0;
    return n;
  }

  StepMasks masks;

 private:
  std::int32_t n_words_;
  std::vector<std::unique_ptr<Sequence>> owned_;
  std::vector<std::unique_ptr<std::vector<TokenId>>> drafts_;
  BuiltStep built_{.input = StepInput(1)};
  std::vector<std::int32_t> row_of_;
  std::vector<std::uint32_t> bits_;
};

TokenId token_of(std::string_view text) { return testing::encode(*testing::tiny_vocabulary(), text)[0]; }

TEST(StepMasks, equal_places_share_a_row) {
  const Constraint digits = constraint_of(GrammarKind::regex, "[0-9]*x");
  Step step;
  step.add(digits);
  step.add(constraint_of(GrammarKind::regex, "y"));
  step.add(digits);
  step.add(digits, {}, {});  // its end does not stop it
  EXPECT_EQ(step.build(), 3);
  EXPECT_EQ(step.row(0), step.row(2));
  EXPECT_NE(step.row(0), step.row(1));
  EXPECT_NE(step.row(0), step.row(3));
  EXPECT_EQ(step.n_allowed(0), 12u) << "ten digits, 12, x";
  EXPECT_EQ(step.n_allowed(1), 1u);
  step.take({{token_of("x")}, {}, {token_of("1")}, {token_of("x")}});
  EXPECT_EQ(step.build(), 4);
  EXPECT_EQ(step.n_allowed(0), 1u);
  EXPECT_TRUE(step.allows(0, kEndOfText));
  EXPECT_EQ(step.n_allowed(2), 12u);
  EXPECT_EQ(step.n_allowed(3), 0u) << "nothing but an end that is none";
}

TEST(StepMasks, rows_of_drafts_are_as_if_the_drafts_were_accepted) {
  Step step;
  step.add(constraint_of(GrammarKind::choice, R"(["xyz"])"), {token_of("x"), token_of("y"), token_of("y"), token_of("z")});
  EXPECT_EQ(step.build(), 3);
  EXPECT_TRUE(step.allows(0, token_of("x")));
  EXPECT_TRUE(step.allows(1, token_of("y")));
  EXPECT_TRUE(step.allows(2, token_of("z")));
  for (const std::size_t mask : {0, 1, 2}) EXPECT_EQ(step.n_allowed(mask), 1u);
  EXPECT_EQ(step.row(3), -1) << "the draft before it is refused";
  EXPECT_EQ(step.row(4), -1);
}

TEST(StepMasks, there_is_no_mask_before_the_grammar_begins_and_after_the_end) {
  Constraint later = constraint_of(GrammarKind::regex, "x");
  later.begins_behind = {60};
  Step step;
  step.add(later, {60});
  EXPECT_EQ(step.build(), 1);
  EXPECT_EQ(step.row(0), -1);
  EXPECT_EQ(step.n_allowed(1), 1u) << "it begins after the draft";
  step.take({{60}});
  EXPECT_EQ(step.build(), 1) << "the draft is refused now";
  EXPECT_EQ(step.n_allowed(0), 1u);
  EXPECT_EQ(step.row(1), -1);
  step.take({{token_of("x")}}, FinishReason::length);
  EXPECT_EQ(step.build(), 0);
  EXPECT_EQ(step.row(0), -1);
  EXPECT_TRUE(step.masks.take_failures().empty());
}

TEST(StepMasks, vocabularies_may_be_longer_or_shorter_than_the_models) {
  for (const std::int32_t n_words : {3, 4, 8}) {
    SCOPED_TRACE(n_words);
    Step step(n_words);
    step.add(constraint_of(GrammarKind::regex, "[ -~]*"));
    EXPECT_EQ(step.build(), 1);
    EXPECT_EQ(step.n_allowed(0), n_words == 3 ? 94u : n_words == 4 ? 126u : 128u);
  }
}

TEST(StepMasks, many_new_grammars_are_looked_at_by_several_threads) {
  Step step;
  for (int i = 0; i < 8; ++i) step.add(constraint_of(GrammarKind::regex, std::string(1, static_cast<char>('0' + i)) + "[^x]*"));
  EXPECT_EQ(step.build(), 8);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(step.allows(i, token_of(std::string(1, static_cast<char>('0' + i)))));
    EXPECT_LE(step.n_allowed(i), 3u);
  }
}

TEST(StepMasks, places_are_not_held_after_the_build_of_their_masks) {
  // What a matcher without room for anything learned still has: what is held.
  const auto n_bytes_behind_two_tokens = [](bool has_masks) {
    const Constraint compiled = constraint_of(GrammarKind::regex, "xyz");
    Constraint constraint;
    constraint.matcher = std::make_shared<grammar::Matcher>(std::make_shared<grammar::Program>(compiled.matcher->program()),
                                                            testing::tiny_vocabulary(), grammar::MatcherLimits{0, 0, 0});
    Step step;
    step.add(constraint);
    if (has_masks) step.build();
    step.take({{token_of("x")}});
    step.take({{token_of("y")}});
    return constraint.matcher->n_bytes();
  };
  EXPECT_EQ(n_bytes_behind_two_tokens(true), n_bytes_behind_two_tokens(false));
}

TEST(StepMasks, a_mask_that_cannot_be_made_fails_its_sequences) {
  Step step;
  const Constraint stuck = constraint_of(GrammarKind::ebnf, "root ::= \"x\" [\\u00e9]");
  step.add(stuck);
  step.add(constraint_of(GrammarKind::regex, "yy"));
  step.add(stuck, {token_of("x")});
  EXPECT_EQ(step.build(), 3);
  EXPECT_EQ(step.n_allowed(3), 0u) << "after a draft that may not be accepted nothing is allowed";
  EXPECT_TRUE(step.masks.take_failures().empty());
  step.take({{token_of("x")}, {token_of("y")}, {token_of("x")}});
  step.build();
  const auto failures = step.masks.take_failures();
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0].id.value, 0);
  EXPECT_EQ(failures[1].id.value, 2);
  EXPECT_EQ(failures[0].error.code, ErrorCode::unsupported);
  step.build();
  EXPECT_TRUE(step.masks.take_failures().empty()) << "once";
  EXPECT_EQ(step.n_allowed(1), 1u) << "others continue";
}

TEST(StepMasks, an_answer_that_cannot_continue_after_its_drafts_ends_with_the_error) {
  const Constraint stuck = constraint_of(GrammarKind::ebnf, "root ::= \"x\" ([\\u00e9] | \"z\" [\\u00e9])");
  Step step;
  step.add(stuck, {token_of("x"), token_of("z")});
  step.add(stuck, {token_of("x"), token_of("z")});
  step.build();
  EXPECT_GT(step.n_allowed(1), 0u);
  EXPECT_EQ(step.n_allowed(2), 0u);
  // The first answer stops at the second draft's row; the second one is stopped before, for another reason.
  const auto outcomes = step.take({{token_of("x"), token_of("z")}, {token_of("x")}}, FinishReason::stop);
  EXPECT_EQ(outcomes[0].finished, FinishReason::error);
  ASSERT_NE(outcomes[0].error, nullptr);
  EXPECT_EQ(outcomes[0].error->code, ErrorCode::unsupported);
  EXPECT_EQ(outcomes[1].finished, FinishReason::stop);
  EXPECT_EQ(outcomes[1].error, nullptr);
  EXPECT_TRUE(step.masks.take_failures().empty());
}

TEST(StepMasks, a_token_that_no_grammar_allows_fails_its_sequence) {
  Step step;
  step.add(constraint_of(GrammarKind::regex, "x"));
  step.add(constraint_of(GrammarKind::regex, "x"));
  step.take({{token_of("y")}, {token_of("x")}});
  const auto failures = step.masks.take_failures();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].id.value, 0);
  EXPECT_EQ(failures[0].error.code, ErrorCode::internal);
}

/// A budget of the matchers' steps, which no clock shortens.
MaskBudget steps(std::int64_t n) { return {.time = std::chrono::hours(1), .steps = n, .steps_of_turn = 5}; }

TEST(StepMasks, samples_whose_masks_are_not_ready_are_dropped_and_their_work_continues) {
  Step step(5, steps(20));
  step.add(constraint_of(GrammarKind::regex, "[a-z]*x"));
  step.add(constraint_of(GrammarKind::choice, R"(["xyz"])"), {token_of("x"), token_of("y")});
  int n_steps = 0;
  int n_half_way = 0;
  for (StepMasks::Built built; n_steps == 0 || !built.late.empty(); ++n_steps) {
    ASSERT_LT(n_steps, 100);
    built = step.build_some();
    EXPECT_EQ(built.late.empty(), step.n_samples(0) == 1 && step.n_samples(1) == 3);
    n_half_way += step.n_samples(1) > 0 && step.n_samples(1) < 3 ? 1 : 0;
    for (std::int32_t i = step.n_samples(1); i < 3; ++i) EXPECT_EQ(step.row(static_cast<std::size_t>(1 + i)), -1);
    for (std::int32_t i = 0; i < step.n_samples(1); ++i) EXPECT_EQ(step.n_allowed(static_cast<std::size_t>(1 + i)), 1u);
    EXPECT_TRUE(step.n_samples(0) > 0 || step.row(0) == -1);
  }
  EXPECT_GT(n_steps, 3);
  EXPECT_GT(n_half_way, 0) << "the masks after drafts come last";
  EXPECT_GT(step.n_allowed(0), 26u) << "letters, and pieces of them";
}

TEST(StepMasks, a_sequence_does_not_draft_while_its_mask_is_late) {
  Step step(5, steps(20));
  Sequence& late = step.add(constraint_of(GrammarKind::regex, "[a-z]*x"));
  step.build();
  EXPECT_TRUE(late.grammar->is_late());
  while (late.grammar->is_late()) step.build();
  EXPECT_EQ(step.n_samples(0), 1);
}

TEST(StepMasks, nothing_is_ready_without_a_budget_and_others_continue) {
  Step step(5, steps(0));
  step.add(constraint_of(GrammarKind::regex, "[a-z]*x"));
  Constraint later = constraint_of(GrammarKind::regex, "x");
  later.begins_behind = {60};
  step.add(later);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(step.build_some().late, std::vector<std::size_t>{0});
  EXPECT_EQ(step.n_samples(1), 1) << "it needs no mask yet";
  EXPECT_TRUE(step.masks.take_failures().empty());
}

}  // namespace
}  // namespace baton
