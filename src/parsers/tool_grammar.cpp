/// A format's texts around the schemas of the arguments, as a structural tag.
#include "parsers/tool_grammar.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace baton::parsers {
namespace {

using json::Value;

Value literal(std::string_view text) { return {{"type", "const_string"}, {"value", text}}; }
Value texts_without(const std::vector<std::string_view>& excluded) { return {{"type", "any_text"}, {"excludes", excluded}}; }

/// The arguments of a call; `has_schema`: they keep to the tool's schema.
Value arguments_of(const Tool& tool, ArgumentStyle style, bool has_schema) {
  Value schema = {{"type", "object"}};
  if (has_schema && !tool.parameters.is_null()) {
    schema = tool.parameters;
    // A schema need not say that arguments are an object.
    if (schema.is_object() && !schema.contains("type") && !schema.contains("$ref")) schema["type"] = "object";
  }
  Value format = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
  if (style == ArgumentStyle::xml) format["style"] = "qwen_xml";
  if (style == ArgumentStyle::glm) format["style"] = "glm_xml";
  if (style == ArgumentStyle::python) format["style"] = "python";
  if (has_schema && !tool.field.empty()) {
    format["field"] = tool.field;
    format["name"] = tool.name;
  }
  return format;
}

/// The number of a call and the text after it, in front of its arguments.
Value numbered(std::string_view after_number, Value arguments) {
  return sequence_of(
      Value::array({Value{{"type", "regex"}, {"pattern", "[0-9]{1,4}"}}, literal(after_number), std::move(arguments)}));
}

/// One call. In JSON the name is a string.
Value call_of(const ToolFormat& format, const Tool& tool, bool has_schema) {
  const CallTexts& texts = format.texts;
  const std::string name = texts.is_name_quoted ? json::dump(Value(tool.name)) : tool.name;
  Value arguments = arguments_of(tool, texts.arguments, has_schema);
  if (!texts.after_number.empty()) arguments = numbered(texts.after_number, std::move(arguments));
  return {{"type", "tag"},
          {"begin", fmt::format("{}{}{}", texts.call_begin, name, texts.call_middle)},
          {"content", std::move(arguments)},
          {"end", texts.call_end}};
}

/// One call or several, in their list if the format has one.
Value calls_of(const CallTexts& texts, const Value& calls, bool parallel) {
  Value all = {{"type", "tags_with_separator"},
               {"tags", calls},
               {"separator", texts.separator},
               {"at_least_one", true},
               {"stop_after_first", !parallel}};
  if (texts.open.empty()) return all;
  return {{"type", "tag"}, {"begin", texts.open}, {"content", std::move(all)}, {"end", texts.close}};
}

/// Calls without a marker, and after the special token that the format also reads in front of them.
Value calls_behind_token(const ToolFormat& format, Value calls, std::span<const std::string> special_tokens) {
  if (format.begin.first.empty()) return calls;
  const auto is_token = [&](std::string_view marker) {
    return std::find(special_tokens.begin(), special_tokens.end(), marker) != special_tokens.end();
  };
  Value all = Value::array({calls});
  for (const std::string_view marker : format.begin.markers) {
    if (!is_token(marker)) continue;
    Value parts = Value::array({literal(marker), calls});
    if (!format.closes.empty() && is_token(format.closes.front())) parts.push_back(literal(format.closes.front()));
    all.push_back(sequence_of(std::move(parts)));
  }
  return {{"type", "or"}, {"elements", std::move(all)}};
}

/// Regular expressions of the spaces that parsers pass over, and of one byte that is neither a space nor any of `bytes`.
constexpr std::string_view kSpaces = "[ \\n\\r\\t]*";

Value begin_without(const std::string& bytes) {
  std::string pattern = std::string(kSpaces) + "[^ \\n\\r\\t";
  for (const char c : bytes) pattern += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return {{"type", "regex"}, {"pattern", pattern + "]"}};
}

/// Text that is not a call in a format whose calls begin an answer: it begins otherwise, and has none of the markers.
Value text_without_calls(const ToolFormat& format) {
  std::vector<std::string_view> markers(format.begin.markers.begin(), format.begin.markers.end());
  std::string not_first(format.begin.first);
  Value texts = Value::array();
  texts.push_back({{"type", "regex"}, {"pattern", kSpaces}});
  for (const std::string_view marker : format.begin.markers) {
    // After the first byte of a marker its other bytes are excluded too.
    std::vector<std::string_view> excluded = markers;
    excluded.push_back(marker.substr(1));
    not_first += marker[0];
    texts.push_back(sequence_of(
        Value::array({Value{{"type", "regex"}, {"pattern", kSpaces}}, literal(marker.substr(0, 1)), texts_without(excluded)})));
  }
  texts.push_back(sequence_of(Value::array({begin_without(not_first), texts_without(markers)})));
  return {{"type", "or"}, {"elements", std::move(texts)}};
}

/// Free text, and calls at the marker that the template writes.
Value text_with_calls(const ToolFormat& format, const Value& calls, const AnswerDemand& demand) {
  const CallTexts& texts = format.texts;
  const bool parallel = demand.is_parallel;
  if (!format.begin.first.empty())
    return {{"type", "or"},
            {"elements", Value::array({calls_behind_token(format, calls_of(texts, calls, parallel), demand.special_tokens),
                                       text_without_calls(format)})}};
  const std::string_view written = texts.open.empty() ? texts.call_begin : texts.open;
  std::vector<std::string_view> others;
  Value triggers = Value::array();
  for (const std::string_view marker : format.begin.markers) {
    if (written.starts_with(marker))
      triggers.push_back(marker);
    else
      others.push_back(marker);
  }
  return {{"type", "triggered_tags"},
          {"triggers", std::move(triggers)},
          {"tags", texts.open.empty() ? calls : Value::array({calls_of(texts, calls, parallel)})},
          {"excludes", others},
          {"stop_after_first", !parallel}};
}

/// Models write line ends between their reasoning and the answer.
Value line_ends() { return {{"type", "regex"}, {"pattern", "\\n{0,2}"}}; }

/// Reasoning that `open` begins, and the line ends after it.
Value reasoning(std::string_view open, const ReasoningMarkers& markers) {
  Value tag = {{"type", "tag"}, {"begin", open}, {"content", {{"type", "any_text"}}}};
  tag["end"] = std::vector<std::string_view>(markers.closes.begin(), markers.closes.end());
  return sequence_of(Value::array({std::move(tag), line_ends()}));
}

/// A structural tag inside of another one has special tokens of its own, here none.
Value nested(Value format) { return {{"type", "structural_tag"}, {"format", std::move(format)}}; }

}  // namespace

