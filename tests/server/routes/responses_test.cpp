/// /v1/responses over HTTP (server/routes/responses.cpp).
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "server/dialect_content.h"
#include "server/prefixes_held.h"
#include "server/server_fixture.h"

namespace baton {
namespace {

class RoutesResponses : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { fixture_ = std::make_unique<ServerFixture>().release(); }
  static void TearDownTestSuite() { delete fixture_; }

  static json::Value create(std::string_view fields) {
    const RawResponse response = fixture_->post("/v1/responses", asks(fields));
    EXPECT_EQ(response.status, 200) << response.body;
    return parsed(response.body);
  }
  static std::string asks(std::string_view fields) {
    return R"({"model": "demo", "max_output_tokens": 4, "temperature": 0, "ignore_eos": true, )" + std::string(fields) + "}";
  }
  static std::string path_of(const json::Value& response) { return "/v1/responses/" + response["id"].get<std::string>(); }

  static ServerFixture* fixture_;
};
ServerFixture* RoutesResponses::fixture_ = nullptr;

TEST_F(RoutesResponses, answer_with_the_text_of_an_equal_chat_completion) {
  const json::Value response = create(R"("input": "hi", "metadata": {"a": "b"})");
  const json::Value chat = parsed(
      fixture_
          ->post("/v1/chat/completions",
                 R"({"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "ignore_eos": true, "max_tokens": 4})")
          .body);
  EXPECT_EQ(response["output"][0]["content"][0]["text"], chat["choices"][0]["message"]["content"]);
  EXPECT_TRUE(response["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["metadata"]["a"], "b");
  EXPECT_EQ(response["temperature"], 0);
  EXPECT_EQ(response["top_p"], 1);
  EXPECT_EQ(response["usage"]["input_tokens"], 19);
  EXPECT_EQ(response["usage"]["output_tokens"], 4);
}

TEST_F(RoutesResponses, stream_the_same_text) {
  const RawResponse response = fixture_->post("/v1/responses", asks(R"("input": "hi", "stream": true)"));
  EXPECT_TRUE(response.has("Content-Type: text/event-stream"));
  const auto frames = named_frames(response.body);
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames.front().event, "response.created");
  EXPECT_EQ(frames.back().event, "response.incomplete");
  const json::Value whole = create(R"("input": "hi")");
  EXPECT_EQ(frames.back().data["response"]["output"][0]["content"], whole["output"][0]["content"]);
  EXPECT_EQ(parsed(fixture_->get(path_of(frames.back().data["response"])).body), frames.back().data["response"]);
}

TEST_F(RoutesResponses, are_shown_and_removed) {
  const json::Value response = create(R"("input": "hi")");
  EXPECT_EQ(parsed(fixture_->get(path_of(response)).body), response);
  const json::Value removed = parsed(fixture_->remove(path_of(response)).body);
  EXPECT_EQ(removed["deleted"], true);
  EXPECT_EQ(removed["id"], response["id"]);
  EXPECT_EQ(fixture_->get(path_of(response)).status, 404);
  EXPECT_EQ(fixture_->remove(path_of(response)).status, 404);
}

TEST_F(RoutesResponses, are_not_stored_if_the_request_says_so) {
  const json::Value response = create(R"("input": "hi", "store": false)");
  EXPECT_EQ(response["store"], false);
  EXPECT_EQ(fixture_->get(path_of(response)).status, 404);
}

TEST_F(RoutesResponses, continue_a_conversation) {
  const json::Value first = create(R"("input": "hi", "instructions": "be brief")");
  const std::string said = first["output"][0]["content"][0]["text"];
  const std::string previous = R"(, "previous_response_id": ")" + first["id"].get<std::string>() + "\"";
  const json::Value second = create(R"("input": "go on")" + previous);
  json::Value messages = parsed(R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""},
                                    {"role": "user", "content": "go on"}])");
  messages[1]["content"] = said;
  json::Value chat = parsed(R"({"max_tokens": 4, "temperature": 0, "ignore_eos": true})");
  chat["messages"] = messages;
  const json::Value expected = parsed(fixture_->post("/v1/chat/completions", json::dump(chat)).body);
  EXPECT_EQ(second["output"][0]["content"][0]["text"], expected["choices"][0]["message"]["content"]);
  EXPECT_EQ(second["usage"]["input_tokens"], expected["usage"]["prompt_tokens"]);
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  const json::Value items = parsed(fixture_->get(path_of(second) + "/input_items?order=asc").body);
  ASSERT_EQ(items["data"].size(), 3u) << json::dump(items);
  EXPECT_EQ(items["data"][2]["content"][0]["text"], "go on");
  EXPECT_EQ(items["has_more"], false);
  const RawResponse other = fixture_->post("/v1/responses", asks(R"("input": "x", "cache_salt": "other")" + previous));
  EXPECT_EQ(other.status, 404) << "another salt is another tenant";
  EXPECT_EQ(parsed(other.body)["error"]["param"], "previous_response_id");
}

