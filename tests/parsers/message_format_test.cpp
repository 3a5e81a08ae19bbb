/// Formats of messages: names, and what an answer without a format becomes.
#include "parsers/message_format.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "io/json.h"
#include "support/grammar_texts.h"
#include "support/message_cuts.h"
#include "support/tool_index.h"

namespace baton::parsers {
namespace {

TEST(MessageFormat, without_a_format_everything_is_content) {
  const auto parser = MessageFormat::from_template("{{ messages[0].content }}").parser({});
  std::vector<MessagePiece> pieces;
  parser->take("a <tool", pieces);
  parser->take("", pieces);
  parser->take("_call>", pieces);
  parser->end(TextEnd::natural, pieces);
  EXPECT_EQ(pieces, (std::vector<MessagePiece>{{.text = "a <tool"}, {.text = "_call>"}}));
}

TEST(MessageFormat, refuses_unknown_names_and_says_which_there_are) {
  EXPECT_TRUE(MessageFormat::make("", "auto", ""));
  for (const std::string_view name : MessageFormat::tool_parsers()) EXPECT_TRUE(MessageFormat::make(name, "", ""));
  for (const std::string_view name : MessageFormat::reasoning_parsers()) EXPECT_TRUE(MessageFormat::make("", name, ""));
  for (const auto& format : {MessageFormat::make("hermse", "", ""), MessageFormat::make("", "hermse", "")}) {
    ASSERT_FALSE(format);
    EXPECT_NE(format.error().message.find("'hermse'; known are: auto, "), std::string::npos) << format.error().message;
  }
}

TEST(MessageFormat, without_a_format_no_call_can_be_demanded) {
  const std::vector<Tool> tools{{.name = "f"}};
  const MessageFormat plain;
  EXPECT_FALSE(*plain.grammar({.tools = tools, .choice = {.kind = ToolChoice::Kind::none}}));
  EXPECT_FALSE(*plain.grammar({.tools = tools}));
  EXPECT_EQ(plain.grammar({.tools = tools, .choice = {.kind = ToolChoice::Kind::required}}).error().code,
            ErrorCode::unsupported);
}

TEST(MessageFormat, sees_the_format_in_a_template) {
  using Names = std::pair<std::string_view, std::string_view>;  // of the tool-call parser, of the reasoning parser
  // Templates that are not named show no format that Baton reads.
  const std::map<std::string, Names> kFormats{
      {"Bielik-11B-v3.0-Instruct", {"hermes", "qwen3"}},
      {"ByteDance-Seed-OSS", {"seed_oss", "seed_oss"}},
      {"Cohere2MoE", {"cohere_command3", ""}},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", {"cohere_command3", "cohere_command3"}},
      {"GLM-4.6", {"glm45", "qwen3"}},
      {"GLM-4.7-Flash", {"glm45", "qwen3"}},
      {"GLM-5.2", {"glm45", "qwen3"}},
      {"HuggingFaceTB-SmolLM3-3B", {"", "qwen3"}},
      {"Kimi-K2-Instruct", {"kimi_k2", ""}},
      {"Kimi-K2-Thinking", {"kimi_k2", "kimi_k2"}},
      {"LFM2-8B-A1B", {"lfm2", ""}},
      {"LFM2.5-Instruct", {"lfm2", "qwen3"}},
      {"MiMo-VL", {"hermes", ""}},
      {"MiroThinker", {"hermes", "qwen3"}},
      {"Mistral-Small-3.2-24B-Instruct-2506", {"mistral", ""}},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"qwen3_coder", "qwen3"}},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", {"hermes", ""}},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", {"hermes", ""}},
      {"Qwen-QwQ-32B", {"hermes", "qwen3"}},
      {"Qwen-Qwen2.5-7B-Instruct", {"hermes", ""}},
      {"Qwen-Qwen3-0.6B", {"hermes", "qwen3"}},
      {"Qwen3-Coder", {"qwen3_coder", ""}},
      {"Qwen3.5-4B", {"qwen3_coder", "qwen3"}},
      {"Reka-Edge", {"hermes", "qwen3"}},
      {"StepFun3.5-Flash", {"qwen3_coder", "qwen3"}},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", {"deepseek_v3", "deepseek_r1"}},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"deepseek_v3", "deepseek_r1"}},
      {"deepseek-ai-DeepSeek-V3.1", {"deepseek_v31", "deepseek_v3"}},
      {"deepseek-ai-DeepSeek-V3.2", {"", "deepseek_v3"}},
      {"deepseek-ai-DeepSeek-V4", {"", "deepseek_v3"}},
      {"fireworks-ai-llama-3-firefunction-v2", {"phi4_mini_json", ""}},
      {"ibm-granite-granite-3.3-2B-Instruct", {"granite", "granite"}},
      {"llama-cpp-deepseek-r1", {"deepseek_v3", "deepseek_r1"}},
      {"llama-cpp-rwkv-world", {"", "qwen3"}},
      {"meta-llama-Llama-3.1-8B-Instruct", {"llama3_json", ""}},
      {"meta-llama-Llama-3.2-3B-Instruct", {"llama3_json", ""}},
      {"meta-llama-Llama-3.3-70B-Instruct", {"llama3_json", ""}},
      {"mistralai-Ministral-3-14B-Reasoning-2512", {"mistral", "mistral"}},
      {"mistralai-Mistral-Nemo-Instruct-2407", {"mistral", ""}},
      {"moonshotai-Kimi-K2", {"kimi_k2", ""}},
      {"openai-gpt-oss-120b", {"openai", "openai_gptoss"}},
      {"stepfun-ai-Step-3.5-Flash", {"qwen3_coder", "qwen3"}},
      {"unsloth-mistral-Devstral-Small-2507", {"mistral", ""}},
  };
  const char* data = std::getenv("BATON_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  std::size_t n_templates = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(data) / "chat-templates/templates")) {
    std::ifstream stream(file.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    const std::string name = file.path().stem().string();
    const auto known = kFormats.find(name);
    const MessageFormat format = MessageFormat::from_template(text);
    EXPECT_EQ(Names(format.tool_parser(), format.reasoning_parser()), known == kFormats.end() ? Names() : known->second)
        << name;
    n_templates += known != kFormats.end();
  }
  EXPECT_EQ(n_templates, kFormats.size());
}

