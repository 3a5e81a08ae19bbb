/// Reasoning as free text between its markers.
#include "parsers/reasoning_grammar.h"

#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"
#include "parsers/grammar_format.h"

namespace baton::parsers {

namespace {

json::Value sequence(json::Value elements) { return {{"type", "sequence"}, {"elements", std::move(elements)}}; }

/// Reasoning that `open` begins, and the line ends after it.
json::Value reasoning(std::string_view open, const ReasoningMarkers& markers) {
  json::Value tag = {{"type", "tag"}, {"begin", open}, {"content", {{"type", "any_text"}}}};
  tag["end"] = std::vector<std::string_view>(markers.closes.begin(), markers.closes.end());
  const json::Value line_ends = {{"type", "regex"}, {"pattern", "\\n{0,2}"}};
  return sequence(json::Value::array({std::move(tag), line_ends}));
}

}  // namespace

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
                     {"format", sequence(json::Value::array({std::move(in_front), std::move(answer)}))}};
  if (!special_tokens.empty()) tag["tokens"] = std::vector<std::string>(special_tokens.begin(), special_tokens.end());
  return grammar::GrammarSource{.kind = grammar::GrammarKind::structural_tag, .text = json::dump(tag), .spaces = source.spaces};
}

}  // namespace baton::parsers
