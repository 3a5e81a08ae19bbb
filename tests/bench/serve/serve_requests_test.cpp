/// The bodies of a serving benchmark's requests (bench/serve/serve_requests.h).
#include "bench/serve/serve_requests.h"

#include <string>

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

RequestFormat format(bool is_chat = false) {
  return {.address = {"host", 8000, "/v0"},
          .endpoint = is_chat ? "/v1/chat/completions" : "/v1/completions",
          .is_chat = is_chat,
          .model = "m"};
}

TEST(ServeRequests, bring_a_prompt_as_ids) {
  const json::Value body = parsed(RequestWriter(format()).write(std::vector<TokenId>{1, 22, 333}, 7));
  EXPECT_EQ(json::dump(body), R"({"prompt":[1,22,333],"max_tokens":7,"model":"m","temperature":0.0,"stream":true,)"
                              R"("stream_options":{"include_usage":true},"ignore_eos":true})");
}

TEST(ServeRequests, take_fields_from_extra_body) {
  RequestFormat made = format();
  made.ignore_eos = false;
  made.wants_ids = true;
  made.extra = parsed(R"({"temperature": 0.5, "max_tokens": 3, "cache_salt": "a"})");
  const json::Value body = parsed(RequestWriter(made).write(std::vector<TokenId>{1}, 7));
  EXPECT_EQ(json::dump(body),
            R"({"prompt":[1],"model":"m","temperature":0.5,"stream":true,)"
            R"("stream_options":{"include_usage":true},"return_token_ids":true,"max_tokens":3,"cache_salt":"a"})");
}

TEST(ServeRequests, of_later_turns_bring_the_answers_before) {
  const RequestWriter writer(format());
  PromptHistory history;
  writer.add_prompt(history, std::vector<TokenId>{1, 2});
  ASSERT_TRUE(writer.add_answer(history, "text", std::vector<TokenId>{3}));
  writer.add_prompt(history, std::vector<TokenId>{4});
  EXPECT_EQ(json::dump(parsed(writer.write(history, 1))["prompt"]), "[1,2,3,4]");
  EXPECT_EQ(history.n_tokens, 4);
  const auto refused = writer.add_answer(history, "text", {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--tokenizer"), std::string::npos);
}

TEST(ServeRequests, for_chat_bring_text) {
  const Tokenizer tokenizer = byte_tokenizer();
  RequestFormat made = format(/*is_chat=*/true);
  made.tokenizer = &tokenizer;
  const RequestWriter writer(made);
  const auto question = tokenizer.encode_plain("What?");
  EXPECT_EQ(json::dump(parsed(writer.write(question, 1))["messages"]), R"([{"role":"user","content":"What?"}])");
  PromptHistory history;
  writer.add_prompt(history, question);
  ASSERT_TRUE(writer.add_answer(history, "So.", {}));
  writer.add_prompt(history, tokenizer.encode_plain("Why?"));
  EXPECT_EQ(json::dump(parsed(writer.write(history, 1))["messages"]),
            R"([{"role":"user","content":"What?"},{"role":"assistant","content":"So."},{"role":"user","content":"Why?"}])");
}

}  // namespace
}  // namespace baton