std::vector<Tool> strict_tools() {
  return {
      {.name = "get_weather",
       .parameters = *json::parse(R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                                          "required": ["city"], "additionalProperties": false})",
                                  "tools"),
       .is_strict = true},
      {.name = "now"}};
}

/// Whether the grammar of a choice has the text.
bool has_text(const MessageFormat& format, const ToolChoice& choice, bool parallel, std::string_view text) {
  const std::vector<Tool> tools = strict_tools();
  const auto source = format.grammar({.tools = tools, .choice = choice, .is_parallel = parallel});
  EXPECT_TRUE(source) << source.error().message;
  EXPECT_TRUE(source && *source);
  return testing::accepts(*testing::compiled((*source)->kind, (*source)->text).program, text);
}

/// Of a format: one call, another one, both together, and a call whose arguments break the schema.
struct Calls {
  std::string_view tool_parser;
  std::string_view weather;
  std::string_view now;
  std::string_view both;
  std::string_view wrong;
};

const std::vector<Calls>& calls_of_formats() {
  static const std::vector<Calls> kCalls{
      {"hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"A\"}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"x\": [1]}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"A\"}}\n</tool_call>\n"
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"x\": [1]}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"days\": 1}}\n</tool_call>"},
      {"qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nA\n</parameter>\n</function>\n</tool_call>",
       "<tool_call>\n<function=now>\n<parameter=x>\n[1]\n</parameter>\n</function>\n</tool_call>",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nA\n</parameter>\n</function>\n</tool_call>\n"
       "<tool_call>\n<function=now>\n<parameter=x>\n[1]\n</parameter>\n</function>\n</tool_call>",
       "<tool_call>\n<function=get_weather>\n<parameter=days>\n1\n</parameter>\n</function>\n</tool_call>"},
      {"seed_oss",
       "<seed:tool_call>\n<function=get_weather>\n<parameter=city>\nA\n</parameter>\n</function>\n</seed:tool_call>",
       "<seed:tool_call>\n<function=now>\n<parameter=x>\n[1]\n</parameter>\n</function>\n</seed:tool_call>",
       "<seed:tool_call>\n<function=get_weather>\n<parameter=city>\nA\n</parameter>\n</function>\n</seed:tool_call>\n"
       "<seed:tool_call>\n<function=now>\n<parameter=x>\n[1]\n</parameter>\n</function>\n</seed:tool_call>",
       "<seed:tool_call>\n<function=get_weather>\n<parameter=days>\n1\n</parameter>\n</function>\n</seed:tool_call>"},
      {"glm45", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>A</arg_value>\n</tool_call>",
       "<tool_call>now<arg_key>x</arg_key><arg_value>[1]</arg_value></tool_call>",
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>A</arg_value>\n</tool_call>\n"
       "<tool_call>now\n<arg_key>x</arg_key>\n<arg_value>[1]</arg_value>\n</tool_call>",
       "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"},
      {"deepseek_v3",
       "<\uFF5Ctool\u2581calls\u2581begin\uFF5C><\uFF5Ctool\u2581call\u2581begin\uFF5C>function<\uFF5Ctool\u2581sep\uFF5C>get_"
       "weather\n```json\n{\"city\": \"A\"}\n```<\uFF5Ctool\u2581call\u2581end\uFF5C><\uFF5Ctool\u2581calls\u2581end\uFF5C>",
       "<\uFF5Ctool\u2581calls\u2581begin\uFF5C><\uFF5Ctool\u2581call\u2581begin\uFF5C>function<\uFF5Ctool\u2581sep\uFF5C>"
       "now\n```json\n{\"x\": [1]}\n```<\uFF5Ctool\u2581call\u2581end\uFF5C><\uFF5Ctool\u2581calls\u2581end\uFF5C>",
       "<\uFF5Ctool\u2581calls\u2581begin\uFF5C><\uFF5Ctool\u2581call\u2581begin\uFF5C>function<\uFF5Ctool\u2581sep\uFF5C>get_"
       "weather\n```json\n{\"city\": "
       "\"A\"}\n```<\uFF5Ctool\u2581call\u2581end\uFF5C>\n<\uFF5Ctool\u2581call\u2581begin\uFF5C>function<"
       "\uFF5Ctool\u2581sep\uFF5C>now\n```json\n{\"x\": "
       "[1]}\n```<\uFF5Ctool\u2581call\u2581end\uFF5C><\uFF5Ctool\u2581calls\u2581end\uFF5C>",
       "<\uFF5Ctool\u2581calls\u2581begin\uFF5C><\uFF5Ctool\u2581call\u2581begin\uFF5C>function<\uFF5Ctool\u2581sep\uFF5C>get_"
       "weather\n```json\n{\"days\": 1}\n```<\uFF5Ctool\u2581call\u2581end\uFF5C><\uFF5Ctool\u2581calls\u2581end\uFF5C>"},
      {"deepseek_v31",
       "<\uFF5Ctool\u2581calls\u2581begin\uFF5C><\uFF5Ctool\u2581call\u2581begin\uFF5C>get_weather<\uFF5Ctool\u2581sep\uFF5C>{"
       "\"city\": \"A\"}<\uFF5Ctool\u2581call\u2581end\uFF5C><\uFF5Ctool\u2581calls\u2581end\uFF5C>",
       "<\uFF5Ctool\u2581calls\u2581begin\uFF5C><\uFF5Ctool\u2581call\u2581begin\uFF5C>now<\uFF5Ctool\u2581sep\uFF5C>{\"x\": "
       "[1]}<\uFF5Ctool\u2581call\u2581end\uFF5C><\uFF5Ctool\u2581calls\u2581end\uFF5C>",
       "<\uFF5Ctool\u2581calls\u2581begin\uFF5C><\uFF5Ctool\u2581call\u2581begin\uFF5C>get_weather<\uFF5Ctool\u2581sep\uFF5C>{"
       "\"city\": "
       "\"A\"}<\uFF5Ctool\u2581call\u2581end\uFF5C><\uFF5Ctool\u2581call\u2581begin\uFF5C>now<\uFF5Ctool\u2581sep\uFF5C>{\"x\":"
       " [1]}<\uFF5Ctool\u2581call\u2581end\uFF5C><\uFF5Ctool\u2581calls\u2581end\uFF5C>",
       "<\uFF5Ctool\u2581calls\u2581begin\uFF5C><\uFF5Ctool\u2581call\u2581begin\uFF5C>get_weather<\uFF5Ctool\u2581sep\uFF5C>{"
       "\"days\": 1}<\uFF5Ctool\u2581call\u2581end\uFF5C><\uFF5Ctool\u2581calls\u2581end\uFF5C>"},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": "
       "\"A\"}<|tool_call_end|><|tool_calls_section_end|>",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{\"x\": "
       "[1]}<|tool_call_end|><|tool_calls_section_end|>",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": "
       "\"A\"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{\"x\": "
       "[1]}<|tool_call_end|><|tool_calls_section_end|>",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"days\": "
       "1}<|tool_call_end|><|tool_calls_section_end|>"},
      {"llama3_json", R"({"name": "get_weather", "parameters": {"city": "A"}})", R"({"name": "now", "parameters": {"x": [1]}})",
       R"({"name": "get_weather", "parameters": {"city": "A"}}; {"name": "now", "parameters": {"x": [1]}})",
       R"({"name": "get_weather", "parameters": {"days": 1}})"},
      {"lfm2", R"(<|tool_call_start|>[get_weather(city="A")]<|tool_call_end|>)",
       "<|tool_call_start|>[now(x=[1])]<|tool_call_end|>",
       R"(<|tool_call_start|>[get_weather(city="A"), now(x=[1])]<|tool_call_end|>)",
       "<|tool_call_start|>[get_weather(days=1)]<|tool_call_end|>"},
      {"pythonic", R"([get_weather(city="A")])", "[now(x=[1])]", R"([get_weather(city="A"), now(x=[1])])",
       "[get_weather(days=1)]"},
      {"mistral", R"([TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "A"}}])",
       R"([TOOL_CALLS][{"name": "now", "arguments": {"x": [1]}}])",
       R"([TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "A"}}, {"name": "now", "arguments": {"x": [1]}}])",
       R"([TOOL_CALLS][{"name": "get_weather", "arguments": {}}])"},
      {"granite", R"(<|tool_call|>[{"name": "get_weather", "arguments": {"city": "A"}}])",
       R"(<|tool_call|>[{"name": "now", "arguments": {"x": [1]}}])",
       R"(<|tool_call|>[{"name": "get_weather", "arguments": {"city": "A"}}, {"name": "now", "arguments": {"x": [1]}}])",
       R"(<|tool_call|>[{"name": "get_weather", "arguments": {"city": 1}}])"},
      {"cohere_command3",
       "<|START_ACTION|>[\n    {\"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"A\"}}\n]<|END_ACTION|>",
       "<|START_ACTION|>[\n    {\"tool_name\": \"now\", \"parameters\": {\"x\": [1]}}\n]<|END_ACTION|>",
       "<|START_ACTION|>[\n    {\"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"A\"}},\n    {\"tool_name\": "
       "\"now\", "
       "\"parameters\": {\"x\": [1]}}\n]<|END_ACTION|>",
       "<|START_ACTION|>[\n    {\"tool_name\": \"get_weather\", \"parameters\": {}}\n]<|END_ACTION|>"},
      {"json", R"([{"name": "get_weather", "arguments": {"city": "A"}}])", R"([{"name": "now", "arguments": {"x": [1]}}])",
       R"([{"name": "get_weather", "arguments": {"city": "A"}}, {"name": "now", "arguments": {"x": [1]}}])",
       R"([{"name": "get_weather", "arguments": {"city": "A", "other": 1}}])"},
  };
  return kCalls;
}

