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

/// What a template gets that shows everything and takes everything.
constexpr TemplateTraits kAll{.shows_tools = true,
                              .shows_calls = true,
                              .shows_results = true,
                              .takes_text_arguments = true,
                              .takes_object_arguments = true,
                              .takes_empty_content = true,
                              .takes_null_content = true,
                              .takes_absent_content = true,
                              .knows_developer = true};

std::string shaped_text(std::string_view messages, const TemplateTraits& traits) {
  const auto parsed = parse_messages(value_of(messages), "messages");
  EXPECT_TRUE(parsed) << messages << ": " << (parsed ? "" : parsed.error().message);
  const auto shaped = shape_messages(*parsed, 0, traits);
  EXPECT_TRUE(shaped) << messages << ": " << (shaped ? "" : shaped.error().message);
  return shaped ? json::dump(*shaped) : "";
}

constexpr std::string_view kCall = R"([{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",)"
                                   R"("function":{"name":"f","arguments":"{\"a\": 1}"}}]}])";

TEST(ChatHistory, joins_content_parts_and_keeps_what_templates_may_want) {
  EXPECT_EQ(parsed_text(R"([{"role": "user", "name": "n", "content": [{"type": "text", "text": "a"},
      {"type": "text", "text": "b"}]}, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}])"),
            R"([{"role":"user","name":"n","content":"a\nb"},{"role":"assistant","content":"no"}])");
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
  EXPECT_EQ(parsed_text(with_results),
            std::string(kCall.substr(0, kCall.size() - 1)) +
                R"(,{"role":"tool","tool_call_id":"call_1","content":"12","name":"f"})"
                R"(,{"role":"tool","tool_call_id":"call_1","content":"1\n2","name":"own"})"
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
  constexpr std::string_view kBoth = R"([{"role":"assistant","content":"a","reasoning":"r","reasoning_content":"r"}])";
  EXPECT_EQ(parsed_text(R"([{"role": "assistant", "content": "a", "reasoning_content": "r"}])"), kBoth);
  EXPECT_EQ(parsed_text(R"([{"role": "assistant", "content": "a", "reasoning": "r"}])"), kBoth);
  EXPECT_EQ(parsed_text(R"([{"role": "assistant", "content": "a", "reasoning": null, "reasoning_content": null,
      "refusal": null, "audio": null}, {"role": "assistant", "refusal": "no", "content": null}])"),
            R"([{"role":"assistant","content":"a"},{"role":"assistant","content":"no"}])");
}

