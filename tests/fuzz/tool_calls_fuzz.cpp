/// Fuzzes what a client's tools and a model's calls of them meet: a list of tools with drawn schemas is read as the server reads it, and
/// an answer that is drawn from the texts of a format is parsed whole and in parts, streamed or for an answer in one piece, and ended by
/// the model or cut. No cut into parts changes what is returned, reading the tools stays within its budget, and no case takes more than
/// what support/case_limits.h says.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/check.h"
#include "core/limits/work_budget.h"
#include "io/json.h"
#include "parsers/message_format.h"
#include "parsers/tool_formats.h"
#include "server/request/tool_fields.h"
#include "support/case_limits.h"
#include "support/drawn.h"
#include "support/message_cuts.h"
#include "support/message_pieces.h"

namespace {

using namespace baton;
using test::Drawn;

constexpr std::size_t kMaxAnswerBytes = std::size_t{1} << 19;
constexpr std::array<std::string_view, 5> kNames{"f", "g", "get_weather", "a.b", "x"};
constexpr std::array<std::string_view, 5> kArguments{"a", "b", "city", "0", "long name"};
constexpr std::array<std::string_view, 26> kValues{
    "1", "-0.5e3", "true", "null", "None", R"("text")", R"({"a": [1, {}]})", "[]", "[[[", R"({"a":)", "'it''s'", "True",
    // what models write and parsers mend
    R"("C:\Users\d+")", R"(["\u12", "\ud83d", "\ud83d\ude00",])", R"({"\w": False, })", R"('a' "b" r'\d')", R"(r"\"")",
    R"('\x4\U0001f600\u00e')", "('a', 'b',)", "{'a': None,}", "f'''{x}'''", R"("\)", "[1, ", "r", "'a'  ",
    "123456789012345678901234567890"};
constexpr std::array<std::string_view, 17> kBits{"<",  "\"", "\\", "{",       "[", "</", "\n", "\\u", "</parameter",
                                                 "[T", ",",  "'",  "\\ud83d", "}", "]",  "r'", "\\'"};

/// A tool list as JSON text. What is repeated may be large, up to the limit of the server and beyond.
class ToolText {
 public:
  explicit ToolText(Drawn& drawn) : drawn_(drawn) {}