TEST(MessageFormat, a_demanded_call_is_one_that_the_parser_reads) {
  const auto tools = testing::index_of(strict_tools());
  for (const Calls& calls : calls_of_formats()) {
    const auto format = *MessageFormat::make(calls.tool_parser, "", "");
    const ToolChoice required{.kind = ToolChoice::Kind::required};
    const ToolChoice named{.kind = ToolChoice::Kind::named, .name = "get_weather"};
    for (const std::string_view text : {calls.weather, calls.now, calls.both})
      EXPECT_TRUE(has_text(format, required, true, text)) << text;
    const std::string behind_reasoning = "\n\n" + std::string(calls.now);
    EXPECT_FALSE(has_text(format, required, true, behind_reasoning));
    EXPECT_TRUE(has_text(*MessageFormat::make(calls.tool_parser, "qwen3", ""), required, true, behind_reasoning));
    EXPECT_TRUE(has_text(format, required, false, calls.now));
    EXPECT_FALSE(has_text(format, required, false, calls.both)) << calls.tool_parser;
    EXPECT_FALSE(has_text(format, required, true, calls.wrong)) << calls.tool_parser;
    EXPECT_FALSE(has_text(format, required, true, "text")) << calls.tool_parser;
    EXPECT_FALSE(has_text(format, required, true, "")) << calls.tool_parser;
    EXPECT_TRUE(has_text(format, named, true, calls.weather));
    EXPECT_FALSE(has_text(format, named, true, calls.now)) << calls.tool_parser;
    EXPECT_FALSE(has_text(format, named, true, calls.both)) << calls.tool_parser;
    const auto pieces = testing::parsed(format.parser({.tools = tools}), {calls.both});
    ASSERT_EQ(pieces.size(), 4u) << calls.tool_parser;
    EXPECT_EQ(pieces[0].text, "get_weather");
    EXPECT_EQ(*json::parse(pieces[1].text, "arguments"), *json::parse(R"({"city": "A"})", "arguments"));
    EXPECT_EQ(pieces[2].text, "now");
    EXPECT_EQ(pieces[3].call, 1);
  }
}

