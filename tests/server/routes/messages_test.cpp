/// /v1/messages over HTTP (server/dialects/messages/dialect.h).
#include <string>

#include <gtest/gtest.h>

#include "server/dialect_content.h"
#include "server/server_fixture.h"

namespace baton {
namespace {

class RoutesMessages : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { fixture_ = std::make_unique<ServerFixture>().release(); }
  static void TearDownTestSuite() { delete fixture_; }

  static ServerFixture* fixture_;
};
ServerFixture* RoutesMessages::fixture_ = nullptr;

/// A request for four tokens with more fields.
std::string asks(std::string_view more) {
  return R"({"model": "demo", "max_tokens": 4, "temperature": 0, "ignore_eos": true, )" + std::string(more) + "}";
}
constexpr std::string_view kGreeting = R"("messages": [{"role": "user", "content": "hi"}])";

TEST_F(RoutesMessages, answer_with_the_text_of_an_equal_chat_completion) {
  const RawResponse response =
      fixture_->post("/v1/messages", asks(kGreeting), "anthropic-version: 2023-06-01\r\nanthropic-beta: tools\r\n");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_TRUE(response.has("request-id: req_"));
  EXPECT_TRUE(response.has("Content-Type: application/json"));
  const json::Value message = parsed(response.body);
  const json::Value chat = parsed(fixture_->post("/v1/chat/completions", asks(kGreeting)).body);
  EXPECT_EQ(message["content"][0]["text"], chat["choices"][0]["message"]["content"]);
  EXPECT_TRUE(message["id"].get<std::string>().starts_with("msg_"));
  EXPECT_EQ(message["model"], "demo");
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  EXPECT_EQ(message["usage"]["output_tokens"], 4);
  EXPECT_EQ(message["usage"]["input_tokens"].get<int>() + message["usage"]["cache_read_input_tokens"].get<int>(), 19);
}

TEST_F(RoutesMessages, stream_the_same_text) {
  const std::string whole = parsed(fixture_->post("/v1/messages", asks(kGreeting)).body)["content"][0]["text"];
  const RawResponse response = fixture_->post("/v1/messages", asks(std::string(kGreeting) + R"(, "stream": true)"));
  EXPECT_TRUE(response.has("Content-Type: text/event-stream"));
  EXPECT_TRUE(response.has("request-id: req_"));
  std::string text;
  const auto frames = named_frames(response.body);
  ASSERT_FALSE(frames.empty());
  for (const NamedFrame& frame : frames)
    if (frame.event == "content_block_delta") text += frame.data["delta"]["text"].get<std::string>();
  EXPECT_EQ(text, whole);
  EXPECT_EQ(frames.front().event, "message_start");
  EXPECT_EQ(frames.back().event, "message_stop");
}

TEST_F(RoutesMessages, count_what_a_mark_covers) {
  const std::string system(100, 's');  // "[system]", 100 bytes and "[user]" are 114 tokens, 7 whole blocks
  const std::string marked = R"("system": [{"type": "text", "text": ")" + system +
                             R"(", "cache_control": {"type": "ephemeral"}}], )" + std::string(kGreeting);
  const json::Value cold = parsed(fixture_->post("/v1/messages", asks(marked)).body)["usage"];
  EXPECT_EQ(cold["cache_creation_input_tokens"], 112) << json::dump(cold);
  EXPECT_EQ(cold["cache_read_input_tokens"], 0);
  EXPECT_EQ(cold["input_tokens"], 108 + 19 - 112);
  const json::Value warm = parsed(fixture_->post("/v1/messages", asks(marked)).body)["usage"];
  EXPECT_EQ(warm["cache_creation_input_tokens"], 0) << json::dump(warm);
  EXPECT_GE(warm["cache_read_input_tokens"].get<int>(), 112);
}

TEST_F(RoutesMessages, count_tokens_without_an_answer) {
  const RawResponse response =
      fixture_->post("/v1/messages/count_tokens", R"({"model": "demo", "system": "s", )" + std::string(kGreeting) + "}");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, R"({"input_tokens":28})");  // [system]s[user]hi[assistant]
}

