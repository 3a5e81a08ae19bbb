/// Messages as tags.
#include "parsers/harmony/grammar.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "io/json.h"
#include "parsers/tool_grammar.h"

namespace baton::parsers::harmony {
namespace {

using json::Value;

Value literal(std::string_view text) { return {{"type", "const_string"}, {"value", text}}; }
Value any_of(Value elements) { return {{"type", "or"}, {"elements", std::move(elements)}}; }
Value any_text() { return {{"type", "any_text"}}; }

/// The end of a message that another one of the assistant follows.
Value next_message() { return literal(fmt::format("{}assistant", kStart)); }

/// Text up to the end of its message, and the front of the next one.
Value text_to_next() {
  return sequence_of(
      Value::array({Value{{"type", "tag"}, {"begin", ""}, {"content", any_text()}, {"end", kEnd}}, next_message()}));
}

/// Any number of messages of a channel in front of another one.
Value messages_of(std::string_view channel) {
  Value message = sequence_of(Value::array({literal(fmt::format("{}{}{}", kChannel, channel, kMessage)), text_to_next()}));
  return {{"type", "star"}, {"content", std::move(message)}};
}

Value final_message(Value content) {
  Value headers = any_of(Value::array({literal(fmt::format("{}{}{}", kChannel, kFinal, kMessage)),
                                       literal(fmt::format("{}{} {}json{}", kChannel, kFinal, kConstrain, kMessage))}));
  return sequence_of(Value::array({std::move(headers), std::move(content)}));
}

/// The same calls with the recipient in front of the channel.
Value with_recipient_first(const Value& calls, const CallTexts& texts) {
  Value all = calls;
  for (Value call : calls) {
    std::string name = call["begin"];
    name.erase(0, texts.call_begin.size());
    name.resize(name.size() - texts.call_middle.size());
    for (const std::string_view type : {std::string_view("json"), std::string_view("<|constrain|>json")}) {
      call["begin"] = fmt::format(" to={}{}{}{} {}{}", kFunctions, name, kChannel, kCommentary, type, kMessage);
      all.push_back(call);
    }
  }
  return all;
}

grammar::GrammarSource source_of(Value format, std::span<const std::string> special_tokens, grammar::JsonSpaces spaces) {
  Value tag = {{"type", "structural_tag"}, {"format", std::move(format)}};
  if (!special_tokens.empty()) tag["tokens"] = std::vector<std::string>(special_tokens.begin(), special_tokens.end());
  return {.kind = grammar::GrammarKind::structural_tag, .text = json::dump(tag), .spaces = spaces};
}

}  // namespace

Result<std::optional<grammar::GrammarSource>> answer_grammar(const ToolFormat& format, const AnswerDemand& demand) {
  const bool is_automatic = demand.choice.kind == ToolChoice::Kind::automatic;
  const auto is_strict = [](const Tool& tool) { return tool.is_strict; };
  if (is_automatic && !demand.content && std::none_of(demand.tools.begin(), demand.tools.end(), is_strict))
    return std::optional<grammar::GrammarSource>();
  BATON_TRY(const Value calls, possible_calls(format, demand));
  Value answer = any_of(with_recipient_first(calls, format.texts));
  grammar::GrammarSource source;
  if (is_automatic) {
    Value content = any_text();
    if (demand.content) {
      BATON_TRY(content, format_of(*demand.content));
      source.spaces = demand.content->spaces;
    }
    answer = any_of(Value::array({std::move(answer), final_message(std::move(content))}));
    if (!demand.content) answer = sequence_of(Value::array({messages_of(kCommentary), std::move(answer)}));
  }
  return std::optional(source_of(std::move(answer), demand.special_tokens, source.spaces));
}

Result<grammar::GrammarSource> grammar_behind_analysis(const grammar::GrammarSource& source, const InFront& front) {
  if (front.begin == Begin::final && !front.is_answer) return source;
  BATON_TRY(Value answer, format_of(source));
  if (!front.is_answer) answer = final_message(std::move(answer));
  Value all = Value::array();
  if (front.begin != Begin::header) all.push_back(text_to_next());
  if (front.may_reason) all.push_back(messages_of(kAnalysis));
  all.push_back(std::move(answer));
  return source_of(sequence_of(std::move(all)), front.special_tokens, source.spaces);
}

}  // namespace baton::parsers::harmony
