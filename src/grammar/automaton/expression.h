/// The one form that every front end writes: rules whose bodies are expressions over bytes and special tokens.
#pragma once

#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/block_list.h"
#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/dfa.h"
#include "grammar/automaton/length_counter.h"

namespace baton::grammar {

using ExprId = std::int32_t;
using RuleId = std::int32_t;
using ByteSet = std::bitset<256>;
/// Ranges of code points, both ends included.
using CharRanges = std::vector<std::pair<char32_t, char32_t>>;

/// The upper bound of a repetition without one.
inline constexpr int kUnlimited = -1;
/// The largest bound of a repetition.
inline constexpr int kMaxRepeat = 100'000;

/// Its text and children are kept by its Expressions.
struct Expr {
  enum class Kind : std::uint8_t { bytes, byte_set, token, sequence, choice, repeat, rule, automaton, counted } kind;
  int min = 0;                            // repeat
  int max = 0;                            // repeat
  std::int32_t index = 0;                 // byte_set, token, rule, automaton, counted
  std::string_view text = {};             // bytes
  std::span<const ExprId> children = {};  // sequence, choice (none: no text at all), repeat (one)
};

/// The expressions and rules of one grammar. An expression may be used in several places; its parts are made before it.
/// Rules may refer to each other before they are defined. All that is made takes its steps and bytes from the meter; when
/// the budget is over nothing grows any more, and what is returned is of no use.
class Expressions {
 public:
  /// `meter` must outlive it.
  explicit Expressions(WorkMeter& meter) : meter_(meter) {}

  /// The language without any text, and the one of the empty text.
  ExprId nothing() { return choice({}); }
  ExprId empty() { return bytes(""); }
  ExprId bytes(std::string_view text);
  ExprId byte_set(const ByteSet& set);
  /// The special token that a vocabulary writes so. No bytes spell it, and it spells no bytes.
  ExprId token(std::string_view text);
  ExprId sequence(const std::vector<ExprId>& parts);
  ExprId choice(const std::vector<ExprId>& alternatives);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId repeat(ExprId part, int min, int max);
  ExprId rule(RuleId rule);
  ExprId automaton(const Dfa& dfa);
  /// A rule of the texts of `dfa` of which so many characters are within bounds; nothing() where there are none. None of its
  /// texts begins another one, and every state is on the way to an end. `counts`: see CompactDfa. Errors: the budget's.
  Result<ExprId> counted_rule(std::string name, const Dfa& dfa, const std::vector<bool>& counts, const LengthBounds& bounds);
  /// One character of these, in UTF-8; surrogates are left out. Errors: the budget's.
  Result<ExprId> characters(const CharRanges& ranges, WorkMeter& meter);

  RuleId add_rule(std::string name);
  void define(RuleId rule, ExprId body) { bodies_[static_cast<std::size_t>(rule)] = body; }

  const Expr& operator[](ExprId id) const { return exprs_[static_cast<std::size_t>(id)]; }
  const ByteSet& set_of(const Expr& expr) const { return sets_[static_cast<std::size_t>(expr.index)]; }
  /// The texts of the special tokens, by the index of their expressions.
  const std::vector<std::string>& token_texts() const { return token_texts_; }
  const CompactDfa& automaton_of(const Expr& expr) const {
    return expr.kind == Expr::Kind::counted ? counted_[static_cast<std::size_t>(expr.index)].dfa
                                            : automata_[static_cast<std::size_t>(expr.index)];
  }
  const std::shared_ptr<const LengthCounter>& counter_of(const Expr& expr) const {
    return counted_[static_cast<std::size_t>(expr.index)].counter;
  }
  std::size_t n_rules() const { return bodies_.size(); }
  /// kUndefined where the rule has no body yet.
  static constexpr ExprId kUndefined = -1;
  ExprId body(RuleId rule) const { return bodies_[static_cast<std::size_t>(rule)]; }
  /// The rule's body. Errors: invalid_request, if it has none.
  Result<ExprId> defined_body(RuleId rule) const;
  const std::string& name(RuleId rule) const { return names_[static_cast<std::size_t>(rule)]; }

  /// For each rule, whether some text matches it. Errors: the budget's.
  Result<std::vector<bool>> productive_rules() const;

 private:
  /// Counts one more of `n_bytes`. False: the budget is over, and there is one already.
  bool may_add(std::size_t n_bytes);
  ExprId add(Expr expr);

  WorkMeter& meter_;
  BlockList<Expr> exprs_;
  ListArena<char> texts_;
  ListArena<ExprId> children_;
  BlockList<ByteSet> sets_;
  std::vector<std::string> token_texts_;
  std::map<std::string, std::int32_t, std::less<>> index_of_token_;
  struct Counted {
    CompactDfa dfa;
    std::shared_ptr<const LengthCounter> counter;
  };
  std::deque<CompactDfa> automata_;
  std::deque<Counted> counted_;
  std::vector<ExprId> bodies_;
  std::vector<std::string> names_;
  std::map<CharRanges, ExprId> characters_;
};

/// The same expression, with the bodies of rules in their places. Errors: unsupported where a rule refers to itself,
/// invalid_request where one is not defined; the budget's.
Result<ExprId> without_rules(Expressions& expressions, ExprId expr, WorkMeter& meter);

/// The automaton of an expression without rules and special tokens, minimal. Errors: too_large (over Dfa::kMaxStates), the budget's.
Result<Dfa> determinize(const Expressions& expressions, ExprId expr, WorkMeter& meter);

}  // namespace baton::grammar