TEST(MessageFormat, writes_the_form_of_calls_that_the_template_shows) {
  const ToolChoice required{.kind = ToolChoice::Kind::required};
  EXPECT_TRUE(has_text(MessageFormat::from_template("[TOOL_CALLS] + name + [ARGS]"), required, true,
                       R"([TOOL_CALLS]get_weather[ARGS]{"city": "A"}[TOOL_CALLS]now[ARGS]{})"));
  EXPECT_TRUE(has_text(MessageFormat::from_template("[TOOL_CALLS] ["), required, true,
                       R"([TOOL_CALLS] [{"name": "now", "arguments": {}}])"));
}

TEST(MessageFormat, strict_tools_bind_the_arguments_and_leave_the_text_free) {
  const ToolChoice automatic;
  for (const Calls& calls : calls_of_formats()) {
    const auto format = *MessageFormat::make(calls.tool_parser, "", "");
    for (const std::string_view text : {std::string_view(""), std::string_view("Some <text> [with] {brackets}."),
                                        std::string_view(" \n"), calls.weather, calls.now, calls.both})
      EXPECT_TRUE(has_text(format, automatic, true, text)) << calls.tool_parser << ": " << text;
    EXPECT_FALSE(has_text(format, automatic, true, calls.wrong)) << calls.tool_parser;
    EXPECT_TRUE(has_text(format, automatic, false, calls.weather)) << calls.tool_parser;
    EXPECT_FALSE(has_text(format, automatic, false, calls.both)) << calls.tool_parser;
    // The parser reads a call only after a marker, or at the begin of the answer.
    const bool is_marked = calls.weather[0] != '{' && calls.weather.substr(0, 2) != "[g" && calls.weather.substr(0, 2) != "[{";
    EXPECT_EQ(has_text(format, automatic, true, "text " + std::string(calls.wrong)), !is_marked) << calls.tool_parser;
    EXPECT_TRUE(has_text(format, automatic, true, "text " + std::string(calls.weather))) << calls.tool_parser;
  }
  const auto llama = *MessageFormat::make("llama3_json", "", "");
  EXPECT_TRUE(has_text(llama, automatic, true, "<html>"));
  EXPECT_FALSE(has_text(llama, automatic, true, "<|python_tag|>{}"));
  EXPECT_FALSE(has_text(llama, automatic, true, "x<|python_tag|>{}"));
  const std::vector<Tool> tools{{.name = "f"}};
  EXPECT_FALSE(*llama.grammar({.tools = tools})) << "no tool is strict";
}