Value sequence_of(Value elements) { return {{"type", "sequence"}, {"elements", std::move(elements)}}; }

Result<Value> possible_calls(const ToolFormat& format, const AnswerDemand& demand) {
  const bool is_automatic = demand.choice.kind == ToolChoice::Kind::automatic;
  Value calls = Value::array();
  for (const Tool& tool : demand.tools) {
    if (demand.choice.kind == ToolChoice::Kind::named && tool.name != demand.choice.name) continue;
    if (tool.name.empty() || !format.can_write_name(tool.name))
      return fail(
          ErrorCode::invalid_request,
          fmt::format("the tool name '{}' cannot be written in the model's format of calls ({})", tool.name, format.name),
          "tools");
    calls.push_back(call_of(format, tool, !is_automatic || tool.is_strict));
  }
  if (calls.empty())
    return fail(ErrorCode::invalid_request, fmt::format("tool_choice names '{}', which is not a tool", demand.choice.name),
                "tool_choice");
  return calls;
}

Result<json::Value> format_of(const grammar::GrammarSource& source) {
  using grammar::GrammarKind;
  switch (source.kind) {
    case GrammarKind::json_object: return nested({{"type", "json_schema"}, {"json_schema", {{"type", "object"}}}});
    case GrammarKind::json_schema: {
      BATON_TRY(Value schema, json::parse(source.text, "the schema"));
      return nested({{"type", "json_schema"}, {"json_schema", std::move(schema)}});
    }
    case GrammarKind::regex: return nested({{"type", "regex"}, {"pattern", source.text}});
    case GrammarKind::choice: {
      BATON_TRY(const Value choices, json::parse(source.text, "the choice"));
      Value elements = Value::array();
      for (const Value& choice : choices) elements.push_back({{"type", "const_string"}, {"value", choice}});
      return nested({{"type", "or"}, {"elements", std::move(elements)}});
    }
    case GrammarKind::ebnf: return nested({{"type", "grammar"}, {"grammar", source.text}});
    case GrammarKind::structural_tag: {
      BATON_TRY(Value tag, json::parse(source.text, "the structural tag"));
      if (tag.is_object()) tag["type"] = "structural_tag";
      return tag;
    }
  }
  return fail(ErrorCode::internal, "a grammar of no kind");
}

