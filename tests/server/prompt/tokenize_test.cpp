/// /tokenize and /detokenize (server/prompt/prompts.h).
#include "server/prompt/prompts.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

/// No prefix is registered.
class Tokenize : public ::testing::Test {
 protected:
  const ServedModel model_ = byte_model();
  const std::unique_ptr<Engine> engine_ = testing::make_tiny_engine({}, 256);
  const Prefixes none_{model_, *engine_};
};

TEST_F(Tokenize, gives_the_ids_that_a_completion_would_get) {
  const ServedModel model = byte_model();
  const auto answer = tokenize_request(model, none_, parsed(R"({"prompt": "AB<|end|>", "return_token_strs": true})"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(json::dump(*answer), R"({"count":3,"max_model_len":2048,"tokens":[65,66,260],"token_strs":["A","B","<|end|>"]})");
  const auto chat = tokenize_request(
      model, none_, parsed(R"({"messages": [{"role": "u", "content": "A"}], "add_generation_prompt": false})"));
  ASSERT_TRUE(chat);
  EXPECT_EQ(json::dump(*chat), R"({"count":4,"max_model_len":2048,"tokens":[91,117,93,65],"token_strs":null})");
}

TEST_F(Tokenize, gives_the_text_of_ids) {
  const auto answer = detokenize_request(byte_model(), none_, parsed(R"({"tokens": [65, 66, 260]})"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(json::dump(*answer), R"({"prompt":"AB<|end|>"})");
  const auto unknown = detokenize_request(byte_model(), none_, parsed(R"({"tokens": [-1, 66, 2147483647]})"));
  ASSERT_TRUE(unknown);
  EXPECT_EQ(json::dump(*unknown), R"({"prompt":"B"})");
}

TEST_F(Tokenize, tells_clients_of_the_tokenizer) {
  EXPECT_EQ(json::dump(tokenizer_info(byte_model())),
            R"({"tokenizer_class":"baton","model_max_length":2048,"bos_token":null,"eos_token":"<|end|>","pad_token":null,)"
            R"("unk_token":null})");
}

TEST_F(Tokenize, refuses_what_is_longer_than_any_prompt_without_encoding_it) {
  ServedModel model = byte_model();
  model.set_context(10);
  const auto refused = [&](std::string_view body) {
    const auto answer = tokenize_request(model, none_, parsed(body));
    EXPECT_FALSE(answer) << body;
    return answer ? std::string() : answer.error().param;
  };
  const std::string text(model.max_prompt_bytes + 1, 'a');
  EXPECT_EQ(refused(R"({"prompt": ")" + text + "\"}"), "prompt");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": ")" + text + "\"}]}"), "messages");
  EXPECT_TRUE(tokenize_request(model, none_, parsed(R"({"prompt": "more than ten bytes, which may be counted"})")));
  const auto ids = detokenize_request(model, none_, parsed(R"({"tokens": [65,65,65,65,65,65,65,65,65,65,65]})"));
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().param, "tokens");
}

TEST_F(Tokenize, names_what_is_wrong) {
  const ServedModel model = byte_model();
  EXPECT_EQ(tokenize_request(model, none_, parsed(R"({})")).error().param, "prompt");
  EXPECT_EQ(tokenize_request(model, none_, parsed(R"({"prompt": ["a", "b"]})")).error().param, "prompt");
  EXPECT_EQ(tokenize_request(model, none_, parsed(R"({"prompt": "a", "model": "x"})")).error().code, ErrorCode::not_found);
  EXPECT_EQ(detokenize_request(model, none_, parsed(R"({"tokens": "AB"})")).error().param, "tokens");
  EXPECT_EQ(detokenize_request(model, none_, parsed(R"({"tokens": [1.5]})")).error().code, ErrorCode::invalid_request);
}

}  // namespace
}  // namespace baton
