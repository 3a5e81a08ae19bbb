/// Grammars in GBNF, the notation of llama.cpp, and in Lark's.
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
/// the next begins.
///
/// Lark, where the first definition is `name: ...`, or a directive: the same with 'literals' of either quote, also with
/// the flag i (of ASCII letters) and as ranges "a".."z", /regular expressions/, [ ] for what may be left out, `~ n` and
/// `~ n..m`, // comments, `%import common.NAME`, and `start`. Aliases (`-> name`) and priorities (`NAME.2`) have no
/// meaning here. `%ignore`: what it names, without rules that refer to themselves, may stand at the beginning and after
/// each terminal of a rule.
///
/// Errors: invalid_request with the line; unsupported for what else Lark has (other %directives and modules, templates,
/// flags of expressions), and what regular expressions refuse; the budget's. Rules that begin with themselves are
/// refused later, by Program::build.
Result<RuleId> parse_ebnf(Expressions& expressions, std::string_view text, WorkMeter& meter);

}  // namespace baton::grammar
