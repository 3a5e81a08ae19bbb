/// The arguments of a call in forms other than a JSON object.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/json_text.h"
#include "grammar/schema/schema_compiler.h"

namespace baton::grammar {

/// The tags around the name and the value of an argument: before_name NAME after_name VALUE after_value.
struct ArgumentTags {
  std::string_view before_name;
  std::string_view after_name;
  std::string_view before_value;  ///< after after_name and perhaps a line end; may be empty, and then there is none
  std::string_view after_value;
  std::span<const std::string_view> never_in_value;  ///< of a string; of others JSON has none
};

/// `<parameter=NAME>`, a line end, the value, a line end, `</parameter>`. Strings have neither `</parameter>` nor a line that
/// begins with `<parameter=` or `</function>`.
extern const ArgumentTags kQwenTags;
/// `<arg_key>NAME</arg_key>`, `<arg_value>VALUE</arg_value>`. Strings have no `</arg_value>`.
extern const ArgumentTags kGlmTags;

/// The texts of arguments. What many of them have is made once. Thread: one at a time.
///
/// A schema, of an object, allows those declared in its order, then others if additionalProperties allows them. Of the
/// object only `type`, `properties`, `required` and `additionalProperties` (true, false or {}) are supported.
/// Errors: unsupported and invalid_request name the path and the keyword; those of parse_json_schema for a property.
class ArgumentTexts {
 public:
  /// All must outlive it. The paths of unknown keywords are appended to `ignored`.
  ArgumentTexts(const ArgumentTags& tags, JsonText& text, std::vector<std::string>& ignored, WorkMeter& meter)
      : tags_(tags), text_(text), expressions_(text.expressions()), ignored_(ignored), meter_(meter) {}

  /// Each between its tags; between arguments, and in front of the first and after the last, nothing or a line end. Strings
  /// stand as they are, other values are JSON.
  Result<ExprId> xml(const json::Value& schema);
  /// As Python's keyword arguments, `a=1, b="x"`, with values in JSON; a parameter that is a boolean is True or False.
  Result<ExprId> python(const json::Value& schema);

 private:
  ExprId between_name_and_value();
  Result<ExprId> xml_value(SchemaCompiler& compiler, const json::Value& schema);
  Result<ExprId> raw_strings(SchemaValues& values, const SchemaShape& shape);
  Result<const Dfa*> text_of_value();
  Result<ExprId> free_string();
  Result<ExprId> python_value(SchemaCompiler& compiler, const json::Value& schema);

  const ArgumentTags& tags_;
  JsonText& text_;
  Expressions& expressions_;
  std::vector<std::string>& ignored_;
  WorkMeter& meter_;
  std::optional<Dfa> text_of_value_;
  std::optional<RuleId> free_string_;
};

}  // namespace baton::grammar
