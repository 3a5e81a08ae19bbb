/// Rows of markers. Sources: the models' chat templates, and vLLM's documentation of its parsers for the names.
#include "parsers/tool_formats.h"

#include <algorithm>
#include <array>

#include "parsers/json_calls.h"
#include "parsers/python_calls.h"
#include "parsers/xml_calls.h"

namespace baton::parsers {

namespace {

using Texts = std::string_view;

constexpr std::array<Texts, 1> kToolCall{"<tool_call>"};
constexpr std::array<Texts, 1> kEndToolCall{"</tool_call>"};
constexpr std::array<Texts, 2> kXmlBegins{"<tool_call>", XmlCalls::kFunction};
constexpr std::array<Texts, 1> kMistralBegins{"[TOOL_CALLS]"};
constexpr std::array<Texts, 2> kMistralCloses{"[ARGS]", "[CALL_ID]"};
constexpr std::array<Texts, 2> kGraniteBegins{"<|tool_call|>", "<tool_call>"};
constexpr std::array<Texts, 1> kPythonTag{"<|python_tag|>"};
constexpr std::array<Texts, 1> kPythonBegins{PythonCalls::kStart};
constexpr std::array<Texts, 1> kPythonCloses{PythonCalls::kEnd};
constexpr std::array<Texts, 1> kFunctools{"functools"};

bool writes_any_name(std::string_view /*name*/) { return true; }
bool writes_tag_name(std::string_view name) {
  return std::none_of(name.begin(), name.end(), [](unsigned char c) {
    return c <= ' ' || std::string_view("<>[]{}\"").find(static_cast<char>(c)) != std::string_view::npos;
  });
}
bool writes_python_name(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
}

using Tools = std::shared_ptr<const std::vector<Tool>>;
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
std::unique_ptr<CallReader> xml_reader(Tools tools) { return std::make_unique<XmlCalls>(std::move(tools)); }
std::unique_ptr<CallReader> python_reader(Tools /*tools*/) { return std::make_unique<PythonCalls>(); }

constexpr CallTexts kListed{
    .call_begin = R"({"name": )", .call_middle = R"(, "arguments": )", .call_end = "}", .separator = ", ", .close = "]"};

constexpr CallTexts listed(std::string_view open) {
  CallTexts texts = kListed;
  texts.open = open;
  return texts;
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
                 .call_middle = ">\n",
                 .call_end = "</function>\n</tool_call>",
                 .separator = "\n",
                 .arguments = ArgumentStyle::xml},
       .can_write_name = writes_tag_name,
       .reader = xml_reader},
      {.name = "mistral",
       .alias = "",
       .begin = {.markers = kMistralBegins, .first = ""},
       .closes = kMistralCloses,
       .shows = {"[TOOL_CALLS]", "[ARGS]"},
       .never_shows = {},
       .texts = {.call_begin = "[TOOL_CALLS]", .call_middle = "[ARGS]"},
       .can_write_name = writes_tag_name,
       .reader = mistral_reader},
      {.name = "mistral",
       .alias = "",
       .begin = {.markers = kMistralBegins, .first = ""},
       .closes = kMistralCloses,
       .shows = {"[TOOL_CALLS]"},
       .never_shows = {},
       .texts = listed("[TOOL_CALLS] ["),
       .can_write_name = writes_any_name,
       .reader = mistral_reader},
      {.name = "granite",
       .alias = "",
       .begin = {.markers = kGraniteBegins, .first = ""},
       .closes = {},
       .shows = {"<|tool_call|>"},
       .never_shows = {},
       .texts = listed("<|tool_call|>["),
       .can_write_name = writes_any_name,
       .reader = list_reader},
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
                 .arguments = ArgumentStyle::python},
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
      {.name = "phi4_mini_json",
       .alias = "",
       .begin = {.markers = kFunctools, .first = ""},
       .closes = {},
       .shows = {"functools["},
       .never_shows = {},
       .texts = listed("functools["),
       .can_write_name = writes_any_name,
       .reader = list_reader},
      {.name = "json",
       .alias = "",
       .begin = {.markers = {}, .first = "{["},
       .closes = {},
       .shows = {},
       .never_shows = {},
       .texts = listed("["),
       .can_write_name = writes_any_name,
       .reader = plain_json_reader},
  };
  return kFormats;
}

namespace {

constexpr std::array<Texts, 1> kThink{"<think>"};
constexpr std::array<Texts, 1> kEndThink{"</think>"};
constexpr std::array<Texts, 1> kMistralThink{"[THINK]"};
constexpr std::array<Texts, 1> kMistralEndThink{"[/THINK]"};
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
      {.name = "deepseek_r1",
       .markers = {.opens = kThink, .closes = kEndThink},
       .shows = {"</think>",
                 "<\xEF\xBD\x9C"
                 "Assistant\xEF\xBD\x9C>"},
       .never_shows = {},
       .is_implied = true},
      {.name = "qwen3",
       .markers = {.opens = kThink, .closes = kEndThink},
       .shows = {"</think>"},
       .never_shows = {},
       .is_implied = false},
  };
  return kFormats;
}

}  // namespace baton::parsers
