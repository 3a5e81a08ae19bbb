/// Messages of conversations with calls, results and reasoning (server/request/chat_history.h).
#include "server/request/chat_history.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace baton {
namespace {

json::Value value_of(std::string_view text) {
  auto value = json::parse(text, "the text");
  EXPECT_TRUE(value) << text;
  return value ? std::move(*value) : json::Value();
}

std::string parsed_text(std::string_view messages) {
  const auto parsed = parse_messages(value_of(messages), "messages");
  EXPECT_TRUE(parsed) << messages << ": " << (parsed ? "" : parsed.error().message);
  return parsed ? json::dump(*parsed) : "";
}

constexpr std::string_view kCall = R"([{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",)"
                                   R"("function":{"name":"f","arguments":"{\"a\": 1}"}}]}])";

TEST(ChatHistory, keeps_content_parts_and_what_templates_may_want) {
  EXPECT_EQ(parsed_text(R"([{"role": "user", "name": "n", "content": [{"type": "text", "text": "a"},
      {"type": "text", "text": "b"}]}, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}])"),
            R"([{"role":"user","name":"n","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
            R"({"role":"assistant","content":[{"type":"text","text":"no"}]}])");
}

TEST(ChatHistory, tells_absent_content_beside_calls_from_null) {
  EXPECT_EQ(parsed_text(kCall), kCall);
  EXPECT_EQ(parsed_text(R"([{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}])"),
            R"([{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"},"type":"function"}]}])");
  EXPECT_EQ(parsed_text(R"([{"role": "assistant", "content": null}, {"role": "assistant", "tool_calls": []},
      {"role": "assistant", "content": "a", "tool_calls": null}])"),
            R"([{"role":"assistant","content":null},{"role":"assistant","content":""},{"role":"assistant","content":"a"}])");
}

TEST(ChatHistory, takes_results_in_every_shape_and_names_their_calls) {
  const std::string with_results = std::string(kCall.substr(0, kCall.size() - 1)) +
                                   R"(,{"role":"tool","tool_call_id":"call_1","content":"12"})"
                                   R"(,{"role":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"1"},)"
                                   R"({"type":"text","text":"2"}],"name":"own"})"
                                   R"(,{"role":"tool","tool_call_id":"other","content":null},{"role":"tool","content":""}])";
  EXPECT_EQ(
      parsed_text(with_results),
      std::string(kCall.substr(0, kCall.size() - 1)) +
          R"(,{"role":"tool","tool_call_id":"call_1","content":"12","name":"f"})"
          R"(,{"role":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"1"},{"type":"text","text":"2"}],"name":"own"})"
          R"(,{"role":"tool","tool_call_id":"other","content":""},{"role":"tool","content":""}])");
}

TEST(ChatHistory, reads_deprecated_calls_and_results) {
  EXPECT_EQ(parsed_text(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "function_call":
      {"name": "f", "arguments": "{}"}}, {"role": "function", "name": "f", "content": "12"}])"),
            R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"call00001",)"
            R"("type":"function","function":{"name":"f","arguments":"{}"}}]},)"
            R"({"role":"tool","name":"f","content":"12","tool_call_id":"call00001"}])");
  EXPECT_EQ(parsed_text(R"([{"role": "assistant", "content": "a", "function_call": null}])"),
            R"([{"role":"assistant","content":"a"}])");
}

TEST(ChatHistory, keeps_reasoning_under_both_names_and_drops_what_is_null) {
  constexpr std::string_view kBoth =
      R"([{"role":"assistant","content":"a","reasoning":"r","reasoning_content":"r","thinking":"r"}])";
  EXPECT_EQ(parsed_text(R"([{"role": "assistant", "content": "a", "reasoning_content": "r"}])"), kBoth);
  EXPECT_EQ(parsed_text(R"([{"role": "assistant", "content": "a", "reasoning": "r"}])"), kBoth);
  EXPECT_EQ(parsed_text(R"([{"role": "assistant", "content": "a", "reasoning": null, "reasoning_content": null,
      "refusal": null, "audio": null}, {"role": "assistant", "refusal": "no", "content": null}])"),
            R"([{"role":"assistant","content":"a"},{"role":"assistant","content":"no"}])");
}

struct BadMessage {
  std::string_view message;
  std::string_view param;
  std::string_view text;  ///< empty: any
};

