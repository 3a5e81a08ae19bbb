/// Calls in JSON with the mistakes that models make: mended in every format, streamed and in one piece.
#include "parsers/json_calls.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parsers/golden_message.h"

namespace baton::parsers {
namespace {

/// A call of `add` with these arguments in each format whose arguments are JSON.
std::vector<std::pair<std::string_view, std::string>> calls(std::string_view arguments) {
  const std::string object = fmt::format(R"({{"name": "add", "arguments": {}}})", arguments);
  const std::string parameters = fmt::format(R"({{"name": "add", "parameters": {}}})", arguments);
  return {
      {"hermes", "<tool_call>\n" + object + "\n</tool_call>"},
      {"mistral", "[TOOL_CALLS][" + object + "]"},
      {"mistral", fmt::format("[TOOL_CALLS]add[ARGS]{}", arguments)},
      {"granite", "<|tool_call|>[" + object + "]"},
      {"phi4_mini_json", "functools[" + object + "]"},
      {"llama3_json", parameters},
      {"llama3_json", "<|python_tag|>" + parameters},
      {"json", "[" + object + "]"},
      {"cohere_command3",
       fmt::format("<|START_ACTION|>[{{\"tool_name\": \"add\", \"parameters\": {}}}]<|END_ACTION|>", arguments)},
  };
}

TEST(JsonCalls, are_mended_in_every_format) {
  for (const auto& [written, meant] : std::vector<std::pair<std::string_view, std::string_view>>{
           {R"({"path": "C:\Users \d+"})", R"({"path": "C:\\Users \\d+"})"},
           {R"({"path": "\users", "re": "\u12"})", R"({"path": "\\users", "re": "\\u12"})"},
           {R"({"\w": ["a\.b", {"c": "\("}]})", R"({"\\w": ["a\\.b", {"c": "\\("}]})"},
           {R"({"a": [1, 2,], "b": {"c": 1 , }, })", R"({"a": [1, 2], "b": {"c": 1  } })"},
           {R"({"a": True, "b": [None, False]})", R"({"a": true, "b": [null, false]})"},
           {R"({"a": "\ud83d"})", R"({"a": "\ufffd"})"},
           {"{\"a\": \"x\ty\nz\"}", R"({"a": "x\ty\nz"})"},
           {R"({"a": 9223372036854775808123, "b": 1e999})", R"({"a": 9223372036854775808123, "b": 1e999})"},
           {R"({"a": "C:\\Users\n\"\u00e9\/"})", R"({"a": "C:\\Users\n\"\u00e9\/"})"},
       })
    for (const auto& [format, text] : calls(written)) expect_golden_twice(format, text, fmt::format("|0 add@0 {}", meant));
}

TEST(JsonCalls, have_arguments_in_a_string_mended_too) {
  expect_golden_twice("hermes",
                      R"(<tool_call>{"name": "add", "arguments": "{\"a\": \"C:\\Users\", \"b\": [1,],}"}</tool_call>)",
                      R"(|0 add@0 {"a": "C:\\Users", "b": [1]})");
  expect_golden_twice("hermes", R"(<tool_call>{"name": "add", "arguments": "{\"a\": \"\d\"}"}</tool_call>)",
                      R"(|0 add@0 {"a": "\\d"})");
  expect_golden_twice("hermes", R"(<tool_call>{"name": "add", "arguments": " {\"a\": None} "}</tool_call>)",
                      R"(|0 add@0 {"a": null})");
  expect_golden_twice("hermes", R"(<tool_call>{"name": "add", "arguments": "[1]"}</tool_call>)",
                      R"(|<tool_call>{"name": "add", "arguments": "[1]"}</tool_call>)");
}

