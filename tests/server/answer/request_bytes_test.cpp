/// What requests take of their budget.
#include "server/answer/budget.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "io/json.h"
#include "support/tool_index.h"

namespace baton {
namespace {

std::vector<AnswerPrompt> prompts_of(std::size_t n_tokens, std::size_t n_prompts) {
  return std::vector<AnswerPrompt>(n_prompts, AnswerPrompt{std::vector<TokenId>(n_tokens, 1), {}});
}

TEST(RequestBytes, counts_prompts_and_lists_once_and_sequences_each) {
  GenerationRequest request;
  const std::int64_t one = request_bytes(request, prompts_of(1000, 1));
  EXPECT_GE(one, 4000);
  EXPECT_LT(one, 8000);
  request.n = 128;
  const std::int64_t many = request_bytes(request, prompts_of(1000, 1));
  EXPECT_GE(many, 128 * 1024);
  EXPECT_LT(many, 128 * 4096) << "the prompt is shared";
  request.sampling.allowed_ids = std::vector<TokenId>(10000, 1);
  EXPECT_EQ(request_bytes(request, prompts_of(1000, 1)) - many, 40000);
  EXPECT_EQ(request_bytes(request, prompts_of(1000, 8)) - 40000, 8 * many);
}

TEST(RequestBytes, counts_every_text_that_is_kept) {
  const auto added = [](auto change) {
    GenerationRequest request;
    std::vector<AnswerPrompt> prompts = prompts_of(1, 1);
    const std::int64_t before = request_bytes(request, prompts);
    change(request, prompts[0]);
    return request_bytes(request, prompts) - before;
  };
  const std::string text(1000, 'x');
  EXPECT_GE(added([&](GenerationRequest& request, AnswerPrompt&) { request.stop = {text}; }), 1000);
  EXPECT_GE(added([&](GenerationRequest& request, AnswerPrompt&) { request.bad_words = {text}; }), 1000);
  EXPECT_GE(added([&](GenerationRequest& request, AnswerPrompt&) { request.cache_salt = text; }), 1000);
  EXPECT_GE(added([&](GenerationRequest& request, AnswerPrompt&) {
              request.grammar = StructuredOutput{{.kind = grammar::GrammarKind::regex, .text = text}, "guided_regex"};
            }),
            1000);
  EXPECT_GE(added([&](GenerationRequest& request, AnswerPrompt&) { request.sampling.logit_bias = {{1, 1}}; }), 8);
  EXPECT_GE(
      added([&](GenerationRequest& request, AnswerPrompt&) { request.reading.tools = testing::index_of({{.name = text}}); }),
      1000);
  const auto schema = json::parse(R"({"properties": {")" + text + R"(": {"type": "integer"}}})", "the schema");
  EXPECT_GE(added([&](GenerationRequest& request, AnswerPrompt&) {
              request.reading.tools = testing::index_of({{.name = "f", .parameters = *schema}});
            }),
            1000);
  EXPECT_GE(added([&](GenerationRequest&, AnswerPrompt& prompt) { prompt.echo = text; }), 2000) << "its choice has it too";
}

TEST(RequestBytes, are_taken_from_the_budget_or_refused_by_name) {
  const GenerationRequest request;
  const std::vector<AnswerPrompt> prompts = prompts_of(10'000, 1);
  const std::int64_t bytes = request_bytes(request, prompts);
  Budget small(bytes, /*small=*/100);
  const auto too_large = take_request_bytes(small, request, prompts);
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().code, ErrorCode::too_large) << "a quarter is kept for small ones";
  Budget budget(2 * bytes, /*small=*/100);
  auto first = take_request_bytes(budget, request, prompts);
  ASSERT_TRUE(first);
  EXPECT_EQ(budget.used(), bytes);
  const auto second = take_request_bytes(budget, request, prompts);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::unavailable);
  EXPECT_EQ(budget.n_refused(), 1);
  first->release();
  EXPECT_TRUE(take_request_bytes(budget, request, prompts));
}

}  // namespace
}  // namespace baton
