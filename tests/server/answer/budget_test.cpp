/// Counting and refusing large answers (server/answer/budget.h).
#include "server/answer/budget.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

std::vector<TokenId> prompt_of_ten() { return std::vector<TokenId>(10, 65); }

TEST(AnswerBudget, scores_are_counted_before_anything_is_computed) {
  const std::vector<AnswerPrompt> prompts = {{prompt_of_ten(), {}}, {prompt_of_ten(), {}}};
  GenerationRequest request;
  request.n = 3;
  EXPECT_EQ(count_scores(request, /*is_chat=*/false, prompts, 100).total(), 0);
  request.sampling.n_prompt_logprobs = 4;
  EXPECT_EQ(count_scores(request, /*is_chat=*/false, prompts, 100).of_prompts, 2 * 10 * 5 * 3);
  EXPECT_EQ(count_scores(request, /*is_chat=*/true, prompts, 100).of_prompts, 2 * 10 * 5);
  request.sampling.n_top_logprobs = 1;
  EXPECT_EQ(count_scores(request, /*is_chat=*/true, prompts, 100).of_answers, 2 * 90 * 2 * 3);
  request.sampling.max_tokens = 7;
  EXPECT_EQ(count_scores(request, /*is_chat=*/true, prompts, 100).of_answers, 2 * 7 * 2 * 3);
  EXPECT_EQ(count_scores(request, /*is_chat=*/true, prompts, 5).of_answers, 0);
  request.is_stream = true;
  EXPECT_EQ(count_scores(request, /*is_chat=*/true, prompts, 100).of_answers, 0);
}

TEST(AnswerBudget, each_choice_repeats_its_prompt) {
  const std::vector<AnswerPrompt> prompts = {{prompt_of_ten(), std::string(12'800, 'x')}};
  GenerationRequest request;
  request.n = 3;
  EXPECT_EQ(count_scores(request, /*is_chat=*/false, prompts, 100).of_copies, 3 * 12'800 / kScoreBytes);
  request.wants_token_ids = true;
  EXPECT_EQ(count_scores(request, /*is_chat=*/false, prompts, 100).of_copies, 3 * (12'800 + 10 * 8) / kScoreBytes);
}

TEST(AnswerBudget, refuses_by_the_field_that_makes_the_answer_large) {
  Budgets budgets(BudgetLimits{.scores_per_answer = 1000, .scores = 1200});
  const auto refused = [&](const GenerationRequest& request, const std::vector<AnswerPrompt>& prompts) {
    const auto share = take_scores(budgets, request, /*is_chat=*/false, prompts, 100);
    EXPECT_FALSE(share);
    return share ? Error{} : share.error();
  };
  GenerationRequest echoes;
  echoes.sampling.max_tokens = 0;
  echoes.n = 128;
  const std::vector<AnswerPrompt> long_text = {{prompt_of_ten(), std::string(1280, 'x')}};
  EXPECT_EQ(refused(echoes, long_text).param, "echo");
  EXPECT_EQ(refused(echoes, long_text).code, ErrorCode::invalid_request);
  GenerationRequest scores;
  scores.sampling.max_tokens = 1;
  scores.n = 128;
  scores.sampling.n_prompt_logprobs = scores.n_prompt_logprobs = 20;
  EXPECT_EQ(refused(scores, {{prompt_of_ten(), {}}}).param, "prompt_logprobs");
  echoes.n = 64;
  const auto first = take_scores(budgets, echoes, /*is_chat=*/false, long_text, 100);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->size(), 640);
  EXPECT_EQ(refused(echoes, long_text).code, ErrorCode::unavailable);
}

TEST(AnswerBudget, a_stream_does_not_begin_with_more_than_is_written_at_once) {
  Budgets budgets(BudgetLimits{.scores_per_answer = 1 << 20, .scores = 8 << 20});
  GenerationRequest request;
  request.n = 2;
  const std::vector<AnswerPrompt> long_text = {{prompt_of_ten(), std::string(2 << 20, 'x')}};
  EXPECT_TRUE(take_scores(budgets, request, /*is_chat=*/false, long_text, 100));
  request.is_stream = true;
  const auto refused = take_scores(budgets, request, /*is_chat=*/false, long_text, 100);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("this server puts 16384 into the beginning of a stream"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace baton
