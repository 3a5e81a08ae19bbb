/// Calls in reasoning: those at the end of reasoning that nothing has closed are calls, and all others are reasoning.
#include "parsers/reasoning_parser.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parsers/golden_message.h"

namespace baton::parsers {
namespace {

constexpr std::string_view kCall = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"q1\"}}\n</tool_call>";

/// Streamed and in one piece, with the opening marker in the answer and in the prompt.
void expect_read(std::string_view text, std::string_view shown, TextEnd end = TextEnd::natural) {
  for (const bool is_whole : {false, true})
    for (const bool begins_in_reasoning : {false, true}) {
      const std::string all = begins_in_reasoning ? std::string(text) : fmt::format("<think>\n{}", text);
      expect_golden({.tool_parser = "hermes",
                     .reasoning_parser = "qwen3",
                     .begins_in_reasoning = begins_in_reasoning,
                     .text = all,
                     .shown = shown,
                     .is_whole = is_whole,
                     .end = end});
    }
}

TEST(ReasonedCalls, at_the_end_of_open_reasoning_are_calls) {
  const std::string call(kCall);
  expect_read("I ponder.\n" + call, "|think I ponder.|0 add@0 {\"a\": \"q1\"}");
  expect_read("I ponder.\n" + call + "\n \n", "|think I ponder.|0 add@0 {\"a\": \"q1\"}");
  expect_read(call, "|0 add@0 {\"a\": \"q1\"}");
  expect_read("So.\n" + call + "\n" + call, "|think So.|0 add@0 {\"a\": \"q1\"}|1 add@1 {\"a\": \"q1\"}");
  expect_read("So." + call + " Well, " + call, "|think So." + call + " Well,|0 add@0 {\"a\": \"q1\"}");
  expect_read("I use <tool_call> now:" + call, "|think I use <tool_call> now:|0 add@0 {\"a\": \"q1\"}");
  expect_read("<tool_call><tool_call>" + call, "|think <tool_call><tool_call>|0 add@0 {\"a\": \"q1\"}");
  expect_read("So.<tool_call>{\"name\": \"add\", \"arguments\": {\"re\": \"\\d\",}}", "|think So.|0 add@0 {\"re\": \"\\\\d\"}");
  expect_read("So.\n" + call, "|think So.|0 add@0 {\"a\": \"q1\"}", TextEnd::cut);
}

TEST(ReasonedCalls, elsewhere_are_reasoning) {
  const std::string call(kCall);
  expect_read("So.\n" + call + "\nThat is it.", "|think So.\n" + call + "\nThat is it.");
  expect_read("So.\n" + call + "</think>\n\nDone.", "|think So.\n" + call + "|Done.");
  expect_read("So.\n" + call + "\n</think>\n\n" + call, "|think So.\n" + call + "|0 add@0 {\"a\": \"q1\"}");
  expect_read("<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"</think>Yes.",
              "|think <tool_call>{\"name\": \"add\", "
              "\"arguments\": {\"a\": \"|Yes.");
  for (const std::string_view open : {"<tool_call>", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"q",
                                      "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": oops}}</tool_call>",
                                      "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>", "<tool_c"})
    for (const TextEnd end : {TextEnd::natural, TextEnd::cut})
      expect_read(fmt::format("So. {}", open), fmt::format("|think So. {}", open), end);
}

TEST(ReasonedCalls, are_those_of_every_format_with_a_marker) {
  for (const auto& [tool_parser, reasoning_parser, call] :
       std::vector<std::tuple<std::string_view, std::string_view, std::string_view>>{
           {"qwen3_coder", "qwen3",
            "<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"},
           {"qwen3_coder", "qwen3", "<function=get_weather><parameter=days>3</parameter></function>"},
           {"mistral", "mistral", R"([TOOL_CALLS]get_weather[ARGS]{"days": 3})"},
           {"mistral", "mistral", R"([TOOL_CALLS][{"name": "get_weather", "arguments": {"days": 3}}])"},
           {"granite", "granite", R"(<|tool_call|>[{"name": "get_weather", "arguments": {"days": 3}}])"},
           {"cohere_command3", "cohere_command3",
            R"(<|START_ACTION|>[{"tool_name": "get_weather", "parameters": {"days": 3}}]<|END_ACTION|>)"},
           {"lfm2", "qwen3", "<|tool_call_start|>[get_weather(days=3)]<|tool_call_end|>"},
           {"pythonic", "qwen3", "<|python_start|>[get_weather(days=3)]<|python_end|>"},
           {"llama3_json", "deepseek_r1", R"(<|python_tag|>{"name": "get_weather", "parameters": {"days": 3}})"},
           {"phi4_mini_json", "qwen3", R"(functools[{"name": "get_weather", "arguments": {"days": 3}}])"},
       }) {
    const std::string text = fmt::format("I look.\n{}", call);
    expect_golden({tool_parser, reasoning_parser, true, text, "|think I look.|0 get_weather@0 {\"days\": 3}"});
  }
  // Without a marker nothing says where a call begins.
  expect_golden(
      {"json", "qwen3", true, R"(So. {"name": "add", "arguments": {}})", R"(|think So. {"name": "add", "arguments": {}})"});
}

TEST(ReasonedCalls, are_reasoning_without_tools) {
  const auto format = MessageFormat::make("hermes", "qwen3", "");
  const std::string text = "<think>So." + std::string(kCall);
  EXPECT_EQ(shown(testing::parsed(format->parser({}), {text})), "|think So." + std::string(kCall));
}

TEST(ReasonedCalls, hold_back_no_more_than_a_call) {
  const auto format = MessageFormat::make("hermes", "qwen3", "");
  auto parser = format->parser({.tools = tools(), .begins_in_reasoning = true});
  std::vector<MessagePiece> pieces;
  parser->take("I <t", pieces);
  EXPECT_EQ(shown(pieces), "|think I");
  parser->take("ag> <tool_call>{\"na", pieces);
  EXPECT_EQ(shown(testing::merged(pieces)), "|think I <tag>");
  parser->take("me\": 1 ", pieces);
  EXPECT_EQ(shown(testing::merged(pieces)), "|think I <tag> <tool_call>{\"name\": 1");
  parser->take("<tool_call>{\"arguments\": {\"a\": \"" + std::string(CallWriter::kMaxHeld, 'x'), pieces);
  EXPECT_GT(testing::merged(pieces)[0].text.size(), CallWriter::kMaxHeld);
}

}  // namespace
}  // namespace baton::parsers
