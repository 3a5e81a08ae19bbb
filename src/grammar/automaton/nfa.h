/// Automata with empty edges and calls, built from expressions.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/limits/stack_space.h"
#include "core/limits/work_budget.h"
#include "core/result.h"
#include "core/short_vector.h"
#include "grammar/automaton/expression.h"

namespace baton::grammar {

using StateId = std::int32_t;

struct ByteEdge {
  unsigned char first;
  unsigned char last;
  bool counts = false;  ///< as a character of the text's length
  StateId target;
};

/// A special token, as an index of Expressions::token_texts.
struct TokenEdge {
  std::int32_t token;
  StateId target;
};

/// A call of a rule: after what the rule matches the automaton is in `target`.
struct CallEdge {
  RuleId rule;
  StateId target;
};

struct NfaState {
  ShortVector<ByteEdge> bytes;  // mostly one
  std::vector<TokenEdge> tokens;
  std::vector<CallEdge> calls;
  std::vector<StateId> empties;
  bool is_final = false;
  /// A state that is like this one, or -1: texts of up to `twin_bytes` bytes have the same effect in both (0: many
  /// have).
  StateId twin = -1;
  int twin_bytes = 0;
};

/// The states of an automaton whose texts are counted.
struct CountedStates {
  StateId first;
  StateId end;
  std::shared_ptr<const LengthCounter> counter;
};

/// By their ids. A deque, so that growing never needs the memory twice.
using NfaStates = std::deque<NfaState>;

/// The states that expressions were built to, by expression and state after it. One array, which is freed at once.
class KnownStates {
 public:
  explicit KnownStates(WorkMeter& meter) : meter_(meter), held_(meter) {}

  /// -1: none.
  StateId find(ExprId expr, StateId next) const { return slots_.empty() ? -1 : slots_[place_of(key_of(expr, next))].state; }
  /// Errors: the budget's.
  Result<void> add(ExprId expr, StateId next, StateId state);

 private:
  struct Slot {
    std::uint64_t key = 0;
    StateId state = -1;  // -1: free
  };
  static std::uint64_t key_of(ExprId expr, StateId next) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(expr)) << 32 | static_cast<std::uint32_t>(next);
  }
  /// Where the key is, or is to be.
  std::size_t place_of(std::uint64_t key) const;
  Result<void> grow();

  WorkMeter& meter_;
  HeldBytes held_;
  std::vector<Slot> slots_;  // a power of two of them, at most half in use
  std::size_t n_used_ = 0;
};

/// Turns expressions into states, from the end to the front. Repetitions are unrolled; the twin of a copy is the one
/// that is farthest from the same bound. The twin of a state of an automaton is the one where most of its edges lead.
/// The states take their bytes from the meter while the builder lives.
class NfaBuilder {
 public:
  /// Errors of build: too_large beyond `max_states`, the budget's, and invalid_request for nesting beyond the stack.
  NfaBuilder(const Expressions& expressions, std::size_t max_states, WorkMeter& meter)
      : expressions_(expressions), max_states_(max_states), meter_(meter), held_(meter), known_(meter) {}

  StateId add_final();
  /// The state from which the texts of `expr` lead to `next`.
  Result<StateId> build(ExprId expr, StateId next);

  NfaStates& states() { return states_; }
  const std::vector<CountedStates>& counted() const { return counted_; }

 private:
  Result<StateId> add();
  NfaState& at(StateId id) { return states_[static_cast<std::size_t>(id)]; }
  Result<StateId> build_new(const Expr& expr, StateId next);
  Result<StateId> build_repeat(const Expr& expr, StateId next);
  Result<StateId> build_automaton(const CompactDfa& dfa, StateId next);
  Result<void> name_twins(const std::vector<std::pair<StateId, StateId>>& copies, const std::vector<int>& distances);
  void name_twins_of_automaton(const CompactDfa& dfa, StateId first);

  const Expressions& expressions_;
  const std::size_t max_states_;
  WorkMeter& meter_;
  HeldBytes held_;
  StackSpace stack_;
  NfaStates states_;
  std::vector<CountedStates> counted_;
  KnownStates known_;
};

}  // namespace baton::grammar
