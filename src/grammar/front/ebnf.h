/// Grammars in GBNF, the notation of llama.cpp, and in the part of Lark's notation that says the same.
#pragma once

#include <string_view>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/expression.h"

namespace baton::grammar {

/// Adds the rules of `text` and returns the one where texts begin.
///
/// GBNF: `name ::= ...` with "literals" (escapes \n \r \t \" \' \\ \[ \] \xHH \uHHHH \UHHHHHHHH), [classes], `.` (any
/// character), names, groups, |, * + ? {m} {m,} {m,n} and # comments; texts begin at `root`. A definition ends where
/// the next begins. Lark, where the first definition is `name: ...`: the same with 'literals' of either quote,
/// /regular expressions/, [ ] for what may be left out, // comments, aliases (`-> name`, without meaning here), and
/// `start`.
///
/// Errors: invalid_request with the line; unsupported for what else Lark has (%directives, templates, priorities,
/// ranges, flags), and what regular expressions refuse; the budget's. Rules that begin with themselves are refused
/// later, by Program::build.
Result<RuleId> parse_ebnf(Expressions& expressions, std::string_view text, WorkMeter& meter);

}  // namespace baton::grammar
