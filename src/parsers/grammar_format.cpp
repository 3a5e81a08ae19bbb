/// A format for each kind of grammar.
#include "parsers/grammar_format.h"

#include <utility>

namespace baton::parsers {

namespace {

using json::Value;

/// A structural tag inside of another one has special tokens of its own, here none.
Value nested(Value format) { return {{"type", "structural_tag"}, {"format", std::move(format)}}; }

}  // namespace

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

}  // namespace baton::parsers
