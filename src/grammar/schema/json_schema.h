/// JSON schemas as grammars.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/expression.h"
#include "grammar/automaton/json_text.h"
#include "grammar/schema/schema_document.h"

namespace baton::grammar {

/// The rule of a schema's values, and the paths of keywords that no draft defines and that were not looked at.
struct SchemaGrammar {
  RuleId root = 0;
  std::vector<std::string> ignored;
};

/// The texts of the values that match `schema` (drafts 4 to 2020-12; see docs/grammars.md for the keywords).
///
/// Of all texts of a value one form is accepted: declared properties in the order of the schema (of allOf: in the
/// order of its parts), before all others; spaces as JsonText has them; strings with `pattern`, `format`, `enum` or
/// `const` and names of properties beside declared ones escaped in the shortest way; numbers with bounds, and
/// integers, without exponent. A property that is repeated counts twice. Where the schema can be said exactly in this
/// form it is; what cannot (`not`, `if`, `contains`, alternatives of a oneOf that overlap...) is refused.
///
/// Errors name the path and the keyword: unsupported, invalid_request (the schema is not one, or no value matches),
/// too_large, the budget's.
///
/// Adds to the expressions of `text`, which says where spaces are. Several schemas may share it.
Result<SchemaGrammar> parse_json_schema(JsonText& text, std::string_view schema, WorkMeter& meter);
/// The same of a document that was read.
Result<SchemaGrammar> schema_grammar(const SchemaDocument& document, JsonText& text, WorkMeter& meter);

}  // namespace baton::grammar
