/// Both forms of log-probabilities (server/answer/logprobs.h).
#include "server/answer/logprobs.h"

#include <limits>

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

std::string completion_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> echoed,
                                std::span<const TokenOutput> tokens, std::size_t& text_offset) {
  std::string out;
  write_completion_logprobs(tokenizer, echoed, tokens, text_offset, out).finish();
  return out;
}

std::string prompt_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> scores, std::int32_t n_top) {
  std::string out;
  write_prompt_logprobs(tokenizer, scores, n_top, out).finish();
  return out;
}

TEST(OpenaiLogprobs, of_chat_show_bytes_and_the_most_likely_tokens) {
  const Tokenizer tokenizer = byte_tokenizer();
  EXPECT_EQ(json::dump(chat_logprob(tokenizer, {0xC3, -1.5f, {{0xC3, -1.5f}, {66, -2.0f}}})),
            "{\"token\":\"\uFFFD\",\"logprob\":-1.5,\"bytes\":[195],\"top_logprobs\":["
            "{\"token\":\"\uFFFD\",\"logprob\":-1.5,\"bytes\":[195]},{\"token\":\"B\",\"logprob\":-2.0,\"bytes\":[66]}]}");
}

TEST(OpenaiLogprobs, never_fall_below_what_json_can_say) {
  const Tokenizer tokenizer = byte_tokenizer();
  const json::Value entry = chat_logprob(tokenizer, {65, -std::numeric_limits<float>::infinity(), {}});
  EXPECT_EQ(entry["logprob"], -9999.0);
}

TEST(OpenaiLogprobs, of_completions_count_characters_and_add_the_chosen_token) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::vector<TokenOutput> tokens = {{259, -1.0f, {{65, -0.5f}}}, {66, -2.0f, {{66, -2.0f}}}};
  std::size_t offset = 7;
  EXPECT_EQ(completion_logprobs(tokenizer, {}, tokens, offset),
            "{\"text_offset\":[7,8],\"token_logprobs\":[-1.0,-2.0],\"tokens\":[\"\u00e9\",\"B\"],"
            "\"top_logprobs\":[{\"A\":-0.5,\"\u00e9\":-1.0},{\"B\":-2.0}]}");
  EXPECT_EQ(offset, 9u);
  std::size_t divided = 7;
  offset = 7;
  const std::span<const TokenOutput> all = tokens;
  EXPECT_EQ(completion_logprobs(tokenizer, all.first(1), all.last(1), divided),
            completion_logprobs(tokenizer, {}, tokens, offset));
}

TEST(OpenaiLogprobs, of_a_first_token_are_null) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::vector<TokenOutput> tokens = {{65, {}, {}}, {66, -2.0f, {}}};
  std::size_t offset = 0;
  EXPECT_EQ(completion_logprobs(tokenizer, {}, tokens, offset),
            R"({"text_offset":[0,1],"token_logprobs":[null,-2.0],"tokens":["A","B"],"top_logprobs":[null,{"B":-2.0}]})");
}

TEST(OpenaiLogprobs, of_prompts_are_objects_by_token_id_with_ranks) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::vector<TokenOutput> scores = {{66, -2.0f, {{65, -0.5f}, {66, -2.0f}, {67, -3.0f}}, 2}};
  EXPECT_EQ(
      prompt_logprobs(tokenizer, scores, 2),
      R"([null,{"66":{"logprob":-2.0,"rank":2,"decoded_token":"B"},"65":{"logprob":-0.5,"rank":1,"decoded_token":"A"}}])");
}

}  // namespace
}  // namespace baton
