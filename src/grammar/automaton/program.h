/// A compiled grammar: automata over bytes and special tokens that call each other, in flat arrays, without dead ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/expression.h"
#include "grammar/automaton/nfa.h"

namespace baton::grammar {

/// What running the grammar needs. From each state some text leads to the end of its rule. Immutable. Thread: any.
class Program {
 public:
  /// From `root` of the expressions. Errors: too_large over `max_states`; invalid_request where no text matches,
  /// where a rule without a body is used, and for rules that begin with themselves (left recursion), with the rule's
  /// name; the budget's.
  static Result<Program> build(const Expressions& expressions, RuleId root, std::size_t max_states, WorkMeter& meter);

  /// The states with edges or an end that `state` reaches by empty edges, itself included; calls of rules that match the
  /// empty text count. Where they are many, some of them, and for each other way on an entry ~s (below 0): what is in the
  /// closure of s belongs to it too. So closures stay short where each of many states reaches all that follow it.
  std::span<const StateId> closure(StateId state) const { return list(closures_, closure_at_, state); }
  /// Closures that name others are long, and some that do not.
  static constexpr std::size_t kMostInShortClosure = 64;
  bool has_short_closure(StateId state) const {
    const std::span<const StateId> all = closure(state);
    return all.size() <= kMostInShortClosure && (all.empty() || all[0] >= 0);
  }
  std::span<const ByteEdge> bytes(StateId state) const { return list(bytes_, bytes_at_, state); }
  std::span<const TokenEdge> tokens(StateId state) const { return list(tokens_, tokens_at_, state); }
  std::span<const CallEdge> calls(StateId state) const { return list(calls_, calls_at_, state); }
  bool is_final(StateId state) const { return is_final_[static_cast<std::size_t>(state)]; }
  /// Whether nothing but the end of its rule is after `state`.
  bool is_tail(StateId state) const { return is_tail_[static_cast<std::size_t>(state)]; }
  /// A state that is like this one, and up to how many bytes it is (see NfaState); itself where there is none.
  struct Twin {
    StateId state;
    std::int32_t n_bytes;
  };
  Twin twin(StateId state) const { return twins_[static_cast<std::size_t>(state)]; }

  /// The states of the automaton that `state` belongs to, if its texts are counted.
  const CountedStates* counted(StateId state) const {
    if (counted_at_.empty() || counted_at_[static_cast<std::size_t>(state)] < 0) return nullptr;
    return &counted_[static_cast<std::size_t>(counted_at_[static_cast<std::size_t>(state)])];
  }
  bool has_counters() const { return !counted_.empty(); }

  /// The texts of the special tokens that the grammar names, by the index in their edges.
  std::span<const std::string> token_texts() const { return token_texts_; }

  StateId start(RuleId rule) const { return starts_[static_cast<std::size_t>(rule)]; }
  RuleId root() const { return root_; }
  bool root_matches_empty() const { return root_matches_empty_; }
  /// A rule that begins with a call of another has the lower rank.
  std::int32_t rank(RuleId rule) const { return ranks_[static_cast<std::size_t>(rule)]; }

  std::size_t n_states() const { return is_final_.size(); }
  std::size_t n_rules() const { return starts_.size(); }
  /// Bytes that no state tells apart have one class.
  int n_classes() const { return n_classes_; }
  int class_of(unsigned char byte) const { return class_of_byte_[byte]; }
  unsigned char byte_of(int byte_class) const { return byte_of_class_[static_cast<std::size_t>(byte_class)]; }
  std::size_t n_bytes() const;

 private:
  template <class T>
  static std::span<const T> list(const std::vector<T>& all, const std::vector<std::int32_t>& at, StateId state) {
    const auto i = static_cast<std::size_t>(state);
    return {all.data() + at[i], static_cast<std::size_t>(at[i + 1] - at[i])};
  }
  Result<void> flatten(const NfaStates& states, WorkMeter& meter);
  Result<void> add_counters(const NfaBuilder& builder, WorkMeter& meter);
  Result<void> close(const NfaStates& states, WorkMeter& meter);
  Result<void> add_closure(const NfaStates& states, StateId state, std::vector<StateId>& seen_by, WorkMeter& meter);
  void class_bytes(const NfaStates& states);
  Result<void> rank_rules(const Expressions& expressions, WorkMeter& meter);

  RuleId root_ = 0;
  bool root_matches_empty_ = false;
  int n_classes_ = 0;
  std::array<std::uint8_t, 256> class_of_byte_{};
  std::array<std::uint8_t, 256> byte_of_class_{};
  std::vector<StateId> starts_;  // [rule], -1: never called
  std::vector<std::int32_t> ranks_;
  std::vector<ByteEdge> bytes_;
  std::vector<TokenEdge> tokens_;
  std::vector<std::string> token_texts_;
  std::vector<CallEdge> calls_;
  std::vector<StateId> closures_;
  std::vector<std::int32_t> bytes_at_;  // [state + 1], as the next three: where its part of the list begins
  std::vector<std::int32_t> tokens_at_;
  std::vector<std::int32_t> calls_at_;
  std::vector<std::int32_t> closure_at_;
  std::vector<Twin> twins_;
  std::vector<CountedStates> counted_;
  std::vector<std::int32_t> counted_at_;  // [state]: index of counted_ or -1; empty without counters
  std::vector<bool> is_final_;
  std::vector<bool> is_tail_;
};

}  // namespace baton::grammar
