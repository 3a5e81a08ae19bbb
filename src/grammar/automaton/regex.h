/// Regular expressions as expressions over bytes.
#pragma once

#include <string_view>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/expression.h"

namespace baton::grammar {

/// What an expression describes.
enum class RegexUse {
  whole,   ///< a whole text
  search,  ///< what stands somewhere in a text (JSON Schema's `pattern`)
  part,    ///< a part of a text, after which others follow: look-ahead would see them, and is refused
};

/// The texts that match. The syntax is ECMAScript's with the flag u, and what Python and Rust share with it: classes,
/// groups (also named), alternatives, greedy and lazy repetitions, \d \w \s (ASCII but for \s), \p{category}, \xHH,
/// \uHHHH, \u{H...}, look-ahead that is not repeated. Anchors stand at the begin or end of what is matched. Errors:
/// invalid_request names the place; unsupported names what is not a regular language or not known here: look-behind, back
/// references, \b, flags; those of combine.
Result<ExprId> parse_regex(Expressions& expressions, std::string_view regex, RegexUse use, WorkMeter& meter);

}  // namespace baton::grammar