TEST_F(RoutesResponses, list_items_in_pages) {
  const json::Value response = create(
      R"("input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])");
  const json::Value newest = parsed(fixture_->get(path_of(response) + "/input_items?limit=2").body);
  ASSERT_EQ(newest["data"].size(), 2u);
  EXPECT_EQ(newest["data"][0]["content"], "c");
  EXPECT_EQ(newest["has_more"], true);
  const json::Value rest =
      parsed(fixture_->get(path_of(response) + "/input_items?after=" + newest["last_id"].get<std::string>()).body);
  ASSERT_EQ(rest["data"].size(), 1u);
  EXPECT_EQ(rest["data"][0]["content"], "a");
  for (const std::string_view query : {"limit=0", "limit=x", "order=up", "after=nothing"})
    EXPECT_EQ(fixture_->get(path_of(response) + "/input_items?" + std::string(query)).status, 400) << query;
}

TEST_F(RoutesResponses, count_tokens_without_an_answer) {
  EXPECT_EQ(fixture_->post("/v1/responses/input_tokens", R"({"input": "hi"})").body,
            R"({"object":"response.input_tokens","input_tokens":19})");
  EXPECT_EQ(fixture_->post("/v1/responses/resp_1/cancel", "{}").status, 501);
}

TEST_F(RoutesResponses, refuse_by_name) {
  const RawResponse background = fixture_->post("/v1/responses", asks(R"("input": "hi", "background": true)"));
  EXPECT_EQ(background.status, 400);
  EXPECT_EQ(parsed(background.body)["error"]["param"], "background");
  const RawResponse tokens = fixture_->post("/v1/responses", R"({"input": "hi", "max_output_tokens": 0})");
  EXPECT_EQ(parsed(tokens.body)["error"]["message"], "'max_output_tokens' must be at least 1, not 0");
}

TEST(RoutesResponsesKeys, see_their_own_responses_alone) {
  ServerOptions options;
  options.keys.api_keys = {"first", "second"};
  const ServerFixture fixture(std::move(options));
  const RawResponse created =
      fixture.post("/v1/responses", R"({"input": "hi", "max_output_tokens": 2})", "Authorization: Bearer first\r\n");
  ASSERT_EQ(created.status, 200) << created.body;
  const std::string id = parsed(created.body)["id"];
  const std::string follow = R"({"input": "x", "max_output_tokens": 2, "previous_response_id": ")" + id + "\"}";
  EXPECT_EQ(fixture.post("/v1/responses", follow, "Authorization: Bearer second\r\n").status, 404);
  EXPECT_EQ(fixture.post("/v1/responses", follow, "Authorization: Bearer first\r\n").status, 200);
}

/// What a coding agent sends that speaks this dialect alone: its instructions, what it says as the developer, tools of every kind.
constexpr std::string_view kAgent = R"("instructions": "You are a coding agent.", "store": false, "parallel_tool_calls": false,
    "tool_choice": "auto", "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium", "summary": "auto"},
    "prompt_cache_key": "session-1", "text": {"verbosity": "low"}, "truncation": "auto", "client_metadata": {"version": "1"},
    "tools": [
      {"type": "function", "name": "exec_command", "description": "Runs a command.", "strict": false,
       "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"], "additionalProperties": false}},
      {"type": "custom", "name": "apply_patch", "description": "Changes files.",
       "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"*** Begin Patch\" LF\nLF: \"\\n\""}},
      {"type": "namespace", "name": "mcp__mail__", "description": "Mail.", "tools": [
        {"type": "function", "name": "send", "parameters": {"type": "object", "properties": {}}}]},
      {"type": "local_shell"}, {"type": "web_search", "external_web_access": false}, {"type": "image_generation"},
      {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}])";
constexpr std::string_view kAgentInput = R"("input": [
      {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandbox: none."}]},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Context."}, {"type": "input_image", "image_url": "x"}]},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Mend it."}]},
      {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "AAA"},
      {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "exec_command", "arguments": "{\"cmd\": \"ls"},
      {"type": "function_call_output", "call_id": "c1", "output": "failed to parse arguments"},
      {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin Patch"},
      {"type": "custom_tool_call_output", "call_id": "c2", "output": "Done"},
      {"type": "local_shell_call", "id": "l1", "call_id": "c3", "status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}},
      {"type": "local_shell_call_output", "id": "c3", "output": "{\"stdout\": \"a\"}"},
      {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"type": "search", "query": "q"}},
      {"type": "compaction", "encrypted_content": "BBB"}, {"type": "item_reference", "id": "msg_elsewhere"},
      {"type": "message", "role": "user", "content": "Go on."}])";

