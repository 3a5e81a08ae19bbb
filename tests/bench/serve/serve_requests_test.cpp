/// The requests of a serving benchmark as bytes (bench/serve/serve_requests.h).
#include "bench/serve/serve_requests.h"

#include <string>

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

json::Value body_of(const std::string& request) { return parsed(request.substr(request.find("\r\n\r\n") + 4)); }

RequestFormat format(bool is_chat = false) {
  return {.address = {"host", 8000, "/v0"},
          .endpoint = is_chat ? "/v1/chat/completions" : "/v1/completions",
          .is_chat = is_chat,
          .model = "m",
          .headers = {"X-Key: 1"}};
}

TEST(ServeRequests, bring_a_prompt_as_ids) {
  const std::string request = RequestWriter(format()).write(std::vector<TokenId>{1, 22, 333}, 7);
  EXPECT_TRUE(request.starts_with("POST /v0/v1/completions HTTP/1.1\r\nHost: host:8000\r\nX-Key: 1\r\n")) << request;
  const json::Value body = body_of(request);
  EXPECT_NE(request.find("\r\nContent-Length: " + std::to_string(request.size() - request.find("\r\n\r\n") - 4) + "\r\n"),
            std::string::npos);
  EXPECT_EQ(json::dump(body), R"({"prompt":[1,22,333],"max_tokens":7,"model":"m","temperature":0.0,"stream":true,)"
                              R"("stream_options":{"include_usage":true},"ignore_eos":true})");
}

TEST(ServeRequests, take_fields_from_extra_body) {
  RequestFormat made = format();
  made.ignore_eos = false;
  made.wants_ids = true;
  made.extra = parsed(R"({"temperature": 0.5, "max_tokens": 3, "cache_salt": "a"})");
  const json::Value body = body_of(RequestWriter(made).write(std::vector<TokenId>{1}, 7));
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
  EXPECT_EQ(json::dump(body_of(writer.write(history, 1))["prompt"]), "[1,2,3,4]");
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
  EXPECT_EQ(json::dump(body_of(writer.write(question, 1))["messages"]), R"([{"role":"user","content":"What?"}])");
  PromptHistory history;
  writer.add_prompt(history, question);
  ASSERT_TRUE(writer.add_answer(history, "So.", {}));
  writer.add_prompt(history, tokenizer.encode_plain("Why?"));
  EXPECT_EQ(json::dump(body_of(writer.write(history, 1))["messages"]),
            R"([{"role":"user","content":"What?"},{"role":"assistant","content":"So."},{"role":"user","content":"Why?"}])");
}

}  // namespace
}  // namespace baton
