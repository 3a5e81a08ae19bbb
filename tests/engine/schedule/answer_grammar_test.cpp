/// An answer's place in its grammar: begins, ends, drafts.
#include "engine/schedule/answer_grammar.h"

#include <gtest/gtest.h>

#include "support/grammar_vocabulary.h"

namespace baton {
namespace {

using grammar::GrammarKind;
using testing::constraint_of;
using testing::kEndOfText;

std::shared_ptr<const Constraint> shared(Constraint constraint) {
  return std::make_shared<const Constraint>(std::move(constraint));
}

grammar::MatcherWork work;  // without a limit

std::vector<TokenId> tokens(std::string_view text) { return testing::encode(*testing::tiny_vocabulary(), text); }

TEST(AnswerGrammar, takes_what_the_grammar_allows) {
  AnswerGrammar answer(shared(constraint_of(GrammarKind::regex, "a+b")), std::vector<TokenId>{kEndOfText});
  const TokenId a = tokens("a")[0];
  const TokenId b = tokens("b")[0];
  EXPECT_FALSE(answer.take(b));
  EXPECT_FALSE(answer.take(kEndOfText));
  EXPECT_TRUE(answer.take(a));
  const AnswerGrammar::Place behind_a = answer.place();
  EXPECT_TRUE(answer.take(a));
  EXPECT_EQ(answer.place(), behind_a) << "equal places are equal";
  EXPECT_TRUE(answer.take(b));
  EXPECT_NE(answer.place(), behind_a);
  EXPECT_FALSE(answer.take(b));
  EXPECT_TRUE(answer.take(kEndOfText));
}

TEST(AnswerGrammar, goes_after_pushed_tokens_as_far_as_the_work_allows) {
  AnswerGrammar answer(shared(constraint_of(GrammarKind::regex, "(ab)*x")), std::vector<TokenId>{kEndOfText});
  const auto start = answer.place();
  for (const TokenId token : tokens("abababab")) answer.push(token);
  EXPECT_FALSE(answer.is_caught_up());
  EXPECT_TRUE(answer.is_late()) << "it does not draft before it knows where it is";
  int n_calls = 0;
  for (auto accepted = grammar::Accepted::not_yet; accepted == grammar::Accepted::not_yet; ++n_calls) {
    grammar::MatcherWork one{1};
    accepted = answer.catch_up(one);
    EXPECT_NE(accepted, grammar::Accepted::no);
  }
  EXPECT_GE(n_calls, 8) << "a byte each";
  EXPECT_TRUE(answer.is_caught_up());
  EXPECT_FALSE(answer.is_late());
  EXPECT_EQ(answer.place(), start) << "after each ab the same may follow";
  answer.push(tokens("y")[0]);
  EXPECT_EQ(answer.catch_up(work), grammar::Accepted::no);
  EXPECT_TRUE(answer.has_failed());
  answer.end();
  EXPECT_FALSE(answer.has_failed()) << "no caller asks any more";
}

TEST(AnswerGrammar, begins_after_one_of_its_tokens) {
  Constraint constraint = constraint_of(GrammarKind::regex, "ab");
  constraint.begins_behind = {50, 51};
  AnswerGrammar answer(shared(constraint), {});
  EXPECT_FALSE(answer.place().has_begun);
  EXPECT_TRUE(answer.take(1)) << "a special token";
  EXPECT_TRUE(answer.take(49));
  EXPECT_FALSE(answer.place().has_begun);
  EXPECT_EQ(answer.n_allowed(std::vector<TokenId>{49, 51, tokens("a")[0], 50}, work), 3u) << "it begins within the drafts";
  EXPECT_TRUE(answer.take(51));
  EXPECT_TRUE(answer.place().has_begun);
  EXPECT_FALSE(answer.take(51));
}

TEST(AnswerGrammar, ends_that_do_not_stop_are_forbidden) {
  const auto constraint = shared(constraint_of(GrammarKind::regex, "a*"));
  EXPECT_TRUE(AnswerGrammar(constraint, std::vector<TokenId>{5, kEndOfText}).forbidden_ends().empty());
  const AnswerGrammar goes_on(constraint, std::vector<TokenId>{5});
  EXPECT_TRUE(std::ranges::equal(goes_on.forbidden_ends(), std::vector<TokenId>{kEndOfText}));
}

TEST(AnswerGrammar, counts_the_drafts_that_it_allows) {
  const AnswerGrammar answer(shared(constraint_of(GrammarKind::regex, "a{2}c*")), {});
  const TokenId a = tokens("a")[0];
  EXPECT_EQ(answer.n_allowed(std::vector<TokenId>{}, work), 0u);
  EXPECT_EQ(answer.n_allowed(std::vector<TokenId>{a, a, a, a}, work), 2u);
  EXPECT_EQ(answer.n_allowed(std::vector<TokenId>{a, a, tokens("c")[0]}, work), 3u);
}

TEST(AnswerGrammar, drafts_the_text_that_must_follow) {
  const std::string text = "[\"name: value\"]";
  AnswerGrammar with(shared(constraint_of(GrammarKind::choice, text, /*has_drafts=*/true)), {});
  EXPECT_EQ(with.forced_tokens(work), tokens("name: value"));
  EXPECT_TRUE(with.take(tokens("name")[0]));
  EXPECT_EQ(with.forced_tokens(work), tokens(": value"));
  EXPECT_TRUE(AnswerGrammar(shared(constraint_of(GrammarKind::choice, text)), {}).forced_tokens(work).empty()) << "no encoder";
  Constraint later = constraint_of(GrammarKind::choice, text, /*has_drafts=*/true);
  later.begins_behind = {50};
  EXPECT_TRUE(AnswerGrammar(shared(later), {}).forced_tokens(work).empty()) << "it has not begun";
}

}  // namespace
}  // namespace baton