TEST(RoutesResponsesAgents, are_answered_streamed_and_not) {
  const ServerFixture fixture({}, {}, /*n_blocks=*/1024, /*max_position=*/8192, tool_model());
  for (const bool is_stream : {false, true}) {
    const RawResponse response =
        fixture.post("/v1/responses", R"({"model": "demo", "max_output_tokens": 4, )" + std::string(kAgent) + "," +
                                          std::string(kAgentInput) + R"(, "stream": )" + (is_stream ? "true" : "false") + "}");
    ASSERT_EQ(response.status, 200) << response.body;
    const json::Value whole = is_stream ? named_frames(response.body).back().data["response"] : parsed(response.body);
    EXPECT_EQ(whole["truncation"], "auto");
    EXPECT_EQ(whole["tools"].size(), 7u) << "they are repeated as they were given";
  }
  const std::string demand = R"({"input": "x", "tools": [{"type": "web_search"}], "tool_choice": )";
  for (const std::string_view choice : {R"({"type": "web_search"})", R"("required")"})
    EXPECT_EQ(fixture.post("/v1/responses", demand + std::string(choice) + "}").status, 400) << choice;
}

TEST_F(RoutesResponses, continue_after_an_item_that_is_referred_to) {
  const json::Value first = create(R"("input": "hi")");
  const std::string id = first["output"][0]["id"];
  const auto n_tokens = [&](std::string_view reference) {
    return create(R"("input": [{"role": "user", "content": "hi"}, {"type": "item_reference", "id": ")" +
                  std::string(reference) + R"("}, {"role": "user", "content": "more"}])")["usage"]["input_tokens"]
        .get<int>();
  };
  EXPECT_GT(n_tokens(id), n_tokens("msg_elsewhere")) << "an unknown item is left out";
}

TEST_F(RoutesResponses, say_that_a_prompt_is_too_long) {
  const RawResponse long_prompt = fixture_->post("/v1/responses", asks(R"("input": ")" + std::string(2500, 'x') + "\""));
  EXPECT_EQ(long_prompt.status, 400);
  const json::Value error = parsed(long_prompt.body)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "input");
  const RawResponse long_answer =
      fixture_->post("/v1/responses", R"({"input": "x", "max_output_tokens": 2048, "stream": true})");
  EXPECT_EQ(parsed(long_answer.body)["error"]["param"], "max_output_tokens") << long_answer.body;
  EXPECT_EQ(parsed(long_answer.body)["error"]["code"], "context_length_exceeded");
}

/// A model that sees of each message one letter, so that long conversations are short prompts.
ServedModel terse_model() {
  ServedModel model = byte_model();
  model.chat_template.emplace(parsed_template("{% for m in messages %}x{% endfor %}"));
  model.look_at_templates();
  return model;
}

TEST(RoutesResponsesWork, counts_with_what_is_stored_of_a_conversation) {
  ServerOptions options;
  options.step_timeout_ms = 50;
  const ServerFixture fixture(std::move(options), {}, /*n_blocks=*/256, /*max_position=*/2048, terse_model());
  const auto ask = [](std::string_view fields) {
    return R"({"model": "demo", "max_output_tokens": 4, "ignore_eos": true, )" + std::string(fields) + "}";
  };
  const std::string input(TextQueue::kLongBytes, 'x');
  const RawResponse stored = fixture.post("/v1/responses", ask(R"("input": ")" + input + "\""));
  ASSERT_EQ(stored.status, 200) << stored.body;
  const std::string id = parsed(stored.body)["id"];
  const Budget& work = fixture.server->budgets().text_work;
  RawClient holding = fixture.client(), going_on = fixture.client(), showing = fixture.client();
  {
    const PrefixesHeld held(fixture.server->prefixes());
    holding.send_post("/v1/completions", R"({"prefix": "shop", "prompt": ")" + input + "\"}");
    ServerFixture::wait_until([&] { return fixture.get("/health").body.find("text-long") != std::string::npos; });
    // Both wait for the thread of long work, short as they are themselves.
    going_on.send_post("/v1/responses", ask(R"("input": "more", "previous_response_id": ")" + id + "\""));
    ServerFixture::wait_until([&] { return work.used() == 16; });
    showing.send("GET /v1/responses/" + id + "/input_items HTTP/1.1\r\nHost: h\r\n\r\n");
    ServerFixture::wait_until([&] { return work.used() == 32; });
    EXPECT_EQ(fixture.post("/v1/responses", ask(R"("input": "short")")).status, 200);
  }
  EXPECT_EQ(going_on.read_response().status, 200);
  EXPECT_EQ(showing.read_response().status, 200);
}

}  // namespace
}  // namespace baton