TEST_F(RoutesMessages, continue_where_the_assistant_has_ended) {
  const RawResponse response = fixture_->post(
      "/v1/messages", asks(R"("messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}])"));
  ASSERT_EQ(response.status, 200) << response.body;
  const json::Value usage = parsed(response.body)["usage"];
  EXPECT_EQ(usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>(), 21);  // [user]hi[assistant]yo
}

TEST_F(RoutesMessages, refuse_in_their_own_form) {
  const RawResponse missing = fixture_->post("/v1/messages", "{" + std::string(kGreeting) + "}");
  EXPECT_EQ(missing.status, 400);
  EXPECT_EQ(missing.body, R"({"type":"error","error":{"type":"invalid_request_error","message":"'max_tokens' is missing"}})");
  EXPECT_TRUE(missing.has("request-id: req_"));
  const RawResponse unknown = fixture_->post("/v1/messages", asks(std::string(kGreeting) + R"(, "model": "nobody")"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(parsed(unknown.body)["error"]["type"], "not_found_error");
  const RawResponse stops = fixture_->post("/v1/messages", asks(std::string(kGreeting) + R"(, "stop_sequences": [""])"));
  EXPECT_EQ(parsed(stops.body)["error"]["message"], "'stop_sequences' must not hold an empty string");
  const RawResponse method = fixture_->get("/v1/messages");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(parsed(method.body)["error"]["type"], "invalid_request_error");
}

TEST(RoutesMessagesPins, keep_what_is_marked_in_the_cache) {
  const ServerFixture fixture;
  const auto pinned = [&] { return fixture.engine->pins(); };  // those of the cache come after "shop"
  const std::string marked = R"("system": [{"type": "text", "text": ")" + std::string(100, 'k') +
                             R"(", "cache_control": {"type": "ephemeral", "ttl": "1h"}}], )" + std::string(kGreeting);
  ASSERT_EQ(fixture.post("/v1/messages", asks(marked)).status, 200);
  fixture.wait_until([&] { return pinned().size() == 2; });
  EXPECT_EQ(pinned().back().n_pinned_tokens, 112);
  ASSERT_EQ(fixture.post("/v1/messages", asks(marked + R"(, "stream": true)")).status, 200);
  const std::string other = R"("system": [{"type": "text", "text": ")" + std::string(50, 'o') +
                            R"(", "cache_control": {"type": "ephemeral"}}], )" + std::string(kGreeting);
  const auto n_read = [&](const std::string& salt) {
    const RawResponse answer = fixture.post("/v1/messages", asks(other + salt));
    return parsed(answer.body)["usage"]["cache_read_input_tokens"].get<int>();
  };
  EXPECT_EQ(n_read(R"(, "cache_salt": "s")"), 0);
  fixture.wait_until([&] { return pinned().size() == 3; });
  EXPECT_EQ(n_read(""), 0) << "what a salt has pinned is no other's";
  fixture.wait_until([&] { return pinned().size() == 4; });
  EXPECT_EQ(n_read(R"(, "cache_salt": "t")"), 0);
  fixture.wait_until([&] { return pinned().size() == 5; });
  EXPECT_GT(n_read(R"(, "cache_salt": "s")"), 0);
  EXPECT_EQ(pinned().size(), 5u) << "the first was used again";
}

