/// Conversations that do not fit the context (server/prompt/prompts.h).
#include "server/prompt/prompts.h"

#include <string>

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

ServedModel model_of(std::int32_t max_len) {
  ServedModel model = byte_model();
  model.set_context(max_len);
  return model;
}

TEST(ContextExcess, is_a_prompt_or_an_answer_after_it_that_does_not_fit) {
  const ServedModel model = model_of(100);
  SamplingParams sampling;
  EXPECT_FALSE(context_excess(model, 99, sampling));
  EXPECT_TRUE(context_excess(model, 100, sampling));
  sampling.max_tokens = 10;
  EXPECT_FALSE(context_excess(model, 90, sampling));
  const auto excess = context_excess(model, 91, sampling);
  ASSERT_TRUE(excess);
  EXPECT_EQ(excess->max_tokens, 10);
  EXPECT_FALSE(context_excess(model, 100, sampling)->max_tokens) << "no answer fits";
}

TEST(ContextExcess, of_texts_is_known_before_they_are_rendered) {
  const ServedModel model = model_of(100);
  const std::string large(model.max_prompt_bytes + 1, 'a');
  const auto of = [&](std::string_view role, const json::Value& content) {
    return text_excess(model, json::Value::array({json::Value{{"role", role}, {"content", content}}}));
  };
  for (const std::string_view role : {"user", "system", "tool"}) EXPECT_TRUE(of(role, large)) << role;
  EXPECT_FALSE(of("assistant", large)) << "templates leave out parts of it";
  EXPECT_FALSE(of("user", "a"));
  EXPECT_TRUE(of("user", json::Value::array({json::Value{{"type", "text"}, {"text", large}}})));
  const auto excess = of("user", large);
  EXPECT_GT(excess->prompt_len, 100);
  EXPECT_TRUE(excess->is_least);
}

TEST(ContextExcess, has_the_sentences_of_the_openai_api) {
  EXPECT_EQ(
      openai_excess({.prompt_len = 120, .max_len = 100}).message,
      "This model's maximum context length is 100 tokens. However, the prompt has 120 tokens, which leaves no room for an "
      "answer. Please shorten the prompt.");
  EXPECT_EQ(openai_excess({.prompt_len = 60, .max_tokens = 50, .max_len = 100}).message,
            "This model's maximum context length is 100 tokens. However, you requested 110 tokens (60 in the prompt, 50 in the "
            "completion). Please shorten the prompt or lower max_tokens.");
  EXPECT_EQ(openai_excess({.prompt_len = 120, .max_len = 100}).param, "messages");
  EXPECT_EQ(openai_excess({.prompt_len = 60, .max_tokens = 50, .max_len = 100}).param, "max_tokens");
}

}  // namespace
}  // namespace baton