TEST(JsonCalls, have_mistakes_around_their_arguments_mended) {
  for (const auto& [format, text] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"hermes", R"(<tool_call>{"name": "add", "arguments": {"a": 1},}</tool_call>)"},
           {"hermes", R"(<tool_call>{"arguments": {"a": 1,}, "note": "\d", "name": "add" , }</tool_call>)"},
           {"hermes", "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}\n</tool_call>"},
           {"hermes", "<tool_call>\n{\"arguments\": {\"a\": 1}, \"name\": \"add\"\n</tool_call>"},
           {"hermes", "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}}\n</tool_call>"},
           {"mistral", R"([TOOL_CALLS][{"name": "add", "arguments": {"a": 1}},])"},
           {"granite", R"(<|tool_call|>[{"name": "add", "arguments": {"a": 1}} , ])"},
           {"json", R"([{"name": "add", "arguments": {"a": 1}},])"},
           {"cohere_command3", R"(<|START_ACTION|>[{"tool_name": "add", "parameters": {"a": 1}},]<|END_ACTION|>)"},
       })
    expect_golden_twice(format, text, R"(|0 add@0 {"a": 1})");
}

TEST(JsonCalls, that_cannot_be_mended_are_content_as_a_whole_in_one_piece) {
  for (const std::string_view arguments :
       {R"({"a": oops})", R"({"a": 1 2})", R"({"a": 01})", R"({"a"})", R"({"a": 1]})", R"({'a': 1})", R"({"a": 1,, "b": 2})"})
    for (const auto& [format, text] : calls(arguments)) {
      Golden golden{.tool_parser = format,
                    .reasoning_parser = "",
                    .begins_in_reasoning = false,
                    .text = text,
                    .shown = {},
                    .is_whole = true};
      const std::string content = "|" + text;
      golden.shown = content;
      expect_golden(golden);
    }
  // Calls in front of it and after it are calls.
  expect_golden(
      {"hermes", "", false,
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>\n"
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": oops}}</tool_call>\n"
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 3}}</tool_call>",
       "|0 add@0 {\"a\": 1}|\n<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": oops}}</tool_call>|1 add@1 {\"a\": 3}",
       true});
  // A stream has given out what came before the mistake.
  expect_golden({"hermes", "", false, R"(<tool_call>{"name": "add", "arguments": {"a": oops}}</tool_call>)",
                 R"(|0 add@0 {"a": ~|oops}}</tool_call>)"});
}

TEST(JsonCalls, whose_arguments_are_complete_are_calls_whatever_follows) {
  expect_golden_twice("hermes", R"(<tool_call>{"name": "add", "arguments": {"a": 1} oops</tool_call>)",
                      R"(|0 add@0 {"a": 1}|oops</tool_call>)");
  expect_golden_twice("hermes", R"(<tool_call>{"name": "add", "arguments": {"a": 1})", R"(|0 add@0 {"a": 1})");
  expect_golden_twice("mistral", R"([TOOL_CALLS][{"name": "add", "arguments": {"a": 1}} and)", R"(|0 add@0 {"a": 1}| and)");
}

TEST(JsonCalls, that_the_model_has_not_ended_are_content_in_one_piece) {
  for (const std::string_view text :
       {R"(<tool_call>{"name": "add", "arguments": {"a": 1)", R"(<tool_call>{"name": "add", "arguments": {)",
        R"(<tool_call>{"name": "ad)", R"(<tool_call>{"arguments": {"a": "x)"}) {
    const std::string content = fmt::format("|{}", text);
    expect_golden({"hermes", "", false, text, content, true});
  }
}

TEST(JsonCalls, that_are_long_are_given_out_before_they_end_in_one_piece_too) {
  const std::string text = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"" + std::string(2'000'000, 'x');
  const auto format = MessageFormat::make("hermes", "", "");
  for (const std::string_view end : {"\"}}</tool_call>", ""}) {
    auto parser = format->parser({.tools = tools(), .is_whole = true});
    const auto pieces = testing::parsed(std::move(parser), {text, end});
    ASSERT_EQ(pieces.size(), 2u);
    EXPECT_EQ(pieces[0].text, "add");
    EXPECT_GT(pieces[1].text.size(), 2'000'000u);
    EXPECT_EQ(pieces[1].is_complete, !end.empty());
  }
}

}  // namespace
}  // namespace baton::parsers