TEST(ChatHistory, gives_arguments_as_the_template_wants_them) {
  TemplateTraits traits = kAll;
  EXPECT_EQ(shaped_text(kCall, traits), kCall) << "a text that the template writes stays as the model wrote it";
  traits.takes_text_arguments = false;
  const auto arguments = [&](std::string_view given) {
    return json::dump(value_of(
        shaped_text(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":)" + std::string(given) + "}}]}]",
                    traits))[0]["tool_calls"][0]["function"]["arguments"]);
  };
  EXPECT_EQ(arguments(R"("{\"a\": 1, \"b\": {}}")"), R"({"a":1,"b":{}})");
  EXPECT_EQ(arguments(R"("")"), "{}");
  EXPECT_EQ(arguments(R"({"a": 1})"), R"({"a":1})");
  traits.takes_text_arguments = true;
  traits.takes_object_arguments = false;
  EXPECT_EQ(arguments(R"({"a": 1})"), R"("{\"a\":1}")");
}

TEST(ChatHistory, gives_content_ids_and_roles_as_the_template_wants_them) {
  const auto content = [](std::string_view given, bool takes_null, bool takes_absent) {
    TemplateTraits traits = kAll;
    traits.takes_null_content = takes_null;
    traits.takes_absent_content = takes_absent;
    const json::Value message = value_of(shaped_text(
        R"([{"role":"assistant",)" + std::string(given) + R"("tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}])",
        traits))[0];
    const json::Value* found = json::find(message, "content");
    return found == nullptr ? "absent" : json::dump(*found);
  };
  constexpr std::string_view kNull = R"("content":null,)", kText = R"("content":"a",)";
  EXPECT_EQ(content(kNull, true, true), "null");
  EXPECT_EQ(content(kNull, false, true), "absent");
  EXPECT_EQ(content(kNull, false, false), R"("")");
  EXPECT_EQ(content("", true, true), "absent");
  EXPECT_EQ(content("", true, false), "null");
  EXPECT_EQ(content("", false, false), R"("")");
  EXPECT_EQ(content(kText, false, false), R"("a")");
  EXPECT_EQ(content(R"("content":"",)", true, true), R"("")");
  TemplateTraits no_text = kAll;
  no_text.takes_empty_content = false;
  EXPECT_TRUE(value_of(shaped_text(R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f"}}]}])",
                                   no_text))[0]["content"]
                  .is_null());

  TemplateTraits traits = kAll;
  traits.has_short_ids = true;
  traits.knows_developer = false;
  const json::Value messages = value_of(shaped_text(R"([{"role":"developer","content":"d"},{"role":"assistant","content":"",
      "tool_calls":[{"id":"call_1","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"call_1","content":"r"}])",
                                                    traits));
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[1]["tool_calls"][0]["id"].get<std::string>().size(), 9u);
  EXPECT_EQ(messages[1]["tool_calls"][0]["id"], messages[2]["tool_call_id"]);
  EXPECT_EQ(value_of(shaped_text(R"([{"role":"developer","content":"d"}])", kAll))[0]["role"], "developer");
}

TEST(ChatHistory, writes_calls_as_content_for_templates_that_do_not_show_them) {
  constexpr TemplateTraits kTexts{.shows_results = true};
  EXPECT_EQ(shaped_text(kCall, kTexts), R"([{"role":"assistant","content":"[{\"name\":\"f\",\"arguments\":{\"a\":1}}]"}])");
  EXPECT_EQ(
      shaped_text(R"([{"role":"assistant","content":"so","tool_calls":[{"function":{"name":"f","arguments":"{"}},
      {"function":{"name":"g","arguments":{}}}]}])",
                  kTexts),
      R"([{"role":"assistant","content":"so\n[{\"name\":\"f\",\"arguments\":\"{\"},{\"name\":\"g\",\"arguments\":{}}]"}])");
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
      {R"({"role": "assistant", "content": "", "audio": {"id": "a"}})", "messages[1].audio", ""},
      {R"({"role": "assistant", "content": "", "reasoning": 5})", "messages[1].reasoning", ""},
      {R"({"role": "assistant", "tool_calls": {}})", "messages[1].tool_calls", ""},
      {R"({"role": "assistant", "tool_calls": ["f"]})", "messages[1].tool_calls[0]", ""},
      {R"({"role": "assistant", "tool_calls": [{"type": "custom"}]})", "messages[1].tool_calls[0].type", ""},
      {R"({"role": "assistant", "tool_calls": [{"type": "function"}]})", "messages[1].tool_calls[0].function", ""},
      {R"({"role": "assistant", "tool_calls": [{"function": {}}]})", "messages[1].tool_calls[0].function.name", ""},
      {R"({"role": "assistant", "tool_calls": [{"id": 1, "function": {"name": "f"}}]})", "messages[1].tool_calls[0].id", ""},
      {R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": []}}]})",
       "messages[1].tool_calls[0].function.arguments", ""},
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

TEST(ChatHistory, refuses_what_the_template_does_not_show_by_the_messages_index) {
  const auto error = [](std::string_view messages, std::size_t n_before, const TemplateTraits& traits) {
    const auto shaped = shape_messages(*parse_messages(value_of(messages), "messages"), n_before, traits);
    EXPECT_FALSE(shaped) << messages;
    return shaped ? "" : shaped.error().param;
  };
  constexpr std::string_view kResult = R"([{"role":"user","content":"q"},{"role":"tool","content":"r"}])";
  EXPECT_EQ(error(kResult, 0, {}), "messages[1].role");
  EXPECT_EQ(error(kResult, 1, {}), "messages[0].role") << "the first message is the prefix's";
  TemplateTraits objects = kAll;
  objects.takes_text_arguments = false;
  for (const char* arguments : {R"("{\"a\": ")", R"("[1]")", R"("5")"})
    EXPECT_EQ(
        error(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":)" + std::string(arguments) + "}}]}]",
              0, objects),
        "messages[0].tool_calls[0].function.arguments");
}

}  // namespace
}  // namespace baton
