/// Grammars in GBNF or Lark as automata: what the text of one string of JSON may be.
#pragma once

#include <string_view>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/expression.h"

namespace baton::grammar {

/// The keyword for strings of a JSON schema that names such a grammar. It is Baton's own; the grammar of a custom tool stands there.
inline constexpr std::string_view kGrammarKeyword = "x-grammar";

/// The texts of a grammar (parse_ebnf) whose rules do not refer to themselves. Errors: unsupported for one whose rules do; those of
/// parse_ebnf and determinize.
Result<Dfa> regular_grammar(std::string_view text, WorkMeter& meter);

/// Whether a grammar can be read and its rules do not refer to themselves, by a look that takes 50 ms at most. Errors:
/// invalid_request for what is no grammar.
Result<bool> is_regular_grammar(std::string_view text);

}  // namespace baton::grammar