Result<grammar::GrammarSource> grammar_behind_reasoning(const ReasoningMarkers& markers, const grammar::GrammarSource& source,
                                                        bool begins_in_reasoning, std::span<const std::string> special_tokens) {
  BATON_TRY(json::Value answer, format_of(source));
  json::Value in_front = reasoning("", markers);
  if (!begins_in_reasoning) {
    json::Value all = json::Value::array();
    for (const std::string_view open : markers.opens) all.push_back(reasoning(open, markers));
    in_front = {{"type", "optional"}, {"content", {{"type", "or"}, {"elements", std::move(all)}}}};
  }
  json::Value tag = {{"type", "structural_tag"},
                     {"format", sequence_of(json::Value::array({std::move(in_front), std::move(answer)}))}};
  if (!special_tokens.empty()) tag["tokens"] = std::vector<std::string>(special_tokens.begin(), special_tokens.end());
  return grammar::GrammarSource{.kind = grammar::GrammarKind::structural_tag, .text = json::dump(tag), .spaces = source.spaces};
}

Result<std::optional<grammar::GrammarSource>> tool_grammar(const ToolFormat& format, const AnswerDemand& demand,
                                                           bool may_reason) {
  const bool is_automatic = demand.choice.kind == ToolChoice::Kind::automatic;
  const bool is_named = demand.choice.kind == ToolChoice::Kind::named;
  const auto is_strict = [](const Tool& tool) { return tool.is_strict; };
  if (is_automatic && !demand.content && std::none_of(demand.tools.begin(), demand.tools.end(), is_strict))
    return std::optional<grammar::GrammarSource>();
  BATON_TRY(const Value calls, possible_calls(format, demand));
  const bool has_free_text = is_automatic && !demand.content;
  Value whole = has_free_text ? text_with_calls(format, calls, demand)
                              : calls_behind_token(format, calls_of(format.texts, calls, demand.is_parallel && !is_named),
                                                   demand.special_tokens);
  if (is_automatic && demand.content) {
    BATON_TRY(Value content, format_of(*demand.content));
    whole = {{"type", "or"}, {"elements", Value::array({std::move(whole), std::move(content)})}};
  }
  if (!has_free_text && may_reason) whole = sequence_of(Value::array({line_ends(), std::move(whole)}));
  Value tag = {{"type", "structural_tag"}, {"format", std::move(whole)}};
  if (!demand.special_tokens.empty())
    tag["tokens"] = std::vector<std::string>(demand.special_tokens.begin(), demand.special_tokens.end());
  grammar::GrammarSource source{.kind = grammar::GrammarKind::structural_tag, .text = json::dump(tag)};
  if (is_automatic && demand.content) source.spaces = demand.content->spaces;
  return source;
}

}  // namespace baton::parsers