TEST_F(RoutesMessages, say_in_their_own_sentences_that_a_conversation_is_too_long) {
  const auto message = [&](std::string_view path, std::string_view body) {
    const RawResponse response = fixture_->post(path, body);
    EXPECT_EQ(response.status, 400);
    const json::Value error = parsed(response.body)["error"];
    EXPECT_EQ(error["type"], "invalid_request_error");
    return error["message"].get<std::string>();
  };
  for (const std::string_view stream : {"false", "true"}) {
    const std::string begin =
        R"({"max_tokens": 4, "stream": )" + std::string(stream) + R"(, "messages": [{"role": "user", "content": ")";
    EXPECT_EQ(message("/v1/messages", begin + std::string(2500, 'x') + "\"}]}"),
              "prompt is too long: 2517 tokens > 2048 maximum");
    EXPECT_EQ(
        message("/v1/messages",
                R"({"max_tokens": 2040, "stream": )" + std::string(stream) + ", " + std::string(kGreeting) + "}"),
        "input length and `max_tokens` exceed context limit: 19 + 2040 > 2048, decrease input length or `max_tokens` and try "
        "again");
  }
  // Texts that no prompt can hold are not encoded: the least that they can have is told.
  const std::string huge = R"([{"role": "user", "content": ")" + std::string(1000000, 'x') + "\"}]";
  for (const std::string path : {"/v1/messages", "/v1/messages/count_tokens"})
    EXPECT_TRUE(message(path, R"({"max_tokens": 4, "messages": )" + huge + "}").starts_with("prompt is too long: ")) << path;
}

/// What a coding agent sends that speaks this dialect: marks, typed tools, edits of the context, and a session begun elsewhere.
constexpr std::string_view kCodingAgent = R"("max_tokens": 4, "metadata": {"user_id": "u"}, "thinking": {"type": "adaptive"},
    "output_config": {"effort": "medium"}, "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "system": [{"type": "text", "text": "x-billing: 1"}, {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "Bash", "description": "Runs a command.", "input_schema": {"$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"], "additionalProperties": false}},
      {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}, {"type": "bash_20250124", "name": "bash"}],
    "messages": [
      {"role": "user", "content": [{"type": "text", "text": "Context."}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "AAA"}, {"type": "redacted_thinking", "data": "BBB"},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}, {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls", "n": 123456789012345678901234567890}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": [{"type": "tool_reference", "tool_name": "x"}]},
        {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}]},
      {"role": "system", "content": "A reminder."}])";

TEST(RoutesMessagesAgents, are_answered_and_counted_streamed_and_not) {
  const ServerFixture fixture({}, {}, /*n_blocks=*/1024, /*max_position=*/8192, tool_model());
  const RawResponse whole = fixture.post("/v1/messages?beta=true", "{" + std::string(kCodingAgent) + "}",
                                         "anthropic-beta: context-management-2025-06-27\r\n");
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(json::dump(parsed(whole.body)["context_management"]), R"({"applied_edits":[]})");
  const RawResponse streamed = fixture.post("/v1/messages?beta=true", "{" + std::string(kCodingAgent) + R"(, "stream": true})");
  ASSERT_EQ(streamed.status, 200) << streamed.body;
  const auto frames = named_frames(streamed.body);
  EXPECT_EQ(json::dump(frames[frames.size() - 2].data["context_management"]), R"({"applied_edits":[]})");
  const RawResponse counted = fixture.post("/v1/messages/count_tokens?beta=true", "{" + std::string(kCodingAgent) + "}");
  ASSERT_EQ(counted.status, 200) << counted.body;
  const json::Value count = parsed(counted.body);
  EXPECT_EQ(count["context_management"]["original_input_tokens"], count["input_tokens"]);
}

TEST(RoutesMessagesKeys, are_taken_from_either_header) {
  ServerOptions options;
  options.keys.api_keys = {"secret"};
  const ServerFixture fixture(std::move(options));
  const RawResponse none = fixture.post("/v1/messages", asks(kGreeting));
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.body, R"({"type":"error","error":{"type":"authentication_error","message":"Unauthorized"}})");
  EXPECT_EQ(fixture.post("/v1/messages", asks(kGreeting), "x-api-key: wrong\r\n").status, 401);
  EXPECT_EQ(fixture.post("/v1/messages", asks(kGreeting), "x-api-key: secret\r\n").status, 200);
  EXPECT_EQ(fixture.post("/v1/messages", asks(kGreeting), "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(fixture.post("/v1/messages", asks(kGreeting), "Authorization: Bearer wrong\r\nx-api-key: secret\r\n").status, 401);
}

}  // namespace
}  // namespace baton