TEST(ChatHistory, names_the_message_that_is_wrong) {
  const BadMessage cases[] = {
      {R"({"role": "user"})", "messages[1].content", "'messages[1].content' is missing"},
      {R"({"role": "user", "content": null})", "messages[1].content",
       "'messages[1].content' must be a string or a list of parts, not null"},
      {R"({"role": "assistant"})", "messages[1].content", ""},
      {R"({"role": "tool", "tool_call_id": "a"})", "messages[1].content", ""},
      {R"({"role": "tool", "tool_call_id": 5, "content": ""})", "messages[1].tool_call_id", ""},
      {R"({"role": "tool", "content": {"degrees": 12}})", "messages[1].content", ""},
      {R"({"role": "user", "content": [{"type": "image_url"}]})", "messages[1].content[0].type", ""},
      {R"({"role": "assistant", "content": "", "reasoning": 5})", "messages[1].reasoning", ""},
      {R"({"role": "assistant", "tool_calls": {}})", "messages[1].tool_calls", ""},
      {R"({"role": "assistant", "tool_calls": ["f"]})", "messages[1].tool_calls[0]", ""},
      {R"({"role": "assistant", "tool_calls": [{"type": "web"}]})", "messages[1].tool_calls[0].type", ""},
      {R"({"role": "assistant", "tool_calls": [{"type": "custom"}]})", "messages[1].tool_calls[0].custom", ""},
      {R"({"role": "assistant", "tool_calls": [{"type": "custom", "custom": {}}]})", "messages[1].tool_calls[0].custom.name",
       ""},
      {R"({"role": "assistant", "tool_calls": [{"type": "function"}]})", "messages[1].tool_calls[0].function", ""},
      {R"({"role": "assistant", "tool_calls": [{"function": {}}]})", "messages[1].tool_calls[0].function.name", ""},
      {R"({"role": "assistant", "tool_calls": [{"id": 1, "function": {"name": "f"}}]})", "messages[1].tool_calls[0].id", ""},
      {R"({"role": "assistant", "function_call": "f"})", "messages[1].tool_calls[0].function", ""},
  };
  for (const BadMessage& bad : cases) {
    const std::string text = R"([{"role": "user", "content": "q"}, )" + std::string(bad.message) + "]";
    const auto parsed = parse_messages(value_of(text), "messages");
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().param, bad.param) << text << ": " << parsed.error().message;
    if (!bad.text.empty()) {
      EXPECT_EQ(parsed.error().message, bad.text);
    }
  }
}

TEST(ChatHistory, takes_whatever_a_model_has_written) {
  const auto arguments = [](std::string_view given) {
    const json::Value messages = value_of(parsed_text(
        R"([{"role":"assistant","tool_calls":[{"function":{"name":"","arguments":)" + std::string(given) + "}}]}]"));
    return json::dump(messages[0]["tool_calls"][0]["function"]["arguments"]);
  };
  EXPECT_EQ(arguments(R"("{\"a\": \"b")"), R"("{\"a\": \"b")");
  EXPECT_EQ(arguments("null"), R"("{}")");
  EXPECT_EQ(arguments("[1]"), R"("[1]")");
  EXPECT_EQ(arguments("7"), R"("7")");
  EXPECT_EQ(
      parsed_text(R"([{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
      {"role": "assistant", "content": null, "audio": {"id": "a"}}])"),
      R"([{"role":"assistant","content":""},{"role":"assistant","content":"[audio omitted: this model reads text only]"}])");
}

TEST(ChatHistory, reads_calls_of_custom_tools_as_calls_with_one_argument) {
  EXPECT_EQ(
      parsed_text(
          R"([{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{"name":"patch","input":"a\n\"b\""}}]},
      {"role":"tool","tool_call_id":"c","content":"done"}])"),
      R"([{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"patch",)"
      R"("arguments":"{\"input\":\"a\\n\\\"b\\\"\"}"}}]},{"role":"tool","tool_call_id":"c","content":"done","name":"patch"}])");
}

TEST(ChatHistory, keeps_a_session_with_an_image_alive) {
  constexpr std::string_view kImage = R"({"type": "image_url", "image_url": {"url": "x"}})";
  const std::string said = R"({"role": "user", "content": [)" + std::string(kImage) + R"(, {"type": "text", "text": "see"}]})";
  EXPECT_FALSE(parse_messages(value_of("[" + said + "]"), "messages")) << "the user waits for what it shows";
  for (const std::string_view behind :
       {R"({"role": "assistant", "content": "nice"})", R"({"role": "user", "content": "go on"})"}) {
    const json::Value messages = value_of(parsed_text("[" + said + "," + std::string(behind) + "]"));
    EXPECT_EQ(json::dump(messages[0]["content"]),
              R"([{"type":"text","text":"[image omitted: this model reads text only]"},{"type":"text","text":"see"}])");
  }
  const json::Value result =
      value_of(parsed_text(R"([{"role": "user", "content": "q"}, {"role": "tool", "tool_call_id": "c", "content": [)" +
                           std::string(kImage) + R"(, {"type": "file", "file": {}}, {"type": "input_audio"}]}])"));
  EXPECT_EQ(result[1]["content"].size(), 3u) << "a tool that shows an image is no new input of the user";
}

}  // namespace
}  // namespace baton
