/// Numbers within bounds, as texts.
#pragma once

#include <string>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/dfa.h"

namespace baton::grammar {

/// A bound as plain_decimal writes it.
struct NumberBound {
  std::string decimal;
  bool is_exclusive = false;
};

/// What the keywords of a schema ask of a number. Numbers are written without exponent then.
struct NumberLanguage {
  bool is_integer = false;
  std::vector<NumberBound> at_least;
  std::vector<NumberBound> at_most;
  std::vector<std::string> multiples_of;

  bool is_any() const { return !is_integer && at_least.empty() && at_most.empty() && multiples_of.empty(); }
};

/// The texts of all such numbers. Errors: unsupported for a multiple whose digits are over 20,000; too_large, the
/// budget's.
Result<Dfa> number_automaton(const NumberLanguage& language, WorkMeter& meter);

}  // namespace baton::grammar
