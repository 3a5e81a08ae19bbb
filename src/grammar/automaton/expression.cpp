/// Expressions over bytes, and characters as bytes of UTF-8.
#include "grammar/automaton/expression.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.h"
#include "core/limits/stack_space.h"
#include "grammar/automaton/char_ranges.h"

namespace baton::grammar {

bool Expressions::may_add(std::size_t n_bytes) {
  const bool is_within = meter_.spend(2) && meter_.write(n_bytes);
  return is_within || exprs_.empty();
}

ExprId Expressions::add(Expr expr) {
  // A sixteenth of a block may stay free.
  const std::size_t n_own = expr.text.size() + expr.children.size_bytes();
  if (may_add(sizeof(Expr) + n_own + n_own / 16)) {
    const std::span<const char> text = texts_.copy(expr.text);
    expr.text = {text.data(), text.size()};
    expr.children = children_.copy(expr.children);
    exprs_.push_back(expr);
  }
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Expressions::bytes(std::string_view text) { return add({.kind = Expr::Kind::bytes, .text = text}); }

ExprId Expressions::byte_set(const ByteSet& set) {
  if (may_add(sizeof(ByteSet)) || sets_.empty()) sets_.push_back(set);
  return add({.kind = Expr::Kind::byte_set, .index = static_cast<std::int32_t>(sets_.size() - 1)});
}

ExprId Expressions::token(std::string_view text) {
  auto known = index_of_token_.find(text);
  if (known == index_of_token_.end()) {
    meter_.write(2 * text.size() + 128);
    known = index_of_token_.emplace(std::string(text), static_cast<std::int32_t>(token_texts_.size())).first;
    token_texts_.emplace_back(text);
  }
  return add({.kind = Expr::Kind::token, .index = known->second});
}

ExprId Expressions::sequence(const std::vector<ExprId>& parts) {
  if (parts.size() == 1) return parts[0];
  return add({.kind = Expr::Kind::sequence, .children = parts});
}

ExprId Expressions::choice(const std::vector<ExprId>& alternatives) {
  if (alternatives.size() == 1) return alternatives[0];
  return add({.kind = Expr::Kind::choice, .children = alternatives});
}

ExprId Expressions::repeat(ExprId part, int min, int max) {
  return add({.kind = Expr::Kind::repeat, .min = min, .max = max, .children = {&part, 1}});
}

ExprId Expressions::rule(RuleId rule) { return add({.kind = Expr::Kind::rule, .index = rule}); }

ExprId Expressions::automaton(const Dfa& dfa) {
  meter_.spend(16 * static_cast<std::int64_t>(dfa.n_states()));
  if (may_add(CompactDfa::n_bytes(dfa)) || automata_.empty()) automata_.emplace_back(dfa);
  return add({.kind = Expr::Kind::automaton, .index = static_cast<std::int32_t>(automata_.size() - 1)});
}

Result<ExprId> Expressions::counted_rule(std::string name, const Dfa& dfa, const std::vector<bool>& counts,
                                         const LengthBounds& bounds) {
  if (dfa.is_empty() || !bounds.is_possible()) return nothing();
  if (!meter_.spend(16 * static_cast<std::int64_t>(dfa.n_states())) || !meter_.write(CompactDfa::n_bytes(dfa)))
    return over_budget(meter_);
  CompactDfa compact(dfa, counts);
  for (std::size_t state = 0; state < dfa.n_states(); ++state)
    check(!compact.is_final(state) || compact.edges(state).empty(), "a counted text that begins another one");
  BATON_TRY(LengthCounter counter, LengthCounter::of(compact, bounds, meter_));
  if (!counter.allows(0, 0)) return nothing();
  if (!meter_.write(counter.n_bytes())) return over_budget(meter_);
  counted_.push_back({std::move(compact), std::make_shared<const LengthCounter>(std::move(counter))});
  const RuleId rule_id = add_rule(std::move(name));
  define(rule_id, add({.kind = Expr::Kind::counted, .index = static_cast<std::int32_t>(counted_.size() - 1)}));
  return rule(rule_id);
}

Result<ExprId> Expressions::defined_body(RuleId rule) const {
  if (body(rule) != kUndefined) return body(rule);
  return fail(ErrorCode::invalid_request, fmt::format("the grammar uses the rule '{}' and does not define it", name(rule)));
}

RuleId Expressions::add_rule(std::string name) {
  meter_.write(sizeof(ExprId) + 2 * sizeof(std::string) + name.size());
  bodies_.push_back(kUndefined);
  names_.push_back(std::move(name));
  return static_cast<RuleId>(bodies_.size() - 1);
}

namespace {

using ByteRange = std::pair<unsigned char, unsigned char>;
using Utf8Sequence = std::vector<ByteRange>;

/// Appends sequences of byte ranges that together are [first, last]: pieces of one length whose last bytes are either
/// equal or the whole range of continuation bytes.
void add_sequences(char32_t first, char32_t last, std::vector<Utf8Sequence>& out) {
  for (const char32_t limit : {char32_t{0x7f}, char32_t{0x7ff}, char32_t{0xffff}})
    if (first <= limit && last > limit) {
      add_sequences(first, limit, out);
      add_sequences(limit + 1, last, out);
      return;
    }
  if (last >= 0x80)
    for (int n_tail = 1; n_tail <= 3; ++n_tail) {
      const char32_t mask = (char32_t{1} << (6 * n_tail)) - 1;
      if ((first & ~mask) == (last & ~mask)) break;
      if ((first & mask) != 0) {
        add_sequences(first, first | mask, out);
        add_sequences((first | mask) + 1, last, out);
        return;
      }
      if ((last & mask) != mask) {
        add_sequences(first, (last & ~mask) - 1, out);
        add_sequences(last & ~mask, last, out);
        return;
      }
    }
  std::string low;
  std::string high;
  append_utf8(low, first);
  append_utf8(high, last);
  Utf8Sequence sequence;
  for (std::size_t i = 0; i < low.size(); ++i)
    sequence.emplace_back(static_cast<unsigned char>(low[i]), static_cast<unsigned char>(high[i]));
  out.push_back(std::move(sequence));
}

/// Whether some text matches an expression, by what is known of those before it and of the rules.
bool is_productive(const Expressions& all, const Expr& expr, const std::vector<bool>& rules, const std::vector<bool>& exprs) {
  const auto is_known = [&](ExprId part) { return exprs[static_cast<std::size_t>(part)]; };
  switch (expr.kind) {
    case Expr::Kind::bytes:
    case Expr::Kind::token: return true;
    case Expr::Kind::byte_set: return all.set_of(expr).any();
    case Expr::Kind::sequence: return std::all_of(expr.children.begin(), expr.children.end(), is_known);
    case Expr::Kind::choice: return std::any_of(expr.children.begin(), expr.children.end(), is_known);
    case Expr::Kind::repeat: return expr.min == 0 || is_known(expr.children[0]);
    case Expr::Kind::rule: return rules[static_cast<std::size_t>(expr.index)];
    case Expr::Kind::counted:
    case Expr::Kind::automaton: return !all.automaton_of(expr).is_empty();
  }
  return true;
}

}  // namespace

/// Parts stand in front of what they are parts of, so a pass in order sees all that the rules known so far say.
Result<std::vector<bool>> Expressions::productive_rules() const {
  std::vector<bool> rules(bodies_.size(), false);
  std::vector<bool> exprs(exprs_.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t id = 0; id < exprs_.size(); ++id) {
      if (exprs[id]) continue;  // what is productive stays so
      if (!meter_.spend(1 + static_cast<std::int64_t>(exprs_[id].children.size() / 4))) return over_budget(meter_);
      exprs[id] = is_productive(*this, exprs_[id], rules, exprs);
    }
    for (std::size_t rule = 0; rule < bodies_.size(); ++rule) {
      if (rules[rule] || bodies_[rule] == kUndefined || !exprs[static_cast<std::size_t>(bodies_[rule])]) continue;
      rules[rule] = changed = true;
    }
  }
  return rules;
}

Result<ExprId> Expressions::characters(const CharRanges& ranges, WorkMeter& meter) {
  if (!meter.spend(2 + static_cast<std::int64_t>(ranges.size()))) return over_budget(meter);
  if (const auto known = characters_.find(ranges); known != characters_.end()) return known->second;
  std::vector<Utf8Sequence> sequences;
  ByteSet ascii;
  for (const auto& [first, last] : ranges) {
    for (char32_t c = first; c <= std::min<char32_t>(last, 0x7f); ++c) ascii.set(c);
    const auto add_part = [&](char32_t low, char32_t high) {
      if (std::max(first, low) <= std::min(last, high)) add_sequences(std::max(first, low), std::min(last, high), sequences);
    };
    add_part(0x80, 0xD7FF);
    add_part(0xE000, 0x10FFFF);
  }
  if (!meter.spend(1 + static_cast<std::int64_t>(sequences.size()))) return over_budget(meter);
  ExprId result = 0;
  if (sequences.empty()) {
    result = byte_set(ascii);
  } else {
    std::vector<ExprId> alternatives{byte_set(ascii)};
    for (const Utf8Sequence& one : sequences) {
      std::vector<ExprId> parts;
      for (const auto& [low, high] : one) {
        ByteSet set;
        for (int byte = low; byte <= high; ++byte) set.set(static_cast<std::size_t>(byte));
        parts.push_back(byte_set(set));
      }
      alternatives.push_back(sequence(std::move(parts)));
    }
    BATON_TRY(const Dfa dfa, determinize(*this, choice(std::move(alternatives)), meter));
    result = automaton(dfa);
  }
  if (!meter.write(64 + ranges.size() * sizeof(CharRanges::value_type))) return over_budget(meter);
  characters_.emplace(ranges, result);
  return result;
}

namespace {

/// Puts the bodies of rules in their places, each once.
class RuleBodies {
 public:
  RuleBodies(Expressions& expressions, WorkMeter& meter) : expressions_(expressions), meter_(meter) {}

