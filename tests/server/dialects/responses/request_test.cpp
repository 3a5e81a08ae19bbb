/// Requests of the Responses dialect as chat completions (server/dialects/responses/dialect.h).
#include "server/dialects/responses/dialect.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/dialects/responses/reading.h"

namespace baton {
namespace {

using testing::responses::refused;
using testing::responses::with;

TEST(ResponsesRequest, has_the_fields_of_a_chat_completion) {
  const ResponsesRequest request = with(
      R"("model": "demo", "instructions": "be brief", "max_output_tokens": 20, "temperature": 0.5, "top_p": 0.9, "stream": true,
      "parallel_tool_calls": false, "cache_salt": "s", "metadata": {"a": "b"}, "prompt_cache_key": "k", "colour": 1)");
  EXPECT_EQ(
      json::dump(request.chat),
      R"({"model":"demo","max_tokens":20,"temperature":0.5,"top_p":0.9,"parallel_tool_calls":false,"stream":true,)"
      R"("cache_salt":"s","prompt_cache_key":"k","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}]})");
  EXPECT_EQ(request.unknown_fields, std::vector<std::string>{"colour"});
  EXPECT_TRUE(request.is_stored);
  EXPECT_EQ(request.repeated["instructions"], "be brief");
  EXPECT_EQ(json::dump(request.repeated["metadata"]), R"({"a":"b"})");
  EXPECT_EQ(request.repeated["truncation"], "disabled");
  EXPECT_EQ(json::dump(request.repeated["tools"]), "[]");
}

TEST(ResponsesRequest, continues_earlier_items_without_their_instructions) {
  const auto request = read_responses_request(parsed(R"({"input": "more", "previous_response_id": "resp_1"})"),
                                              parsed(R"([{"id": "msg_1", "type": "message", "role": "user", "content": "a"},
                 {"id": "msg_2", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]}])"));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(json::dump(request->chat["messages"]),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"more"}])");
  EXPECT_EQ(request->items.size(), 3u);
  EXPECT_EQ(request->repeated["previous_response_id"], "resp_1");
  EXPECT_EQ(previous_response_of(parsed(R"({"previous_response_id": "resp_1"})")).value(), "resp_1");
  EXPECT_FALSE(previous_response_of(parsed(R"({"previous_response_id": 1})")));
}

TEST(ResponsesRequest, translates_tools_and_choices) {
  const ResponsesRequest request = with(R"("tools": [{"type": "function", "name": "look", "description": "d",
      "parameters": {"type": "object"}, "strict": false}], "tool_choice": {"type": "function", "name": "look"})");
  EXPECT_EQ(
      json::dump(request.chat["tools"]),
      R"([{"type":"function","function":{"name":"look","description":"d","parameters":{"type":"object"},"strict":false}}])");
  EXPECT_EQ(json::dump(request.chat["tool_choice"]), R"({"type":"function","function":{"name":"look"}})");
  EXPECT_EQ(with(R"("tool_choice": "required")").chat["tool_choice"], "required");
  const ResponsesRequest allowed =
      with(R"("tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]})");
  EXPECT_EQ(
      json::dump(allowed.chat["tool_choice"]),
      R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"look"}}]}})");
}

TEST(ResponsesRequest, passes_formats_reasoning_and_log_probabilities_on) {
  const ResponsesRequest formed = with(
      R"("text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}, "verbosity": "low"})");
  EXPECT_EQ(json::dump(formed.chat["response_format"]),
            R"({"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}})");
  EXPECT_EQ(formed.unknown_fields, std::vector<std::string>{"text.verbosity"});
  EXPECT_EQ(with(R"("text": {"format": {"type": "json_object"}})").chat["response_format"]["type"], "json_object");
  const ResponsesRequest thinking = with(R"("reasoning": {"effort": "low", "summary": "auto"})");
  EXPECT_EQ(thinking.chat["reasoning_effort"], "low");
  EXPECT_EQ(thinking.unknown_fields, std::vector<std::string>{"reasoning.summary"});
  const ResponsesRequest scored = with(R"("include": ["message.output_text.logprobs"], "top_logprobs": 2)");
  EXPECT_EQ(scored.chat["logprobs"], true);
  EXPECT_EQ(scored.chat["top_logprobs"], 2);
  EXPECT_FALSE(with(R"("include": ["reasoning.encrypted_content"])").chat.contains("logprobs"));
}

TEST(ResponsesRequest, obeys_store) {
  EXPECT_FALSE(with(R"("store": false)").is_stored);
  EXPECT_EQ(with(R"("store": false)").repeated["store"], false);
}

TEST(ResponsesRequest, refuses_by_name_what_is_not_supported) {
  constexpr std::string_view kFields[][2] = {
      {R"("background": true)", "background"},
      {R"("conversation": "c")", "conversation"},
      {R"("prompt": {"id": "p"})", "prompt"},
      {R"("tools": [{"type": "function"}])", "tools[0].name"},
      {R"("tool_choice": {"type": "file_search"})", "tool_choice.type"},
      {R"("text": {"format": {"type": "xml"}})", "text.format.type"},
      {R"("metadata": {"a": 1})", "metadata"},
      {R"("store": 1)", "store"},
      {R"("user": 1)", "user"},
      {R"("max_tool_calls": "many")", "max_tool_calls"},
  };
  for (const auto& [fields, param] : kFields) EXPECT_EQ(refused(fields), param);
  EXPECT_FALSE(read_responses_request(parsed("{}"), json::Value::array()));
  EXPECT_FALSE(read_responses_request(parsed(R"({"input": []})"), json::Value::array()));
  EXPECT_TRUE(
      read_responses_request(parsed(R"({"input": "a", "background": false, "truncation": "disabled"})"), json::Value::array()));
}

TEST(ResponsesRequest, takes_hints) {
  constexpr std::string_view kHints[] = {R"("truncation": "auto")",
                                         R"("context_management": [{"type": "compaction", "compact_threshold": 1000}])",
                                         R"("include": ["something.new"])",
                                         R"("reasoning": {"effort": "low", "summary": "detailed"})",
                                         R"("prompt_cache_options": {"ttl": "5m"})",
                                         R"("client_metadata": {"a": "b"})",
                                         R"("stream_options": {"include_obfuscation": false})"};
  for (const std::string_view hint : kHints) with(hint);
  EXPECT_EQ(with(R"("truncation": "auto")").repeated["truncation"], "auto");
  EXPECT_EQ(with(R"("top_logprobs": 3)").chat["logprobs"], true);
  EXPECT_EQ(with(R"("include": ["something.new"])").unknown_fields, std::vector<std::string>{"include.something.new"});
}

TEST(ResponsesRequest, bounds_what_the_response_repeats) {
  EXPECT_EQ(refused(R"("prompt_cache_key": ")" + std::string(1025, 'k') + "\""), "prompt_cache_key");
  EXPECT_EQ(refused(R"("instructions": ")" + std::string(3 << 20, 'i') + "\""), "tools");
}

TEST(ResponsesRequest, has_errors_of_the_chat_completion_in_its_own_words) {
  const Error error = responses_error({ErrorCode::invalid_request, "'max_tokens' must be at least 1, not 0", "max_tokens"});
  EXPECT_EQ(error.param, "max_output_tokens");
  EXPECT_EQ(error.message, "'max_output_tokens' must be at least 1, not 0");
  const std::string schema = "response_format.json_schema.schema";
  EXPECT_EQ(responses_error({ErrorCode::invalid_request, "'" + schema + "' is missing", schema}).message,
            "'text.format.schema' is missing");
}

}  // namespace
}  // namespace baton
