/// Requests of the Anthropic dialect as chat completions (server/dialects/messages/dialect.h).
#include "server/dialects/messages/dialect.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/dialects/messages/reading.h"

namespace baton {
namespace {

using testing::messages::read;
using testing::messages::Refusal;
using testing::messages::refusal;
using testing::messages::refusal_of_message;
using testing::messages::says;
using testing::messages::with;

TEST(MessagesRequest, has_the_fields_of_a_chat_completion) {
  const MessagesRequest request = with(
      R"("stop_sequences": ["x"], "temperature": 0.5, "top_p": 0.9, "top_k": 4, "stream": true, "system": "be brief",
      "metadata": {"user_id": "u"}, "service_tier": "auto", "cache_salt": "s", "seed": 7, "colour": 1)");
  EXPECT_EQ(json::dump(request.chat),
            R"({"model":"demo","max_tokens":5,"stop":["x"],"temperature":0.5,"top_p":0.9,"top_k":4,"stream":true,)"
            R"("cache_salt":"s","seed":7,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}]})");
  EXPECT_EQ(request.unknown_fields, std::vector<std::string>{"colour"});
  EXPECT_TRUE(request.marks.empty());
}

TEST(MessagesRequest, needs_max_tokens_except_for_a_count) {
  constexpr std::string_view kText = R"({"messages": [{"role": "user", "content": "hi"}]})";
  EXPECT_EQ(refusal(kText).param, "max_tokens");
  EXPECT_TRUE(read_messages_request(parsed(kText), /*needs_max_tokens=*/false));
}

TEST(MessagesRequest, makes_messages_of_results_and_calls_of_tool_use) {
  const MessagesRequest request = says(R"([
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "c"},
      {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "seen"},
      {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": [{"type": "text", "text": "no"}]},
      {"type": "tool_result", "tool_use_id": "t3"}, {"type": "text", "text": "go on"}]}])");
  EXPECT_EQ(json::dump(request.chat["messages"]),
            R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
            R"({"role":"assistant","content":"c","reasoning_content":"hm","tool_calls":[{"id":"t1","type":"function",)"
            R"("function":{"name":"look","arguments":"{\"at\":1}"}}]},)"
            R"({"role":"tool","content":"seen","tool_call_id":"t1"},)"
            R"({"role":"tool","content":"Error: no","tool_call_id":"t2"},)"
            R"({"role":"tool","content":"","tool_call_id":"t3"},{"role":"user","content":"go on"}])");
}

TEST(MessagesRequest, leaves_out_the_content_of_a_message_of_calls_alone) {
  const MessagesRequest request = says(R"([{"role": "user", "content": "a"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "seen"}]}])");
  EXPECT_FALSE(request.chat["messages"][1].contains("content"));
  EXPECT_EQ(request.chat["messages"].size(), 3u);
}

TEST(MessagesRequest, continues_where_the_assistant_has_ended) {
  const MessagesRequest request = says(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])");
  EXPECT_EQ(request.chat["continue_final_message"], true);
  EXPECT_EQ(request.chat["add_generation_prompt"], false);
  EXPECT_EQ(refusal(R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content":
    [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]}]})")
                .param,
            "messages");
}

TEST(MessagesRequest, passes_thinking_and_the_output_format_on) {
  const MessagesRequest on = with(R"("thinking": {"type": "enabled", "budget_tokens": 2000})");
  EXPECT_EQ(on.chat["chat_template_kwargs"]["enable_thinking"], true);
  EXPECT_EQ(on.unknown_fields, std::vector<std::string>{"thinking.budget_tokens"}) << "the log says that it has no effect";
  EXPECT_EQ(with(R"("thinking": {"type": "disabled"})").chat["chat_template_kwargs"]["enable_thinking"], false);
  const MessagesRequest formed =
      with(R"("output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}})");
  EXPECT_EQ(formed.chat["reasoning_effort"], "low");
  EXPECT_EQ(json::dump(formed.chat["response_format"]),
            R"({"type":"json_schema","json_schema":{"name":"output","schema":{"type":"object"},"strict":true}})");
}

TEST(MessagesRequest, refuses_by_name_what_is_not_supported) {
  const Refusal image = refusal_of_message(R"({"role": "user", "content": [{"type": "image", "source": {}}]})");
  EXPECT_EQ(image.param, "messages[0].content[0].type");
  EXPECT_NE(image.message.find("\"image\""), std::string::npos) << image.message;
  EXPECT_EQ(refusal_of_message(R"({"role": "user", "content": [{"type": "document"}]})").param, "messages[0].content[0].type");
  EXPECT_EQ(refusal_of_message(R"({"role": "robot", "content": ""})").param, "messages[0].role");
  EXPECT_EQ(refusal_of_message(R"({"role": "user"})").param, "messages[0].content");
  EXPECT_EQ(refusal_of_message(R"({"role": "user", "content": 1})").param, "messages[0].content");
  EXPECT_EQ(refusal(R"({"max_tokens": 5, "messages": []})").param, "messages");
  EXPECT_EQ(refusal(R"({"max_tokens": 5})").message, "'messages' is missing");
  constexpr std::string_view kFields[][2] = {
      {R"("tools": [{"name": "look"}])", "tools[0].input_schema"},
      {R"("tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}])", "tools[0]"},
      {R"("tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}])", "tools[0]"},
      {R"("tool_choice": {"type": "sometimes"})", "tool_choice.type"},
      {R"("thinking": {"type": "often"})", "thinking.type"},
      {R"("stop_sequences": "x")", "stop_sequences"},
      {R"("system": [{"type": "image"}])", "system[0].type"},
      {R"("thread": {"id": "t"})", "thread"},
      {R"("output_format": {"type": "xml"})", "output_format"},
      {R"("output_config": {"format": {"type": "xml"}})", "output_config.format"},
  };
  for (const auto& [fields, param] : kFields)
    EXPECT_EQ(
        refusal(R"({"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], )" + std::string(fields) + "}").param,
        param);
}

