/// Rules put into each other's places.
#include "grammar/ebnf/regular_grammar.h"

#include "grammar/ebnf/ebnf.h"

namespace baton::grammar {
namespace {

Result<ExprId> without_any_rules(Expressions& expressions, std::string_view text, WorkMeter& meter) {
  BATON_TRY(const RuleId start, parse_ebnf(expressions, text, meter));
  return without_rules(expressions, expressions.rule(start), meter);
}

}  // namespace

Result<Dfa> regular_grammar(std::string_view text, WorkMeter& meter) {
  Expressions expressions(meter);
  BATON_TRY(const ExprId regular, without_any_rules(expressions, text, meter));
  return determinize(expressions, regular, meter);
}

Result<bool> is_regular_grammar(std::string_view text) {
  WorkBudget budget({.steps = std::int64_t{1} << 21, .bytes = std::int64_t{1} << 24});
  WorkMeter meter(budget);
  Expressions expressions(meter);
  const auto regular = without_any_rules(expressions, text, meter);
  if (!regular && regular.error().code == ErrorCode::invalid_request) return tl::unexpected<Error>(regular.error());
  return regular.has_value();
}

}  // namespace baton::grammar
