/// Deterministic automata over bytes: the regular parts of a grammar (patterns, formats, number bounds, property
/// names).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"

namespace baton::grammar {

/// An automaton over bytes. State 0 is the start. Languages over text are sets of valid UTF-8. Its rows, of 1 KB for each
/// state, are taken from a meter while it lives; the meter must outlive it.
struct Dfa {
  static constexpr std::int32_t kDead = -1;
  /// What one automaton may have: patterns and counts whose product needs more are refused.
  static constexpr std::size_t kMaxStates = 20'000;

  using Row = std::array<std::int32_t, 256>;

  explicit Dfa(WorkMeter& meter) : held(meter) {}

  std::vector<Row> next;       ///< [state][byte]: a state or kDead
  std::vector<bool> is_final;  ///< [state]
  HeldBytes held;              ///< of the rows

  std::size_t n_states() const { return next.size(); }
  /// Adds a state without edges.
  std::int32_t add_state(bool final);
  std::int32_t step(std::int32_t state, unsigned char byte) const {
    return state == kDead ? kDead : next[static_cast<std::size_t>(state)][byte];
  }
  bool accepts(std::string_view text) const;
  /// Whether no text is accepted.
  bool is_empty() const;
};

/// A Dfa as the ranges of bytes with one target: what is kept of it, in a few bytes for each edge. Immutable.
class CompactDfa {
 public:
  struct Edge {
    unsigned char first;
    unsigned char last;
    bool counts;  ///< as a character of the text's length
    std::int32_t target;
  };

  explicit CompactDfa(const Dfa& dfa) : CompactDfa(dfa, {}) {}
  /// `counts[state]`: whether the edges of a state count; empty: none do.
  CompactDfa(const Dfa& dfa, const std::vector<bool>& counts);

  /// The size of the compact form of `dfa`.
  static std::size_t n_bytes(const Dfa& dfa);
  std::size_t n_states() const { return is_final_.size(); }
  std::size_t n_edges() const { return edges_.size(); }
  /// In the order of their bytes.
  std::span<const Edge> edges(std::size_t state) const {
    return {edges_.data() + at_[state], static_cast<std::size_t>(at_[state + 1] - at_[state])};
  }
  bool is_final(std::size_t state) const { return is_final_[state]; }
  /// Whether no text is accepted.
  bool is_empty() const { return is_empty_; }

 private:
  std::vector<Edge> edges_;
  std::vector<std::int32_t> at_;  // [state + 1]: where its edges begin
  std::vector<bool> is_final_;
  bool is_empty_;
};

/// How a product of two automata decides: both accept, or the first and not the second.
enum class DfaProduct { intersection, difference };

/// The product's language. Errors: too_large (more than Dfa::kMaxStates states), or the budget's.
Result<Dfa> combine(const Dfa& a, const Dfa& b, DfaProduct product, WorkMeter& meter);
/// The same language in the least number of states. States that accept nothing are dropped; the empty language keeps
/// its start. Automata of more than 4,000 states are only trimmed. Steps: n log n. Errors: the budget's.
Result<Dfa> minimize(const Dfa& dfa, WorkMeter& meter);

/// Whether characters of UTF-8 begin at a state; in the middle of one they continue.
bool is_between_characters(const Dfa& texts, std::size_t state);

/// From a language of texts to the language of their JSON forms, without the quotes: characters below U+0020, the
/// quote and the backslash are escaped as RFC 8259 does in the shortest way, all other characters stand for
/// themselves.
Result<Dfa> json_escaped(const Dfa& dfa, WorkMeter& meter);

/// The budget's error, in the words of a compiler of grammars.
tl::unexpected<Error> over_budget(const WorkMeter& meter);

}  // namespace baton::grammar
