/// The arguments of a call in forms other than a JSON object.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/json_text.h"
#include "grammar/schema/schema_compiler.h"

namespace baton::grammar {

/// The texts of arguments. What many of them have is made once. Thread: one at a time.
///
/// A schema, of an object, allows those declared in its order, then others if additionalProperties allows them. Of the
/// object only `type`, `properties`, `required` and `additionalProperties` (true, false or {}) are supported.
/// Errors: unsupported and invalid_request name the path and the keyword; those of parse_json_schema for a property.
class ArgumentTexts {
 public:
  /// All must outlive it. The paths of unknown keywords are appended to `ignored`.
  ArgumentTexts(JsonText& text, std::vector<std::string>& ignored, WorkMeter& meter)
      : text_(text), expressions_(text.expressions()), ignored_(ignored), meter_(meter) {}

  /// Each as `<parameter=NAME>`, a line end, the value, a line end, `</parameter>`; between them nothing or a line end.
  /// Strings stand as they are and have neither `</parameter>` nor a line that begins with `<parameter=` or
  /// `</function>`; other values are JSON.
  Result<ExprId> xml(const json::Value& schema);
  /// As Python's keyword arguments, `a=1, b="x"`, with values in JSON; a parameter that is a boolean is True or False.
  Result<ExprId> python(const json::Value& schema);

 private:
  Result<ExprId> xml_value(SchemaCompiler& compiler, const json::Value& schema);
  Result<ExprId> raw_strings(SchemaValues& values, const SchemaShape& shape);
  Result<const Dfa*> text_of_value();
  Result<ExprId> free_string();
  Result<ExprId> python_value(SchemaCompiler& compiler, const json::Value& schema);

  JsonText& text_;
  Expressions& expressions_;
  std::vector<std::string>& ignored_;
  WorkMeter& meter_;
  std::optional<Dfa> text_of_value_;
  std::optional<RuleId> free_string_;
};

}  // namespace baton::grammar