  Result<ExprId> of(ExprId id) {
    if (!stack_.has_room(8192)) return fail(ErrorCode::too_large, "the grammar is nested too deep");
    if (!meter_.spend(4)) return over_budget(meter_);
    const Expr expr = expressions_[id];
    if (expr.kind == Expr::Kind::rule) return of_rule(expr.index);
    if (expr.children.empty()) return id;
    std::vector<ExprId> parts;
    for (const ExprId child : expr.children) {
      BATON_TRY(const ExprId part, of(child));
      parts.push_back(part);
    }
    if (expr.kind == Expr::Kind::repeat) return expressions_.repeat(parts[0], expr.min, expr.max);
    return expr.kind == Expr::Kind::choice ? expressions_.choice(parts) : expressions_.sequence(parts);
  }

 private:
  Result<ExprId> of_rule(RuleId rule) {
    const auto known = bodies_.find(rule);
    if (known != bodies_.end()) {
      if (known->second == Expressions::kUndefined)
        return fail(ErrorCode::unsupported, fmt::format("the rule '{}' refers to itself", expressions_.name(rule)));
      return known->second;
    }
    BATON_TRY(const ExprId body, expressions_.defined_body(rule));
    if (!meter_.write(64)) return over_budget(meter_);
    bodies_[rule] = Expressions::kUndefined;
    BATON_TRY(const ExprId inside, of(body));
    bodies_[rule] = inside;
    return inside;
  }

  Expressions& expressions_;
  WorkMeter& meter_;
  StackSpace stack_;
  std::map<RuleId, ExprId> bodies_;  // kUndefined: under way
};

}  // namespace

Result<ExprId> without_rules(Expressions& expressions, ExprId expr, WorkMeter& meter) {
  return RuleBodies(expressions, meter).of(expr);
}

}  // namespace baton::grammar