  std::string draw() {
    text_ = R"({"tools":[)";
    const std::size_t n = 1 + drawn_.count(2000);
    for (std::size_t i = 0; i < n && is_small(); ++i) {
      text_ += i > 0 ? "," : "";
      const std::string name = i < kNames.size() ? std::string(kNames[i]) : fmt::format("t{}", drawn_.is() ? i : 0);
      text_ += fmt::format(R"({{"function":{{"name":"{}","strict":{},"parameters":{{)", name, drawn_.is());
      parameters();
      text_ += "}}";
      members(drawn_.count(100'000));
      text_ += "}";
    }
    return text_ + "]" + choice() + "}";
  }

 private:
  bool is_small() const { return text_.size() < kMaxToolBytes; }

  std::string choice() {
    switch (drawn_.below(5)) {
      case 0: return R"(,"tool_choice":"required")";
      case 1: return R"(,"tool_choice":{"type":"function","function":{"name":"g"}})";
      case 2: {
        std::string text = R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[)";
        for (std::size_t i = drawn_.count(2000); i > 0; --i) text += R"({"function":{"name":"f"}},)";
        return text + R"({"function":{"name":"f"}}]}})";
      }
      default: return "";
    }
  }
  void members(std::size_t n) {
    for (std::size_t i = 0; i < n && is_small(); ++i) text_ += fmt::format(R"(,"m{}":0)", i);
  }
  void parameters() {
    text_ += R"("properties":{)";
    schemas(kArguments, 1 + drawn_.count(60'000));
    text_ += drawn_.is() ? R"(},"$defs":{)" : R"(},"definitions":{)";
    schemas(kNames, 2 + drawn_.count(60'000));
    text_ += "}";
    members(drawn_.count(60'000));
    if (drawn_.is()) text_ += R"(,"type":"object")";
  }
  /// Named schemas, of which most are the same.
  void schemas(std::span<const std::string_view> names, std::size_t n) {
    std::string one;
    for (std::size_t i = 0; i < n && is_small(); ++i) {
      if (i < names.size()) one = schema(0);
      text_ += i > 0 ? "," : "";
      text_ += i < names.size() ? fmt::format(R"("{}":{})", names[i], one) : fmt::format(R"("{}":{})", i, one);
    }
  }
  std::string schema(int depth) {
    static constexpr std::array<std::string_view, 10> kLeaves{R"({"type":"string"})",
                                                              R"({"type":"integer"})",
                                                              R"({"type":["null","array"]})",
                                                              "{}",
                                                              "true",
                                                              R"({"const":{}})",
                                                              R"({"enum":[1,"a"]})",
                                                              R"({"type":"object"})",
                                                              R"({"type":7})",
                                                              R"({"anyOf":1})"};
    // Mostly to one of the few definitions that there are, so that schemas meet each other again.
    static constexpr std::array<std::string_view, 10> kRefs{
        "#/$defs/f",       "#/$defs/g", "#/$defs/f", "#/$defs/g",      "#/definitions/f",
        "#/definitions/g", "#",         "#/$defs/x", "#/properties/a", "other"};
    static constexpr std::array<std::string_view, 3> kLists{"anyOf", "oneOf", "allOf"};
    switch (depth > 6 ? 0 : drawn_.below(6)) {
      case 0: return std::string(drawn_.of(kLeaves));
      case 1:
      case 2: return fmt::format(R"({{"$ref":"{}"}})", drawn_.of(kRefs));
      case 3: return drawn_.is() ? schema(7) : fmt::format(R"({{"$ref":"#/$defs/{}"}})", drawn_.below(1000));
      default: {
        const std::string_view list = drawn_.of(kLists);
        const std::string first = schema(depth + 1), other = schema(depth + 1);
        std::string text = fmt::format(R"({{"{}":[{})", list, first);
        for (std::size_t i = drawn_.count(100'000); i > 0 && text.size() < kMaxToolBytes; --i) text += "," + other;
        return text + "]}";
      }
    }
  }

  Drawn& drawn_;
  std::string text_;
};

/// An answer in the texts of a format: calls that are mostly right, pieces of markers, and anything.
class AnswerText {
 public:
  AnswerText(Drawn& drawn, const parsers::ToolFormat& format, const parsers::ReasoningFormat* reasoning)
      : drawn_(drawn), format_(format) {
    const auto add = [&](std::string_view text) {
      if (!text.empty()) texts_.push_back(text);
    };
    for (const std::string_view text : format.begin.markers) add(text);
    for (const std::string_view text : format.closes) add(text);
    const parsers::CallTexts& calls = format.texts;
    for (const std::string_view text :
         {calls.open, calls.call_begin, calls.call_middle, calls.after_number, calls.call_end, calls.separator, calls.close})
      add(text);
    if (format.is_harmony)
      for (const std::string_view text :
           {"<|start|>assistant", "<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|end|>", "<|return|>",
            "<|call|>", "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"})
        add(text);
    if (reasoning != nullptr) {
      for (const std::string_view text : reasoning->markers.opens) add(text);
      for (const std::string_view text : reasoning->markers.closes) add(text);
      add(reasoning->markers.answer_open);
      add(reasoning->markers.answer_close);
    }
    for (const std::string_view text : {"<parameter=", "</parameter>", "<function=", "</function>", "</tool_call>", "<arg_key>",
                                        "</arg_key>", "<arg_value>", "</arg_value>"})
      add(text);
  }

  std::string draw() {
    for (std::size_t i = drawn_.below(24); i > 0 && text_.size() < kMaxAnswerBytes; --i) part();
    return std::move(text_);
  }

 private:
  void part() {
    switch (drawn_.below(6)) {
      case 0: text_ += drawn_.raw(16); break;
      case 1: text_ += texts_[drawn_.below(texts_.size())]; break;
      case 2: {
        const std::string_view text = texts_[drawn_.below(texts_.size())];
        repeat(text.substr(0, drawn_.below(text.size() + 1)));
        break;
      }
      case 3: repeat(drawn_.of(kBits)); break;
      case 4: repeat(call()); break;
      default: text_ += fmt::format("{}{}{}", format_.texts.open, call(), format_.texts.close);
    }
  }
  void repeat(std::string_view text) {
    const std::size_t n = 1 + drawn_.count(100'000);
    for (std::size_t i = 0; i < n && text_.size() < kMaxAnswerBytes; ++i) text_ += text;
  }
  std::string value() {
    std::string text(drawn_.of(kValues));
    if (drawn_.below(4) != 0) return text;
    const std::string_view bit = drawn_.of(kBits);
    for (std::size_t i = drawn_.count(100'000); i > 0; --i) text += bit;
    return text;
  }
  std::string argument() {
    const std::string_view name = drawn_.of(kArguments);
    switch (format_.texts.arguments) {
      case parsers::ArgumentStyle::xml: return fmt::format("<parameter={}>\n{}\n</parameter>\n", name, value());
      case parsers::ArgumentStyle::glm: return fmt::format("<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n", name, value());
      case parsers::ArgumentStyle::python: return fmt::format("{}={}, ", name, value());
      case parsers::ArgumentStyle::json: break;
    }
    return fmt::format("\"{}\": {}, ", name, value());
  }
  std::string call() {
    const parsers::CallTexts& texts = format_.texts;
    const std::string_view name = drawn_.of(kNames);
    std::string arguments;
    for (std::size_t i = drawn_.count(4); i > 0; --i) arguments += argument();
    if (texts.arguments == parsers::ArgumentStyle::json)
      arguments = "{" + arguments.substr(0, arguments.size() - std::min<std::size_t>(2, arguments.size())) + "}";
    const std::string number = texts.after_number.empty() ? "" : fmt::format("{}{}", drawn_.below(20), texts.after_number);
    return fmt::format("{}{}{}{}{}{}", texts.call_begin, texts.is_name_quoted ? fmt::format("\"{}\"", name) : std::string(name),
                       texts.call_middle, number, arguments, texts.call_end);
  }

  Drawn& drawn_;
  const parsers::ToolFormat& format_;
  std::vector<std::string_view> texts_;
  std::string text_;
};

/// What the server does with the tools of a request, up to the compiling of the grammar. Null: they are refused.
std::shared_ptr<const parsers::ToolIndex> read_tools(const std::string& body, const parsers::MessageFormat& format) {
  const auto parsed = json::parse(body, "the body");
  check(parsed.has_value(), "a drawn body is no JSON");
  const auto fields = parse_tool_fields(*parsed);
  if (!fields) {
    check(!fields.error().message.empty() && !fields.error().param.empty(), "a refusal without a reason");
    return nullptr;
  }
  const auto grammar = format.grammar({.tools = *fields->tools, .choice = fields->choice, .is_parallel = fields->is_parallel});
  check(grammar.has_value() || !grammar.error().message.empty(), "a refusal without a reason");
  WorkBudget budget(kToolLimits);
  auto index = format.index(*fields->tools, budget);
  check(index.has_value(), "tools within their limits need more work than their limit");
  for (const parsers::Tool& tool : *fields->tools) check((*index)->find(tool.name) != nullptr, "a tool is not found");
  return *index;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const test::CaseLimits limits;
  Drawn drawn(data, size, test::BehindBytes::pseudo_random);
  const auto formats = parsers::tool_formats();
  const auto reasonings = parsers::reasoning_formats();
  const parsers::ToolFormat& row = formats[drawn.below(formats.size())];
  const std::size_t reasoning = drawn.below(2 * reasonings.size());
  const parsers::ReasoningFormat* const reasoner = reasoning < reasonings.size() ? &reasonings[reasoning] : nullptr;
  const auto format = parsers::MessageFormat::make(row.name, reasoner == nullptr ? "" : reasoner->name, "");
  if (!format) return 0;  // parsers of two formats
  parsers::AnswerReading reading{.begins_in_reasoning = drawn.is(),
                                 .has_calls_first = drawn.below(4) == 1,
                                 .demands_calls = drawn.below(8) == 1,
                                 .is_whole = drawn.is(),
                                 .is_parallel = drawn.below(4) != 1};
  const parsers::TextEnd end = drawn.is() ? parsers::TextEnd::natural : parsers::TextEnd::cut;
  const std::size_t seed = drawn.byte();
  reading.tools = read_tools(ToolText(drawn).draw(), *format);
  if (reading.tools == nullptr) return 0;
  const std::string text = AnswerText(drawn, row, reasoner).draw();
  const auto whole = testing::parsed(format->parser(reading), {text}, end);
  check(testing::parsed(format->parser(reading), testing::cut(text, seed), end) == whole, "a cut changes an answer");
  testing::check_pieces(whole, {.text = text,
                                .may_reason = reasoner != nullptr,
                                .is_natural = end == parsers::TextEnd::natural,
                                .demands_calls = reading.demands_calls,
                                .is_whole = reading.is_whole && reading.is_parallel,
                                .is_harmony = !format->stops().empty()});
  return 0;
}
