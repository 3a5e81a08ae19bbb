/// The values of a JSON schema's parts as rules.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
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

}  // namespace baton::grammar
