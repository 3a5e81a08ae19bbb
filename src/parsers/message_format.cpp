/// Choosing formats by name or from a template, and putting parsers together.
#include "parsers/message_format.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parsers/harmony/grammar.h"
#include "parsers/harmony/header.h"
#include "parsers/harmony/parser.h"
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

harmony::Begin harmony_begin(bool in_reasoning, bool in_content) {
  return in_reasoning ? harmony::Begin::analysis : in_content ? harmony::Begin::final : harmony::Begin::header;
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
  if (made.tools_ != nullptr && made.reasoning_ != nullptr && made.tools_->is_harmony != made.reasoning_->is_harmony)
    return fail(ErrorCode::invalid_request,
                fmt::format("the tool-call parser '{}' and the reasoning parser '{}' read different formats", made.tools_->name,
                            made.reasoning_->name));
  const auto add = [&](std::string_view marker) {
    if (!marker.empty()) made.markers_.emplace_back(marker);
  };
  if (made.is_harmony()) {
    for (const std::string_view marker : {harmony::kStart, harmony::kChannel, harmony::kConstrain, harmony::kMessage,
                                          harmony::kEnd, harmony::kReturn, harmony::kCall})
      add(marker);
    return made;
  }
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

bool MessageFormat::is_harmony() const {
  return (tools_ != nullptr && tools_->is_harmony) || (reasoning_ != nullptr && reasoning_->is_harmony);
}

std::string_view MessageFormat::tool_parser() const { return tools_ == nullptr ? "" : tools_->name; }
std::string_view MessageFormat::reasoning_parser() const { return reasoning_ == nullptr ? "" : reasoning_->name; }

Result<std::shared_ptr<const ToolIndex>> MessageFormat::index(std::span<const Tool> tools, WorkBudget& budget) const {
  return ToolIndex::make(tools, tools_ != nullptr && tools_->texts.arguments == ArgumentStyle::xml, budget);
}

std::unique_ptr<MessageParser> MessageFormat::parser(const AnswerReading& reading) const {
  const bool has_calls = tools_ != nullptr && reading.tools != nullptr;
  const CallWriter::Form form = !reading.is_whole     ? CallWriter::Form::streamed
                                : reading.is_parallel ? CallWriter::Form::whole
                                                      : CallWriter::Form::one;
  if (is_harmony())
    return std::make_unique<harmony::Parser>(
        harmony::Reading{.tools = has_calls ? reading.tools : nullptr,
                         .has_reasoning = reasoning_ != nullptr,
                         .has_content = !(has_calls && reading.demands_calls),
                         .form = form,
                         .begin = harmony_begin(reading.begins_in_reasoning, reading.begins_in_content)});
  std::unique_ptr<MessageParser> parser;
  if (has_calls) {
    const TextMeaning text = reading.demands_calls     ? TextMeaning::nothing
                             : reading.has_calls_first ? TextMeaning::content_or_calls
                                                       : TextMeaning::content;
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

AnswerBegin MessageFormat::begin_after(std::string_view prompt) const {
  if (is_harmony()) {
    const auto open = harmony::opened_header(prompt);
    const bool in_reasoning = open && open->channel == harmony::kAnalysis && reasoning_ != nullptr;
    return {.may_reason = reasoning_ != nullptr && (!open || in_reasoning),
            .in_reasoning = in_reasoning,
            .in_content = open && !in_reasoning};
  }
  if (reasoning_ == nullptr) return {};
  const bool may_reason = !ends_with_any(prompt, reasoning_->markers.closes);
  return {.may_reason = may_reason,
          .in_reasoning = ends_with_any(prompt, reasoning_->markers.opens) || (reasoning_->is_implied && may_reason)};
}

std::span<const std::string_view> MessageFormat::reasoning_ends() const {
  return reasoning_ == nullptr ? std::span<const std::string_view>() : reasoning_->markers.closes;
}

Result<grammar::GrammarSource> MessageFormat::behind_reasoning(const grammar::GrammarSource& source, bool is_answer,
                                                               const AnswerBegin& begin,
                                                               std::span<const std::string> special_tokens) const {
  if (is_harmony())
    return harmony::grammar_behind_analysis(source, {.is_answer = is_answer,
                                                     .may_reason = reasoning_ != nullptr,
                                                     .begin = harmony_begin(begin.in_reasoning, begin.in_content),
                                                     .special_tokens = special_tokens});
  if (reasoning_ == nullptr || !begin.may_reason) return source;
  return grammar_behind_reasoning(reasoning_->markers, source, begin.in_reasoning, special_tokens);
}

std::span<const std::string_view> MessageFormat::stops() const {
  static constexpr std::array<std::string_view, 2> kStops{harmony::kReturn, harmony::kCall};
  return is_harmony() ? std::span<const std::string_view>(kStops) : std::span<const std::string_view>();
}

std::span<const std::string_view> MessageFormat::efforts() const {
  static constexpr std::array<std::string_view, 3> kEfforts{"low", "medium", "high"};
  return is_harmony() ? std::span<const std::string_view>(kEfforts) : std::span<const std::string_view>();
}

Result<std::optional<grammar::GrammarSource>> MessageFormat::grammar(const AnswerDemand& demand) const {
  if (demand.tools.empty() || demand.choice.kind == ToolChoice::Kind::none) return std::optional<grammar::GrammarSource>();
  if (tools_ != nullptr && tools_->is_harmony) return harmony::answer_grammar(*tools_, demand);
  if (tools_ != nullptr) return tool_grammar(*tools_, demand, reasoning_ != nullptr);
  if (demand.choice.kind == ToolChoice::Kind::automatic) return std::optional<grammar::GrammarSource>();
  return fail(ErrorCode::unsupported,
              "tool_choice demands a call, and the model's chat template shows no known format of calls; "
              "choose one by --tool-call-parser",
              "tool_choice");
}

}  // namespace baton::parsers