TEST(MessagesRequest, takes_hints) {
  constexpr std::string_view kHints[] = {
      R"("context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})",
      R"("context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]})",
      R"("service_tier": "auto", "speed": "fast", "inference_geo": "us")",
      R"("betas": ["x"], "diagnostics": {}, "billing_policy": {})"};
  for (const std::string_view hint : kHints) EXPECT_TRUE(with(hint).unknown_fields.empty()) << hint;
  EXPECT_TRUE(has_context_management(parsed(R"({"context_management": {}})")));
  EXPECT_FALSE(has_context_management(parsed(R"({"context_management": null})")));
  // What only a hosted server has is left out with a line in the log.
  EXPECT_EQ(with(R"("mcp_servers": [{"url": "x"}], "container": "c")").unknown_fields,
            (std::vector<std::string>{"mcp_servers", "container"}));
}

TEST(MessagesRequest, reads_the_output_format_of_a_beta) {
  constexpr std::string_view kFormat = R"({"type": "json_schema", "schema": {"type": "object"}})";
  const MessagesRequest now = with(R"("output_config": {"format": )" + std::string(kFormat) + "}");
  EXPECT_EQ(with(R"("output_format": )" + std::string(kFormat)).chat["response_format"], now.chat["response_format"]);
  EXPECT_EQ(with(R"("output_config": {"effort": "low"}, "output_format": )" + std::string(kFormat)).chat["response_format"],
            now.chat["response_format"]);
  EXPECT_FALSE(with(R"("output_format": null)").chat.contains("response_format"));
}

TEST(MessagesRequest, finds_its_marks) {
  const MessagesRequest request = read(R"({"max_tokens": 5,
    "tools": [{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}, "cache_control": {"type": "ephemeral"}}],
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "user", "content": [
      {"type": "text", "text": "z"}, {"type": "text", "text": "w", "cache_control": {"type": "ephemeral", "ttl": "5m"}}]}]})");
  ASSERT_EQ(request.marks.size(), 3u);
  EXPECT_EQ(request.marks[0].part, CacheMark::Part::tools);
  EXPECT_EQ(request.marks[0].index, 1u);
  EXPECT_EQ(request.marks[0].ttl, std::chrono::minutes(5));
  EXPECT_EQ(request.marks[1].part, CacheMark::Part::system);
  EXPECT_EQ(request.marks[1].ttl, std::chrono::hours(1));
  EXPECT_EQ(request.marks[2].index, 2u);
  EXPECT_EQ(request.marks[2].block, 1u);
  EXPECT_EQ(with(R"("cache_control": {"type": "ephemeral"})").marks.size(), 1u);
  constexpr std::string_view kMarked = R"({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}})";
  std::string five(kMarked);
  for (int i = 0; i < 4; ++i) five += "," + std::string(kMarked);
  EXPECT_EQ(refusal_of_message(R"({"role": "user", "content": [)" + five + "]}").param, "messages[0].content[4].cache_control");
  EXPECT_EQ(
      refusal_of_message(
          R"({"role": "user", "content": [{"type": "text", "text": "", "cache_control": {"type": "ephemeral", "ttl": "1d"}}]})")
          .param,
      "messages[0].content[0].cache_control.ttl");
}

TEST(MessagesRequest, is_cut_after_a_mark) {
  const json::Value body = parsed(R"({"max_tokens": 5, "tool_choice": {"type": "tool", "name": "b"},
    "tools": [{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}],
    "system": [{"type": "text", "text": "s"}, {"type": "text", "text": "t"}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "z"}, {"type": "text", "text": "w"}]},
      {"role": "assistant", "content": "y"}]})");
  const json::Value tools = cut_at_mark(body, {CacheMark::Part::tools, 0});
  EXPECT_EQ(tools["tools"].size(), 1u);
  EXPECT_FALSE(tools.contains("system"));
  EXPECT_EQ(tools["messages"].size(), 1u);
  const json::Value system = cut_at_mark(body, {CacheMark::Part::system, 0});
  EXPECT_EQ(system["tools"].size(), 2u);
  EXPECT_EQ(system["system"].size(), 1u);
  const json::Value message = cut_at_mark(body, {CacheMark::Part::messages, 0, 0});
  EXPECT_EQ(message["system"].size(), 2u);
  ASSERT_EQ(message["messages"].size(), 1u);
  EXPECT_EQ(message["messages"][0]["content"].size(), 1u);
}

TEST(MessagesRequest, has_errors_of_the_chat_completion_in_its_own_words) {
  const Error error = messages_error({ErrorCode::invalid_request, "'stop' has 65 strings; this server accepts 64", "stop"});
  EXPECT_EQ(error.param, "stop_sequences");
  EXPECT_EQ(error.message, "'stop_sequences' has 65 strings; this server accepts 64");
  const Error schema{ErrorCode::invalid_request, "'response_format.json_schema.schema': no",
                     "response_format.json_schema.schema"};
  EXPECT_EQ(messages_error(schema).message, "'output_config.format.schema': no");
  EXPECT_EQ(messages_error(schema, {}, "output_format").message, "'output_format.schema': no");
}

}  // namespace
}  // namespace baton
