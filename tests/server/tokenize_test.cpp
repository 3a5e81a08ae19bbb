/// /tokenize and /detokenize (server/tokenize.h).
#include "server/tokenize.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

TEST(Tokenize, gives_the_ids_that_a_completion_would_get) {
  const ServedModel model = byte_model();
  const auto answer = tokenize_request(model, {}, parsed(R"({"prompt": "AB<|end|>", "return_token_strs": true})"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(json::dump(*answer), R"({"count":3,"max_model_len":2048,"tokens":[65,66,260],"token_strs":["A","B","<|end|>"]})");
  const auto chat =
      tokenize_request(model, {}, parsed(R"({"messages": [{"role": "u", "content": "A"}], "add_generation_prompt": false})"));
  ASSERT_TRUE(chat);
  EXPECT_EQ(json::dump(*chat), R"({"count":4,"max_model_len":2048,"tokens":[91,117,93,65],"token_strs":null})");
}

TEST(Tokenize, gives_the_text_of_ids) {
  const auto answer = detokenize_request(byte_model(), {}, parsed(R"({"tokens": [65, 66, 260]})"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(json::dump(*answer), R"({"prompt":"AB<|end|>"})");
  const auto unknown = detokenize_request(byte_model(), {}, parsed(R"({"tokens": [-1, 66, 2147483647]})"));
  ASSERT_TRUE(unknown);
  EXPECT_EQ(json::dump(*unknown), R"({"prompt":"B"})");
}

TEST(Tokenize, names_what_is_wrong) {
  const ServedModel model = byte_model();
  EXPECT_EQ(tokenize_request(model, {}, parsed(R"({})")).error().param, "prompt");
  EXPECT_EQ(tokenize_request(model, {}, parsed(R"({"prompt": ["a", "b"]})")).error().param, "prompt");
  EXPECT_EQ(tokenize_request(model, {}, parsed(R"({"prompt": "a", "model": "x"})")).error().code, ErrorCode::not_found);
  EXPECT_EQ(detokenize_request(model, {}, parsed(R"({"tokens": "AB"})")).error().param, "tokens");
  EXPECT_EQ(detokenize_request(model, {}, parsed(R"({"tokens": [1.5]})")).error().code, ErrorCode::invalid_request);
}

}  // namespace
}  // namespace baton