/// Whether the grammar of an answer that is calls or content has the text.
bool has_either(const MessageFormat& format, const grammar::GrammarSource& content, bool parallel, std::string_view text) {
  const std::vector<Tool> tools = strict_tools();
  const auto source = format.grammar({.tools = tools, .is_parallel = parallel, .content = content});
  EXPECT_TRUE(source && *source) << source.error().message;
  return testing::accepts(*testing::compiled((*source)->kind, (*source)->text, (*source)->spaces).program, text);
}

TEST(MessageFormat, an_answer_is_calls_or_content_that_keeps_to_a_grammar) {
  using grammar::GrammarKind;
  const grammar::GrammarSource schema{
      .kind = GrammarKind::json_schema,
      .text =
          R"({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false})"};
  for (const Calls& calls : calls_of_formats()) {
    const auto format = *MessageFormat::make(calls.tool_parser, "", "");
    for (const std::string_view text : {calls.weather, calls.now, calls.both, std::string_view(R"({"n": 1})")})
      EXPECT_TRUE(has_either(format, schema, true, text)) << calls.tool_parser << ": " << text;
    for (const std::string& text :
         {std::string(), std::string("text"), std::string(R"({"n": "1"})"), std::string(calls.wrong),
          "text " + std::string(calls.now), std::string(calls.now) + " text", std::string(calls.now) + R"({"n": 1})",
          R"({"n": 1})" + std::string(calls.now), "\n\n" + std::string(calls.now)})
      EXPECT_FALSE(has_either(format, schema, true, text)) << calls.tool_parser << ": " << text;
    EXPECT_TRUE(has_either(format, schema, false, calls.now)) << calls.tool_parser;
    EXPECT_FALSE(has_either(format, schema, false, calls.both)) << calls.tool_parser;
    const auto reasons = *MessageFormat::make(calls.tool_parser, "qwen3", "");
    for (const std::string_view text : {calls.now, std::string_view(R"({"n": 1})")})
      EXPECT_TRUE(has_either(reasons, schema, true, "\n\n" + std::string(text))) << calls.tool_parser;
  }
}

