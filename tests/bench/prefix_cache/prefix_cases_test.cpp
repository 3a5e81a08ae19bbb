/// The cases of the prefix cache benchmark: their lengths, and which tokens their prompts share.
#include "bench/prefix_cache/prefix_cases.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace baton {
namespace {

DatasetTokens drawn() { return DatasetTokens::make({.n_vocab = 5000}, 0).value(); }

PrefixCase one_case(const std::string& kind, std::int32_t n_turns = 3) {
  PrefixCaseChoice choice;
  choice.kinds = {kind};
  choice.shared = {50};
  choice.own = {7, 9};
  choice.n_turns = n_turns;
  choice.answer_len = 4;
  return prefix_cases(choice).front();
}

TEST(PrefixCases, take_each_pair_of_lengths_or_the_first_own_length) {
  std::size_t n_shared = 0;
  for (const PrefixCase& each : prefix_cases({})) {
    if (each.kind == "shared") ++n_shared;
    EXPECT_TRUE(each.own_len == 40 || each.kind == "shared" || each.kind == "registered") << each.kind;
    EXPECT_LT(each.n_unjudged, each.n_requests) << each.kind;
  }
  EXPECT_EQ(prefix_cases({}).size(), 2 * 9 + 4 * 3u);
  EXPECT_EQ(n_shared, 9u);
}

TEST(PrefixCases, have_prompts_that_share_what_they_say) {
  const DatasetTokens tokens = drawn();
  for (const std::string kind : {"shared", "registered", "identical", "forks"}) {
    const PrefixCase of = one_case(kind);
    CasePrompts prompts(of, tokens, 0);
    const std::vector<TokenId> first = prompts.next({});
    const std::vector<TokenId> second = prompts.next({});
    EXPECT_EQ(first.size(), 57u) << kind;
    EXPECT_TRUE(std::ranges::equal(prompts.shared(), std::span(first).first(50))) << kind;
    ComputedTokens computed;
    computed.add(first);
    EXPECT_EQ(computed.shared_len(second), kind == "identical" ? 57 : 50) << kind;
    EXPECT_EQ(computed.shared_len(CasePrompts(of, tokens, 1).next({})), 0) << kind;
  }
}

/// The longest context is that of the last turn.
TEST(PrefixCases, continue_conversations_with_answers_or_their_second_halves) {
  const DatasetTokens tokens = drawn();
  const std::vector<TokenId> answer{1, 2, 3, 4};
  for (const std::string kind : {"turns", "reasoning"}) {
    const bool is_whole = kind == "turns";
    const PrefixCase of = one_case(kind, 2);
    CasePrompts prompts(of, tokens, 0);
    const std::vector<TokenId> first = prompts.next({});
    const std::vector<TokenId> second = prompts.next(answer);
    ComputedTokens computed;
    computed.add(first);
    EXPECT_EQ(first.size(), is_whole ? 57u : 57u + kAnswerHeaderLen);
    EXPECT_EQ(computed.shared_len(second), 57) << kind;
    EXPECT_TRUE(std::ranges::equal(std::span(second).subspan(57, is_whole ? 4 : 2), std::span(answer).last(is_whole ? 4 : 2)));
    EXPECT_EQ(std::ranges::equal(std::span(first).last(kAnswerHeaderLen), std::span(second).last(kAnswerHeaderLen)), !is_whole);
    EXPECT_LE(std::ssize(second) + of.answer_len, of.longest_context()) << kind;
  }
}

TEST(FoundInBlocks, leaves_a_part_of_a_block_and_the_last_token) {
  EXPECT_EQ(found_in_blocks(480, 520, 16), 480);
  EXPECT_EQ(found_in_blocks(487, 520, 16), 480);
  EXPECT_EQ(found_in_blocks(480, 480, 16), 464);
  EXPECT_EQ(found_in_blocks(15, 520, 16), 0);
}

}  // namespace
}  // namespace baton
