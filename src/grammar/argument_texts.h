/// The arguments of a call in forms other than a JSON object.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "core/work_budget.h"
#include "grammar/json_text.h"

namespace baton::grammar {

/// The arguments that `schema`, of an object, allows: those declared in the order of the schema, then others if
/// additionalProperties allows them. Of the object only `type`, `properties`, `required` and `additionalProperties`
/// (true, false or {}) are supported. Appends the paths of unknown keywords to `ignored`.
/// Errors: unsupported and invalid_request name the keyword; those of parse_json_schema for a property.

/// Each as `<parameter=NAME>`, a line end, the value, a line end, `</parameter>`; between them nothing or a line end.
/// Strings stand as they are and have neither `</parameter>` nor a line that begins with `<parameter=` or
/// `</function>`; other values are JSON.
Result<ExprId> xml_arguments(JsonText& text, const json::Value& schema, std::vector<std::string>& ignored, WorkMeter& meter);

/// As Python's keyword arguments, `a=1, b="x"`, with values in JSON; a parameter that is a boolean is True or False.
Result<ExprId> python_arguments(JsonText& text, const json::Value& schema, std::vector<std::string>& ignored, WorkMeter& meter);

}  // namespace baton::grammar
