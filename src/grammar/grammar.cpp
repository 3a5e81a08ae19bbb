/// From a request's text to a program.
#include "grammar/grammar.h"

#include <malloc.h>

#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "grammar/automaton/configurations.h"
#include "grammar/automaton/expression.h"
#include "grammar/automaton/regex.h"
#include "grammar/ebnf/ebnf.h"
#include "grammar/front/structural_tag.h"
#include "grammar/schema/schema_compiler.h"
#include "io/json_parse.h"

namespace baton::grammar {

namespace {

/// Equal texts count once.
Result<ExprId> choice_of(Expressions& expressions, std::string_view text, WorkMeter& meter) {
  constexpr std::size_t kMostPerByte = 64;  // `""` as a value, a string, and one that was seen
  if (!meter.pass(16 * text.size()) || !meter.write(kMostPerByte * text.size())) return over_budget(meter);
  BATON_TRY(const json::Value list, json::parse_cancellable(text, "the choice", [&] { return !meter.check(); }));
  BATON_TRY(const std::vector<std::string> choices, json::convert<std::vector<std::string>>(list, "choice"));
  if (choices.empty()) return fail(ErrorCode::invalid_request, "the choice is an empty list");
  std::vector<ExprId> all;
  std::unordered_set<std::string_view> seen;
  for (const std::string& choice : choices) {
    if (!meter.spend(4)) return over_budget(meter);
    if (seen.insert(choice).second) all.push_back(expressions.bytes(choice));
  }
  return expressions.choice(all);
}

/// The rule of whole texts; appends to `ignored`.
Result<RuleId> parse(Expressions& expressions, const GrammarSource& source, std::vector<std::string>& ignored,
                     WorkMeter& meter) {
  const auto rule_for = [&](ExprId body) {
    const RuleId rule = expressions.add_rule(std::string(to_string(source.kind)));
    expressions.define(rule, body);
    return rule;
  };
  JsonText text(expressions, source.spaces, meter);
  switch (source.kind) {
    case GrammarKind::json_object: {
      BATON_TRY(const ExprId object, text.object());
      return rule_for(object);
    }
    case GrammarKind::json_schema: {
      BATON_TRY(SchemaGrammar schema, parse_json_schema(text, source.text, meter));
      ignored = std::move(schema.ignored);
      return schema.root;
    }
    case GrammarKind::regex: {
      BATON_TRY(const ExprId texts, parse_regex(expressions, source.text, RegexUse::whole, meter));
      return rule_for(texts);
    }
    case GrammarKind::choice: {
      BATON_TRY(const ExprId texts, choice_of(expressions, source.text, meter));
      return rule_for(texts);
    }
    case GrammarKind::ebnf: return parse_ebnf(expressions, source.text, meter);
    case GrammarKind::structural_tag: return parse_structural_tag(text, source.text, ignored, meter);
  }
  return fail(ErrorCode::internal, "a grammar of no kind");
}

/// Refuses what a matcher could not start: some text matches every program, but all its derivations may be beyond the limits.
Result<void> check_start(const Program& program) {
  Configurations configurations(program);
  if (configurations.start() != Configurations::kDead) return {};
  return fail(ErrorCode::too_large,
              fmt::format("the grammar begins with more than {} alternatives, or with rules more than {} deep",
                          Configurations::kMaxItems, Configurations::kMaxDepth));
}

Result<CompiledGrammar> compile_within(const GrammarSource& source, std::size_t max_states, WorkBudget& budget) {
  WorkMeter meter(budget);
  Expressions expressions(meter);
  CompiledGrammar compiled;
  BATON_TRY(const RuleId root, parse(expressions, source, compiled.ignored, meter));
  BATON_TRY(Program program, Program::build(expressions, root, max_states, meter));
  BATON_TRY_VOID(check_start(program));
  compiled.program = std::make_shared<const Program>(std::move(program));
  return compiled;
}

/// The C library keeps what is freed in small pieces. After a large compilation that is too much to keep.
void give_memory_back([[maybe_unused]] const WorkBudget& budget) {
#ifdef __GLIBC__
  constexpr std::int64_t kLeastBytes = std::int64_t{32} << 20;
  if (budget.most_bytes() >= kLeastBytes) malloc_trim(0);
#endif
}

}  // namespace

Result<CompiledGrammar> compile_grammar(const GrammarSource& source, const GrammarLimits& limits,
                                        std::function<bool()> is_cancelled, WorkBudget::TakeBytes take_bytes) {
  if (source.text.size() > limits.max_text_bytes)
    return fail(ErrorCode::too_large,
                fmt::format("the grammar has {} bytes; at most {} are accepted", source.text.size(), limits.max_text_bytes));
  WorkBudget budget(limits.work, std::move(is_cancelled), std::move(take_bytes));
  auto compiled = compile_within(source, limits.max_states, budget);
  give_memory_back(budget);
  return compiled;
}

}  // namespace baton::grammar
