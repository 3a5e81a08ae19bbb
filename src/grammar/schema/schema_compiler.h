/// A JSON schema, and the values of its parts, as rules.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/expression.h"
#include "grammar/automaton/json_text.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/schema_shape.h"
#include "grammar/schema/schema_values.h"

namespace baton::grammar {

/// Compiles parts of one document. What they have in common is made once. Thread: one at a time.
class SchemaCompiler {
 public:
  /// All must outlive it. The paths of unknown keywords are appended to `ignored`.
  SchemaCompiler(const SchemaDocument& document, JsonText& text, std::vector<std::string>& ignored, WorkMeter& meter)
      : document_(document),
        expressions_(text.expressions()),
        meter_(meter),
        text_(text),
        ignored_(ignored),
        values_(document, expressions_, overlaps_, ignored_, meter) {}

  /// The rule of the values that match all of `schemas`; finish() writes its body. Errors: see parse_json_schema.
  Result<ExprId> rule_of(SchemaSet schemas);
  /// Writes the bodies of all rules that were asked for and of the rules that they need. Errors: the same; a oneOf with
  /// alternatives that overlap.
  Result<void> finish();

  /// The alternatives of one part, and what they say of strings and numbers. Whether those of a oneOf overlap is looked at for
  /// rules only.
  Result<std::vector<SchemaShape>> shapes(const json::Value& schema) {
    SchemaOverlaps overlaps;
    return shapes_of(document_, {&schema}, overlaps, ignored_, meter_);
  }
  SchemaValues& values() { return values_; }

  /// An error of the part `schema` that says where it is, unless it does already.
  tl::unexpected<Error> located(Error error, const json::Value& schema) const;

 private:
  Result<ExprId> body_of(const SchemaSet& schemas);
  Result<ExprId> shape_body(const SchemaShape& shape);
  Result<ExprId> listed(const SchemaShape& shape, unsigned kinds, const ListedValues& values);
  Result<void> refuse_beside_listed(const SchemaShape& shape);
  Result<ExprId> strings(const SchemaShape& shape);
  Result<ExprId> numbers(const SchemaShape& shape, unsigned kinds);
  Result<void> refuse_overlaps();

  const SchemaDocument& document_;
  Expressions& expressions_;
  WorkMeter& meter_;
  JsonText& text_;
  std::vector<std::string>& ignored_;
  SchemaValues values_;
  std::map<SchemaSet, RuleId> rules_;
  std::vector<std::pair<SchemaSet, RuleId>> unwritten_;
  SchemaOverlaps overlaps_;
  std::size_t n_overlaps_ = 0;             // of which a rule was asked for
  std::map<std::string, ExprId> strings_;  // by what is asked of them: equal ones share their states
  std::map<std::string, ExprId> numbers_;
};

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
