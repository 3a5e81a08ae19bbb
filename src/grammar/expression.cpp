/// Expressions over bytes, and characters as bytes of UTF-8.
#include "grammar/expression.h"

#include <algorithm>
#include <array>
#include <optional>

#include "grammar/char_ranges.h"

namespace baton::grammar {

ExprId Expressions::add(Expr expr) {
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Expressions::bytes(std::string_view text) { return add({.kind = Expr::Kind::bytes, .text = std::string(text)}); }

ExprId Expressions::byte_set(const ByteSet& set) {
  sets_.push_back(set);
  return add({.kind = Expr::Kind::byte_set, .index = static_cast<std::int32_t>(sets_.size() - 1)});
}

ExprId Expressions::token(std::string_view text) {
  const auto known = std::find(token_texts_.begin(), token_texts_.end(), text);
  const auto index = static_cast<std::int32_t>(known - token_texts_.begin());
  if (known == token_texts_.end()) token_texts_.emplace_back(text);
  return add({.kind = Expr::Kind::token, .index = index});
}

ExprId Expressions::sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  return add({.kind = Expr::Kind::sequence, .children = std::move(parts)});
}

ExprId Expressions::choice(std::vector<ExprId> alternatives) {
  if (alternatives.size() == 1) return alternatives[0];
  return add({.kind = Expr::Kind::choice, .children = std::move(alternatives)});
}

ExprId Expressions::repeat(ExprId part, int min, int max) {
  return add({.kind = Expr::Kind::repeat, .min = min, .max = max, .children = {part}});
}

ExprId Expressions::rule(RuleId rule) { return add({.kind = Expr::Kind::rule, .index = rule}); }

ExprId Expressions::automaton(Dfa dfa) {
  automata_.push_back(std::move(dfa));
  return add({.kind = Expr::Kind::automaton, .index = static_cast<std::int32_t>(automata_.size() - 1)});
}

RuleId Expressions::add_rule(std::string name) {
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

bool is_productive(const Expressions& all, ExprId id, const std::vector<bool>& rules, std::vector<std::int8_t>& known) {
  std::int8_t& memo = known[static_cast<std::size_t>(id)];
  if (memo >= 0) return memo == 1;
  const Expr& expr = all[id];
  const auto child = [&](ExprId part) { return is_productive(all, part, rules, known); };
  bool result = true;
  switch (expr.kind) {
    case Expr::Kind::bytes:
    case Expr::Kind::token: break;
    case Expr::Kind::byte_set: result = all.set_of(expr).any(); break;
    case Expr::Kind::sequence: result = std::all_of(expr.children.begin(), expr.children.end(), child); break;
    case Expr::Kind::choice: result = std::any_of(expr.children.begin(), expr.children.end(), child); break;
    case Expr::Kind::repeat: result = expr.min == 0 || child(expr.children[0]); break;
    case Expr::Kind::rule: result = rules[static_cast<std::size_t>(expr.index)]; break;
    case Expr::Kind::automaton: result = !all.automaton_of(expr).is_empty(); break;
  }
  known[static_cast<std::size_t>(id)] = result ? 1 : 0;
  return result;
}

}  // namespace

std::vector<bool> Expressions::productive_rules() const {
  std::vector<bool> rules(bodies_.size(), false);
  std::vector<std::int8_t> known(exprs_.size(), -1);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::int8_t& memo : known) memo = memo == 1 ? 1 : -1;  // what is productive stays so
    for (std::size_t rule = bodies_.size(); rule-- > 0;) {
      if (rules[rule] || bodies_[rule] == kUndefined || !is_productive(*this, bodies_[rule], rules, known)) continue;
      rules[rule] = changed = true;
    }
  }
  return rules;
}

Result<ExprId> Expressions::characters(const CharRanges& ranges, WorkMeter& meter) {
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
    BATON_TRY(Dfa dfa, determinize(*this, choice(std::move(alternatives)), meter));
    result = automaton(std::move(dfa));
  }
  characters_.emplace(ranges, result);
  return result;
}

}  // namespace baton::grammar
