/// Choosing formats by name or from a template, and putting parsers together.
#include "parsers/message_format.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parsers/reasoning_parser.h"
#include "parsers/tool_call_parser.h"
#include "parsers/tool_formats.h"
#include "parsers/tool_grammar.h"

namespace baton::parsers {

namespace {

class PlainParser : public MessageParser {
 public:
  void take(std::string_view text, std::vector<MessagePiece>& pieces) override {
    if (!text.empty()) pieces.push_back({.text = std::string(text)});
  }
  void end(TextEnd /*how*/, std::vector<MessagePiece>& /*pieces*/) override {}
};

template <class Format>
bool is_shown(const Format& format, std::string_view chat_template) {
  const auto is_in_it = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  return !format.shows.empty() && std::all_of(format.shows.begin(), format.shows.end(), is_in_it) &&
         std::none_of(format.never_shows.begin(), format.never_shows.end(), is_in_it);
}

bool has_name(const ToolFormat& format, std::string_view name) {
  return format.name == name || (!format.alias.empty() && format.alias == name);
}
bool has_name(const ReasoningFormat& format, std::string_view name) { return format.name == name; }

/// The row of that name; of several the one that the template shows, or else the last. nullptr for "", and for "auto"
/// where the template shows none.
template <class Format>
Result<const Format*> choose(std::span<const Format> formats, std::string_view what, std::string_view name,
                             std::string_view chat_template, const std::vector<std::string_view>& names) {
  if (name.empty()) return nullptr;
  const Format* chosen = nullptr;
  for (const Format& format : formats) {
    if (name != "auto" && !has_name(format, name)) continue;
    if (is_shown(format, chat_template)) return &format;
    if (name != "auto") chosen = &format;
  }
  if (chosen == nullptr && name != "auto")
    return fail(ErrorCode::invalid_request,
                fmt::format("there is no {} '{}'; known are: auto, {}", what, name, fmt::join(names, ", ")));
  return chosen;
}

std::string_view without_end_spaces(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool ends_with_any(std::string_view prompt, std::span<const std::string_view> markers) {
  const std::string_view text = without_end_spaces(prompt);
  return std::any_of(markers.begin(), markers.end(), [&](std::string_view marker) { return text.ends_with(marker); });
}

}  // namespace

std::vector<std::string_view> MessageFormat::tool_parsers() {
  std::vector<std::string_view> names;
  for (const ToolFormat& format : tool_formats())
    for (const std::string_view name : {format.name, format.alias})
      if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

std::vector<std::string_view> MessageFormat::reasoning_parsers() {
  std::vector<std::string_view> names;
  for (const ReasoningFormat& format : reasoning_formats())
    if (std::find(names.begin(), names.end(), format.name) == names.end()) names.push_back(format.name);
  return names;
}

Result<MessageFormat> MessageFormat::make(std::string_view tool_parser, std::string_view reasoning_parser,
                                          std::string_view chat_template) {
  MessageFormat made;
  BATON_TRY(made.tools_, choose(tool_formats(), "tool-call parser", tool_parser, chat_template, tool_parsers()));
  BATON_TRY(made.reasoning_,
            choose(reasoning_formats(), "reasoning parser", reasoning_parser, chat_template, reasoning_parsers()));
  const auto add = [&](std::string_view marker) {
    if (!marker.empty()) made.markers_.emplace_back(marker);
  };
  if (made.tools_ != nullptr) {
    for (const std::string_view marker : made.tools_->begin.markers) add(marker);
    for (const std::string_view marker : made.tools_->closes) add(marker);
  }
  if (made.reasoning_ != nullptr) {
    const ReasoningMarkers& markers = made.reasoning_->markers;
    for (const std::string_view marker : markers.opens) add(marker);
    for (const std::string_view marker : markers.closes) add(marker);
    add(markers.answer_open);
    add(markers.answer_close);
  }
  return made;
}

MessageFormat MessageFormat::from_template(std::string_view chat_template) {
  return make("auto", "auto", chat_template).value_or(MessageFormat());
}

std::string_view MessageFormat::tool_parser() const { return tools_ == nullptr ? "" : tools_->name; }
std::string_view MessageFormat::reasoning_parser() const { return reasoning_ == nullptr ? "" : reasoning_->name; }

Result<std::shared_ptr<const ToolIndex>> MessageFormat::index(std::span<const Tool> tools, WorkBudget& budget) const {
  return ToolIndex::make(tools, tools_ != nullptr && tools_->texts.arguments == ArgumentStyle::xml, budget);
}

std::unique_ptr<MessageParser> MessageFormat::parser(const AnswerReading& reading) const {
  const bool has_calls = tools_ != nullptr && reading.tools != nullptr;
  std::unique_ptr<MessageParser> parser;
  if (has_calls) {
    const TextMeaning text = reading.demands_calls     ? TextMeaning::nothing
                             : reading.has_calls_first ? TextMeaning::content_or_calls
                                                       : TextMeaning::content;
    const CallWriter::Form form = !reading.is_whole     ? CallWriter::Form::streamed
                                  : reading.is_parallel ? CallWriter::Form::whole
                                                        : CallWriter::Form::one;
    parser = std::make_unique<ToolCallParser>(tools_->begin, tools_->reader(reading.tools), reading.tools, form, text);
  } else {
    parser = std::make_unique<PlainParser>();
  }
  if (reasoning_ == nullptr) return parser;
  std::unique_ptr<ReasonedCalls> calls;
  if (has_calls && !tools_->begin.markers.empty())
    calls = std::make_unique<ReasonedCalls>(tools_->begin, tools_->reader(reading.tools), reading.tools);
  return std::make_unique<ReasoningParser>(reasoning_->markers, std::move(parser), std::move(calls),
                                           reading.begins_in_reasoning);
}

bool MessageFormat::begins_in_reasoning(std::string_view prompt) const {
  if (reasoning_ == nullptr) return false;
  return ends_with_any(prompt, reasoning_->markers.opens) || (reasoning_->is_implied && may_reason(prompt));
}

bool MessageFormat::may_reason(std::string_view prompt) const {
  return reasoning_ != nullptr && !ends_with_any(prompt, reasoning_->markers.closes);
}

std::span<const std::string_view> MessageFormat::reasoning_ends() const {
  return reasoning_ == nullptr ? std::span<const std::string_view>() : reasoning_->markers.closes;
}

Result<grammar::GrammarSource> MessageFormat::behind_reasoning(const grammar::GrammarSource& source, bool begins_in_reasoning,
                                                               std::span<const std::string> special_tokens) const {
  if (reasoning_ == nullptr) return source;
  return grammar_behind_reasoning(reasoning_->markers, source, begins_in_reasoning, special_tokens);
}

Result<std::optional<grammar::GrammarSource>> MessageFormat::grammar(const AnswerDemand& demand) const {
  if (demand.tools.empty() || demand.choice.kind == ToolChoice::Kind::none) return std::optional<grammar::GrammarSource>();
  if (tools_ != nullptr) return tool_grammar(*tools_, demand, reasoning_ != nullptr);
  if (demand.choice.kind == ToolChoice::Kind::automatic) return std::optional<grammar::GrammarSource>();
  return fail(ErrorCode::unsupported,
              "tool_choice demands a call, and the model's chat template shows no known format of calls; "
              "choose one by --tool-call-parser",
              "tool_choice");
}

}  // namespace baton::parsers