TEST(MessageFormat, content_beside_calls_may_keep_to_any_kind_of_grammar) {
  using grammar::GrammarKind;
  const auto hermes = *MessageFormat::make("hermes", "", "");
  const auto has = [&](GrammarKind kind, std::string_view of, std::string_view text) {
    return has_either(hermes, {.kind = kind, .text = std::string(of)}, true, text);
  };
  constexpr std::string_view kOlder =
      R"({"structures": [{"begin": "<a>", "schema": {"type": "boolean"}, "end": "</a>"}], "triggers": ["<a>"]})";
  struct Case {
    GrammarKind kind;
    std::string_view of, yes, no;
  };
  for (const Case& one :
       {Case{GrammarKind::json_object, "", R"({"a": [1, {}]})", "[1]"}, Case{GrammarKind::json_schema, "true", "[1]", "x"},
        Case{GrammarKind::regex, "a|b{2}", "bb", "b"}, Case{GrammarKind::choice, R"(["yes", "no"])", "no", "n"},
        Case{GrammarKind::ebnf, "root ::= \"x\" root | \"y\"", "xxy", "xx"},
        Case{GrammarKind::structural_tag, R"({"type": "structural_tag", "format": {"type": "const_string", "value": "ok"}})",
             "ok", "o"},
        Case{GrammarKind::structural_tag, kOlder, "so <a>true</a>", "<a>1</a>"}}) {
    EXPECT_TRUE(has(one.kind, one.of, one.yes)) << one.yes;
    EXPECT_FALSE(has(one.kind, one.of, one.no)) << one.no;
    EXPECT_TRUE(has(one.kind, one.of, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
  }
  const grammar::GrammarSource dense{.kind = GrammarKind::json_object, .spaces = grammar::JsonSpaces::none};
  EXPECT_TRUE(has_either(hermes, dense, true, R"({"a":1})"));
  EXPECT_FALSE(has_either(hermes, dense, true, R"({"a": 1})"));
}

TEST(MessageFormat, content_in_place_of_calls_has_no_calls_inside) {
  const auto tools = testing::index_of(strict_tools());
  const auto mistral = *MessageFormat::make("mistral", "", "");
  const std::string content = R"({"say": "[TOOL_CALLS]now[ARGS]{}"})";
  EXPECT_EQ(testing::parsed(mistral.parser({.tools = tools, .has_calls_first = true}), {content}),
            (std::vector<MessagePiece>{{.text = content}}));
  EXPECT_GT(testing::parsed(mistral.parser({.tools = tools}), {content}).size(), 1u) << "free text may call";
  const auto hermes = *MessageFormat::make("hermes", "", "");
  EXPECT_EQ(testing::parsed(hermes.parser({.tools = tools, .has_calls_first = true}), {"<<tool_call>"}),
            (std::vector<MessagePiece>{{.text = "<<tool_call>"}}));
  for (const Calls& calls : calls_of_formats()) {
    const auto format = *MessageFormat::make(calls.tool_parser, "", "");
    EXPECT_EQ(testing::parsed(format.parser({.tools = tools, .has_calls_first = true}), {calls.both}).size(), 4u)
        << calls.tool_parser;
    const auto wrong =
        testing::parsed(format.parser({.tools = tools, .has_calls_first = true}), {R"({"name": 1, "x": "<tool_call>"})"});
    EXPECT_EQ(wrong, (std::vector<MessagePiece>{{.text = R"({"name": 1, "x": "<tool_call>"})"}})) << calls.tool_parser;
  }
}

TEST(MessageFormat, an_answer_may_reason_before_its_grammar_demands_something) {
  const grammar::GrammarSource number{.kind = grammar::GrammarKind::regex, .text = "[0-9]+"};
  const auto accepts = [&](std::string_view parser, bool begins_in_reasoning, std::string_view text) {
    const auto source =
        MessageFormat::make("", parser, "")
            ->behind_reasoning(number, /*is_answer=*/false, {.may_reason = true, .in_reasoning = begins_in_reasoning}, {});
    EXPECT_TRUE(source) << source.error().message;
    return testing::accepts(*testing::compiled(source->kind, source->text).program, text);
  };
  for (const std::string_view text : {"12", "<think>so 1 </thin</think>12", "<think></think>\n\n12"})
    EXPECT_TRUE(accepts("qwen3", false, text)) << text;
  for (const std::string_view text : {"", "so</think>12", "<think>12", "<think></think>\n\n\n12", "<think></think>x"})
    EXPECT_FALSE(accepts("qwen3", false, text)) << text;
  EXPECT_TRUE(accepts("qwen3", true, "so</think>\n12"));
  EXPECT_FALSE(accepts("qwen3", true, "12"));
  for (const std::string_view text : {"12", "Here is my thought process: 1\nHere's my response:\n\n12", "<think>a</think>12"})
    EXPECT_TRUE(accepts("granite", false, text)) << text;
  const AnswerBegin open{.may_reason = true};
  EXPECT_EQ(MessageFormat().behind_reasoning(number, /*is_answer=*/false, open, {})->text, number.text);
  const auto closed = MessageFormat::make("", "qwen3", "")->behind_reasoning(number, /*is_answer=*/false, {}, {});
  EXPECT_EQ(closed->text, number.text);
}

TEST(MessageFormat, markers_that_are_special_tokens_are_demanded_as_tokens) {
  const std::vector<Tool> tools = strict_tools();
  const ToolChoice required{.kind = ToolChoice::Kind::required};
  for (const auto& [parser, marker] :
       {std::pair("mistral", "[TOOL_CALLS]"), std::pair("granite", "<|tool_call|>"), std::pair("llama3_json", "<|python_tag|>"),
        std::pair("pythonic", "<|python_start|>"), std::pair("deepseek_v31", "<\uFF5Ctool\u2581calls\u2581begin\uFF5C>"),
        std::pair("kimi_k2", "<|tool_calls_section_begin|>"), std::pair("lfm2", "<|tool_call_start|>")}) {
    const auto format = *MessageFormat::make(parser, "", "");
    const std::vector<std::string> special{marker};
    for (const auto& choice : {required, ToolChoice()}) {
      const auto source = format.grammar({.tools = tools, .choice = choice, .special_tokens = special});
      const auto program = testing::compiled((*source)->kind, (*source)->text).program;
      ASSERT_EQ(program->token_texts().size(), 1u) << parser;
      EXPECT_EQ(program->token_texts()[0], marker);
      grammar::Configurations configurations(*program);
      EXPECT_NE(configurations.step_token(configurations.start(), 0), grammar::Configurations::kDead) << parser;
      EXPECT_FALSE(testing::accepts(*program, marker + std::string(R"([{"name": "now", "arguments": {}}])"))) << parser;
    }
    const auto plain = format.grammar({.tools = tools, .choice = required});
    EXPECT_TRUE(testing::compiled((*plain)->kind, (*plain)->text).program->token_texts().empty()) << parser;
  }
}

TEST(MessageFormat, refuses_names_that_are_no_tools_or_cannot_be_written) {
  const auto refusal = [](std::string_view name, const ToolChoice& choice, std::string tool) {
    const std::vector<Tool> tools{{.name = std::move(tool)}};
    const auto source = MessageFormat::make(name, "", "")->grammar({.tools = tools, .choice = choice});
    return source ? "" : source.error().message;
  };
  const ToolChoice required{.kind = ToolChoice::Kind::required};
  EXPECT_EQ(refusal("hermes", {.kind = ToolChoice::Kind::named, .name = "g"}, "f"),
            "tool_choice names 'g', which is not a tool");
  EXPECT_EQ(refusal("qwen3_coder", required, "a>b"),
            "the tool name 'a>b' cannot be written in the model's format of calls (qwen3_coder)");
  EXPECT_NE(refusal("pythonic", required, "f g"), "");
  EXPECT_EQ(refusal("hermes", required, "f \"g\""), "");
}

TEST(MessageFormat, one_parser_may_be_chosen_and_the_other_seen) {
  const auto format = MessageFormat::make("json", "auto", "...</think>...<tool_call></tool_call> arguments");
  ASSERT_TRUE(format);
  EXPECT_EQ(format->tool_parser(), "json");
  EXPECT_EQ(format->reasoning_parser(), "qwen3");
}

TEST(MessageFormat, knows_whether_the_prompt_has_begun_the_reasoning) {
  const MessageFormat plain;
  EXPECT_FALSE(plain.begin_after("<think>").in_reasoning);
  EXPECT_FALSE(plain.begin_after("").may_reason);
  const auto qwen3 = *MessageFormat::make("", "qwen3", "");
  EXPECT_TRUE(qwen3.begin_after("<|im_start|>assistant\n<think>\n").in_reasoning);
  EXPECT_FALSE(qwen3.begin_after("<|im_start|>assistant\n").in_reasoning);
  EXPECT_TRUE(qwen3.begin_after("<|im_start|>assistant\n").may_reason);
  EXPECT_FALSE(qwen3.begin_after("<|im_start|>assistant\n<think>\n\n</think>\n\n").may_reason);
  ASSERT_EQ(qwen3.reasoning_ends().size(), 1u);
  EXPECT_EQ(qwen3.reasoning_ends().front(), "</think>");
  EXPECT_TRUE(plain.reasoning_ends().empty());
  const auto deepseek = *MessageFormat::make("", "deepseek_r1", "");
  EXPECT_TRUE(deepseek.begin_after("Assistant:").in_reasoning);
  EXPECT_FALSE(deepseek.begin_after("Assistant:</think>").in_reasoning);
  // DeepSeek V3.1 answers a tool's result without a new turn, and without reasoning.
  const auto v31 = *MessageFormat::make("", "deepseek_v3", "");
  EXPECT_FALSE(v31.begin_after("18 degrees<\uFF5Ctool\u2581output\u2581end\uFF5C>").in_reasoning);
  EXPECT_TRUE(v31.begin_after("<\uFF5CAssistant\uFF5C><think>").in_reasoning);
  const auto kimi = *MessageFormat::make("", "kimi_k2", "");
  EXPECT_TRUE(kimi.begin_after("<|im_assistant|>assistant<|im_middle|>").in_reasoning);
  EXPECT_FALSE(kimi.begin_after("<|im_assistant|>assistant<|im_middle|><think></think>").may_reason);
}

TEST(MessageFormat, names_the_markers_that_may_be_special_tokens) {
  const auto format = *MessageFormat::make("mistral", "qwen3", "");
  EXPECT_EQ(std::vector<std::string>(format.markers().begin(), format.markers().end()),
            (std::vector<std::string>{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<think>", "</think>"}));
}

}  // namespace
}  // namespace baton::parsers
