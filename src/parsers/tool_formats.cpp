/// Rows of markers. Sources: the models' chat templates, and vLLM's documentation of its parsers for the names.
#include "parsers/tool_formats.h"

#include <algorithm>
#include <array>

#include "core/utf8.h"
#include "parsers/glm_calls.h"
#include "parsers/harmony/header.h"
#include "parsers/json_calls.h"
#include "parsers/python_calls.h"
#include "parsers/section_calls.h"
#include "parsers/xml_calls.h"

namespace baton::parsers {

namespace {

using Texts = std::string_view;

constexpr std::array<Texts, 1> kToolCall{"<tool_call>"};
constexpr std::array<Texts, 1> kEndToolCall{"</tool_call>"};
constexpr std::array<Texts, 2> kXmlBegins{"<tool_call>", XmlCalls::kFunction};
constexpr std::array<Texts, 2> kSeedBegins{"<seed:tool_call>", XmlCalls::kFunction};
constexpr std::array<Texts, 1> kSeedCloses{"</seed:tool_call>"};
constexpr std::array<Texts, 1> kMistralBegins{"[TOOL_CALLS]"};
constexpr std::array<Texts, 2> kMistralCloses{"[ARGS]", "[CALL_ID]"};
constexpr std::array<Texts, 2> kGraniteBegins{"<|tool_call|>", "<tool_call>"};
constexpr std::array<Texts, 1> kPythonTag{"<|python_tag|>"};
constexpr std::array<Texts, 1> kPythonBegins{PythonCalls::kStart};
constexpr std::array<Texts, 1> kPythonCloses{PythonCalls::kEnd};
constexpr std::array<Texts, 1> kLfm2Begins{"<|tool_call_start|>"};
constexpr std::array<Texts, 1> kLfm2Closes{"<|tool_call_end|>"};
constexpr std::array<Texts, 1> kFunctools{"functools"};
constexpr std::array<Texts, 1> kCohereBegins{"<|START_ACTION|>"};
constexpr std::array<Texts, 1> kCohereCloses{"<|END_ACTION|>"};
constexpr std::array<Texts, 2> kDeepSeekBegins{"<\uFF5Ctool\u2581calls\u2581begin\uFF5C>",
                                               "<\uFF5Ctool\u2581call\u2581begin\uFF5C>"};
constexpr std::array<Texts, 3> kDeepSeekCloses{"<\uFF5Ctool\u2581calls\u2581end\uFF5C>",
                                               "<\uFF5Ctool\u2581call\u2581end\uFF5C>", "<\uFF5Ctool\u2581sep\uFF5C>"};
constexpr std::array<Texts, 3> kKimiBegins{"<|tool_calls_section_begin|>", "<|tool_call_section_begin|>",
                                           "<|tool_call_begin|>"};
constexpr std::array<Texts, 4> kKimiCloses{"<|tool_calls_section_end|>", "<|tool_call_section_end|>", "<|tool_call_end|>",
                                           "<|tool_call_argument_begin|>"};

bool writes_any_name(std::string_view /*name*/) { return true; }
bool writes_tag_name(std::string_view name) {
  return std::none_of(name.begin(), name.end(), [](unsigned char c) {
    return c <= ' ' || std::string_view("<>[]{}\"").find(static_cast<char>(c)) != std::string_view::npos;
  });
}
bool writes_line_name(std::string_view name) { return writes_tag_name(name) && name.find('`') == std::string_view::npos; }
bool writes_python_name(std::string_view name) { return ascii::consists_of(name, "_.-"); }

using Tools = std::shared_ptr<const ToolIndex>;
std::unique_ptr<CallReader> hermes_reader(Tools /*tools*/) {
  return std::make_unique<JsonCalls>(JsonCallStyle{.is_object = true, .close = "</tool_call>"});
}
std::unique_ptr<CallReader> list_reader(Tools /*tools*/) { return std::make_unique<JsonCalls>(JsonCallStyle{.is_list = true}); }
std::unique_ptr<CallReader> mistral_reader(Tools /*tools*/) {
  return std::make_unique<JsonCalls>(JsonCallStyle{.is_list = true, .is_named = true});
}
std::unique_ptr<CallReader> llama_reader(Tools /*tools*/) {
  return std::make_unique<JsonCalls>(JsonCallStyle{.is_object = true, .separator = ';'});
}
std::unique_ptr<CallReader> plain_json_reader(Tools /*tools*/) {
  return std::make_unique<JsonCalls>(JsonCallStyle{.is_list = true, .is_object = true});
}
std::unique_ptr<CallReader> cohere_reader(Tools /*tools*/) {
  return std::make_unique<JsonCalls>(JsonCallStyle{.is_list = true, .close = kCohereCloses[0]});
}
std::unique_ptr<CallReader> xml_reader(Tools tools) { return std::make_unique<XmlCalls>(std::move(tools), kEndToolCall[0]); }
std::unique_ptr<CallReader> seed_reader(Tools tools) { return std::make_unique<XmlCalls>(std::move(tools), kSeedCloses[0]); }
std::unique_ptr<CallReader> glm_reader(Tools tools) { return std::make_unique<GlmCalls>(std::move(tools)); }
std::unique_ptr<CallReader> python_reader(Tools /*tools*/) { return std::make_unique<PythonCalls>(PythonCalls::kEnd); }
std::unique_ptr<CallReader> lfm2_reader(Tools /*tools*/) { return std::make_unique<PythonCalls>(kLfm2Closes[0]); }
std::unique_ptr<CallReader> deepseek_reader(Tools /*tools*/) {
  return std::make_unique<SectionCalls>(SectionCallStyle{.call = kDeepSeekBegins[1],
                                                         .arguments = kDeepSeekCloses[2],
                                                         .end_of_call = kDeepSeekCloses[1],
                                                         .section_ends = std::span(kDeepSeekCloses).first(1)});
}
std::unique_ptr<CallReader> kimi_reader(Tools /*tools*/) {
  return std::make_unique<SectionCalls>(SectionCallStyle{.call = kKimiBegins[2],
                                                         .arguments = kKimiCloses[3],
                                                         .end_of_call = kKimiCloses[2],
                                                         .section_ends = std::span(kKimiCloses).first(2),
                                                         .is_numbered = true});
}

constexpr CallTexts listed(std::string_view open) {
  return {.open = open,
          .call_begin = R"({"name": )",
          .call_middle = R"(, "arguments": )",
          .call_end = "}",
          .separator = ", ",
          .close = "]"};
}

ToolFormat mistral(std::vector<std::string_view> shows, const CallTexts& texts, bool (*can_write_name)(std::string_view)) {
  return {.name = "mistral",
          .alias = "",
          .begin = {.markers = kMistralBegins, .first = ""},
          .closes = kMistralCloses,
          .shows = std::move(shows),
          .never_shows = {},
          .texts = texts,
          .can_write_name = can_write_name,
          .reader = mistral_reader};
}

/// A marker and a list after it.
ToolFormat marked_list(std::string_view name, std::span<const Texts> markers, std::string_view shows, std::string_view open) {
  return {.name = name,
          .alias = "",
          .begin = {.markers = markers, .first = ""},
          .closes = {},
          .shows = {shows},
          .never_shows = {},
          .texts = listed(open),
          .can_write_name = writes_any_name,
          .reader = list_reader};
}

ToolFormat cohere() {
  return {.name = "cohere_command3",
          .alias = "",
          .begin = {.markers = kCohereBegins, .first = ""},
          .closes = kCohereCloses,
          .shows = {"<|START_ACTION|>", R"("tool_name")", R"("parameters")"},
          .never_shows = {},
          .texts = {.open = "<|START_ACTION|>[\n    ",
                    .call_begin = R"({"tool_name": )",
                    .call_middle = R"(, "parameters": )",
                    .call_end = "}",
                    .separator = ",\n    ",
                    .close = "\n]<|END_ACTION|>"},
          .can_write_name = writes_any_name,
          .reader = cohere_reader};
}

ToolFormat seed_oss() {
  return {.name = "seed_oss",
          .alias = "",
          .begin = {.markers = kSeedBegins, .first = ""},
          .closes = kSeedCloses,
          .shows = {"<seed:tool_call>", "<function=", "<parameter="},
          .never_shows = {},
          .texts = {.call_begin = "<seed:tool_call>\n<function=",
                    .call_middle = ">",
                    .call_end = "</function>\n</seed:tool_call>",
                    .separator = "\n",
                    .arguments = ArgumentStyle::xml,
                    .is_name_quoted = false},
          .can_write_name = writes_tag_name,
          .reader = seed_reader};
}

ToolFormat glm() {
  return {.name = "glm45",
          .alias = "glm47",
          .begin = {.markers = kToolCall, .first = ""},
          .closes = kEndToolCall,
          .shows = {"<tool_call>", "<arg_key>", "<arg_value>"},
          .never_shows = {},
          .texts = {.call_begin = "<tool_call>",
                    .call_middle = "",
                    .call_end = "</tool_call>",
                    .separator = "\n",
                    .arguments = ArgumentStyle::glm,
                    .is_name_quoted = false},
          .can_write_name = writes_tag_name,
          .reader = glm_reader};
}

/// A section of calls; `texts` without its tags.
ToolFormat deepseek(std::string_view name, std::vector<std::string_view> shows, std::vector<std::string_view> never_shows,
                    CallTexts texts) {
  texts.open = kDeepSeekBegins[0];
  texts.close = kDeepSeekCloses[0];
  texts.is_name_quoted = false;
  return {.name = name,
          .alias = "",
          .begin = {.markers = kDeepSeekBegins, .first = ""},
          .closes = kDeepSeekCloses,
          .shows = std::move(shows),
          .never_shows = std::move(never_shows),
          .texts = texts,
          .can_write_name = writes_line_name,
          .reader = deepseek_reader};
}

ToolFormat deepseek_v3() {
  return deepseek("deepseek_v3", {kDeepSeekBegins[0], kDeepSeekCloses[2], "```json"}, {},
                  {.call_begin = "<\uFF5Ctool\u2581call\u2581begin\uFF5C>function<\uFF5Ctool\u2581sep\uFF5C>",
                   .call_middle = "\n```json\n",
                   .call_end = "\n```<\uFF5Ctool\u2581call\u2581end\uFF5C>",
                   .separator = "\n"});
}

ToolFormat deepseek_v31() {
  return deepseek("deepseek_v31", {kDeepSeekBegins[0], kDeepSeekCloses[2]}, {"```json"},
                  {.call_begin = kDeepSeekBegins[1], .call_middle = kDeepSeekCloses[2], .call_end = kDeepSeekCloses[1]});
}

ToolFormat kimi_k2() {
  return {.name = "kimi_k2",
          .alias = "",
          .begin = {.markers = kKimiBegins, .first = ""},
          .closes = kKimiCloses,
          .shows = {kKimiBegins[0], kKimiCloses[3]},
          .never_shows = {},
          .texts = {.open = kKimiBegins[0],
                    .call_begin = "<|tool_call_begin|>functions.",
                    .call_middle = ":",
                    .after_number = kKimiCloses[3],
                    .call_end = kKimiCloses[2],
                    .close = kKimiCloses[0],
                    .is_name_quoted = false},
          .can_write_name = writes_line_name,
          .reader = kimi_reader};
}

/// The templates show the model its tools, and no calls.
ToolFormat lfm2() {
  return {.name = "lfm2",
          .alias = "",
          .begin = {.markers = kLfm2Begins, .first = ""},
          .closes = kLfm2Closes,
          .shows = {"List of tools: ", "<|im_start|>"},
          .never_shows = {},
          .texts = {.open = "<|tool_call_start|>[",
                    .call_begin = "",
                    .call_middle = "(",
                    .call_end = ")",
                    .separator = ", ",
                    .close = "]<|tool_call_end|>",
                    .arguments = ArgumentStyle::python,
                    .is_name_quoted = false},
          .can_write_name = writes_python_name,
          .reader = lfm2_reader};
}

std::vector<std::string_view> harmony_shows() {
  return {harmony::kStart, harmony::kChannel, harmony::kMessage, harmony::kEnd, harmony::kReturn};
}

ToolFormat openai() {
  return {.name = "openai",
          .alias = "gpt-oss",
          .begin = {.markers = {}, .first = ""},
          .closes = {},
          .shows = harmony_shows(),
          .never_shows = {},
          .texts = {.call_begin = "<|channel|>commentary to=functions.",
                    .call_middle = " <|constrain|>json<|message|>",
                    .is_name_quoted = false},
          .can_write_name = writes_tag_name,
          .reader = nullptr,
          .is_harmony = true};
}

}  // namespace

std::span<const ToolFormat> tool_formats() {
  static const std::vector<ToolFormat> kFormats{
      {.name = "qwen3_coder",
       .alias = "qwen3_xml",
       .begin = {.markers = kXmlBegins, .first = ""},
       .closes = kEndToolCall,
       .shows = {"<tool_call>", "<function=", "<parameter="},
       .never_shows = {},
       .texts = {.call_begin = "<tool_call>\n<function=",
                 .call_middle = ">",
                 .call_end = "</function>\n</tool_call>",
                 .separator = "\n",
                 .arguments = ArgumentStyle::xml,
                 .is_name_quoted = false},
       .can_write_name = writes_tag_name,
       .reader = xml_reader},
      mistral({"[TOOL_CALLS]", "[ARGS]"}, {.call_begin = "[TOOL_CALLS]", .call_middle = "[ARGS]", .is_name_quoted = false},
              writes_tag_name),
      mistral({"[TOOL_CALLS] ["}, listed("[TOOL_CALLS] ["), writes_any_name),
      mistral({"[TOOL_CALLS]"}, listed("[TOOL_CALLS]["), writes_any_name),
      marked_list("granite", kGraniteBegins, "<|tool_call|>", "<|tool_call|>["),
      marked_list("phi4_mini_json", kFunctools, "functools[", "functools["),
      {.name = "hermes",
       .alias = "",
       .begin = {.markers = kToolCall, .first = ""},
       .closes = kEndToolCall,
       .shows = {"<tool_call>", "</tool_call>", "arguments"},
       .never_shows = {"<arg_key>", "<tool_calls>"},
       .texts = {.call_begin = "<tool_call>\n{\"name\": ",
                 .call_middle = R"(, "arguments": )",
                 .call_end = "}\n</tool_call>",
                 .separator = "\n"},
       .can_write_name = writes_any_name,
       .reader = hermes_reader},
      {.name = "pythonic",
       .alias = "llama4_pythonic",
       .begin = {.markers = kPythonBegins, .first = "["},
       .closes = kPythonCloses,
       .shows = {"[func_name1("},
       .never_shows = {},
       .texts = {.open = "[",
                 .call_begin = "",
                 .call_middle = "(",
                 .call_end = ")",
                 .separator = ", ",
                 .close = "]",
                 .arguments = ArgumentStyle::python,
                 .is_name_quoted = false},
       .can_write_name = writes_python_name,
       .reader = python_reader},
      {.name = "llama3_json",
       .alias = "llama4_json",
       .begin = {.markers = kPythonTag, .first = "{"},
       .closes = {},
       .shows = {R"({"name": function name, "parameters": )"},
       .never_shows = {},
       .texts = {.call_begin = R"({"name": )", .call_middle = R"(, "parameters": )", .call_end = "}", .separator = "; "},
       .can_write_name = writes_any_name,
       .reader = llama_reader},
      {.name = "json",
       .alias = "",
       .begin = {.markers = {}, .first = "{["},
       .closes = {},
       .shows = {},
       .never_shows = {},
       .texts = listed("["),
       .can_write_name = writes_any_name,
       .reader = plain_json_reader},
      cohere(),
      seed_oss(),
      glm(),
      deepseek_v3(),
      deepseek_v31(),
      kimi_k2(),
      lfm2(),
      openai(),
  };
  return kFormats;
}

namespace {

constexpr std::array<Texts, 1> kThink{"<think>"};
constexpr std::array<Texts, 1> kEndThink{"</think>"};
constexpr Texts kDeepSeekAssistant = "<\uFF5CAssistant\uFF5C>";
constexpr std::array<Texts, 1> kSeedThink{"<seed:think>"};
constexpr std::array<Texts, 1> kSeedEndThink{"</seed:think>"};
constexpr std::array<Texts, 1> kMistralThink{"[THINK]"};
constexpr std::array<Texts, 1> kMistralEndThink{"[/THINK]"};
constexpr std::array<Texts, 1> kCohereThink{"<|START_THINKING|>"};
constexpr std::array<Texts, 1> kCohereEndThink{"<|END_THINKING|>"};
constexpr std::array<Texts, 3> kGraniteThink{"<think>", "Here is my thought process:", "Here's my thought process:"};
constexpr std::array<Texts, 3> kGraniteEndThink{"</think>", "Here is my response:", "Here's my response:"};

}  // namespace

std::span<const ReasoningFormat> reasoning_formats() {
  static const std::vector<ReasoningFormat> kFormats{
      {.name = "mistral",
       .markers = {.opens = kMistralThink, .closes = kMistralEndThink},
       .shows = {"[THINK]"},
       .never_shows = {},
       .is_implied = false},
      {.name = "granite",
       .markers =
           {.opens = kGraniteThink, .closes = kGraniteEndThink, .answer_open = "<response>", .answer_close = "</response>"},
       .shows = {"<think>", "<response>"},
       .never_shows = {},
       .is_implied = false},
      {.name = "granite",
       .markers =
           {.opens = kGraniteThink, .closes = kGraniteEndThink, .answer_open = "<response>", .answer_close = "</response>"},
       .shows = {"Here is my thought process:"},
       .never_shows = {},
       .is_implied = false},
      {.name = "deepseek_v3",
       .markers = {.opens = kThink, .closes = kEndThink},
       .shows = {"</think>", kDeepSeekAssistant, "thinking is defined"},
       .never_shows = {},
       .is_implied = false},
      {.name = "deepseek_r1",
       .markers = {.opens = kThink, .closes = kEndThink},
       .shows = {"</think>", kDeepSeekAssistant},
       .never_shows = {},
       .is_implied = true},
      {.name = "kimi_k2",
       .markers = {.opens = kThink, .closes = kEndThink},
       .shows = {"</think>", "<|im_middle|>"},
       .never_shows = {},
       .is_implied = true},
      {.name = "cohere_command3",
       .markers = {.opens = kCohereThink,
                   .closes = kCohereEndThink,
                   .answer_open = "<|START_RESPONSE|>",
                   .answer_close = "<|END_RESPONSE|>"},
       .shows = {"<|START_THINKING|>", "<|START_RESPONSE|>"},
       .never_shows = {},
       .is_implied = false},
      {.name = "qwen3",
       .markers = {.opens = kThink, .closes = kEndThink},
       .shows = {"</think>"},
       .never_shows = {},
       .is_implied = false},
      {.name = "seed_oss",
       .markers = {.opens = kSeedThink, .closes = kSeedEndThink},
       .shows = {"</seed:think>"},
       .never_shows = {},
       .is_implied = false},
      {.name = "openai_gptoss",
       .markers = {.opens = {}, .closes = {}},
       .shows = harmony_shows(),
       .never_shows = {},
       .is_implied = false,
       .is_harmony = true},
  };
  return kFormats;
}

}  // namespace baton::parsers
