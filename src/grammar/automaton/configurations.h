/// What a grammar may still be doing after a text, as numbers: a deterministic automaton without end, built as it is
/// used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/automaton/length_counter.h"
#include "grammar/automaton/program.h"

namespace baton::grammar {

/// The configurations of a program. A configuration is the set of all derivations that a text leaves open, each a
/// state and the stack of calls above it. Calls of one rule at one place share a stack, so that the set stays small
/// where a grammar is ambiguous (as in Earley's algorithm). The characters of a counted text are a part of its stack.
/// Equal sets have equal numbers, so transitions are looked up, and what is known about a configuration can be kept under its
/// number, or under the one that stands for all that differ from it in counts far from their bounds. Thread: one at a time.
class Configurations {
 public:
  using Id = std::int32_t;
  static constexpr Id kDead = -1;
  /// Texts that would nest deeper, or leave more derivations open, are not allowed.
  static constexpr int kMaxDepth = 1'000;
  static constexpr std::size_t kMaxItems = 8'192;
  /// Of one text, calls with the places that they return to.
  static constexpr std::size_t kMaxCallers = std::size_t{1} << 18;
  /// Entries of closures that finding the derivations after one byte may look at: some 10 ns each. Only texts that leave
  /// about as many derivations open as kMaxItems, each in many ways, need as many.
  static constexpr std::int64_t kMaxLookups = std::int64_t{1} << 20;

  /// A stack of calls. Stack 0 is the root's.
  using StackId = std::int32_t;
  /// A derivation: a state that waits for a byte or a special token, and its stack.
  struct Item {
    StateId state;
    StackId stack;
    friend auto operator<=>(const Item&, const Item&) = default;
  };

  /// `program` must outlive it.
  explicit Configurations(const Program& program);

  /// Before the first byte.
  Id start();
  /// `state` alone, as if its rule were the root and so many characters had been counted in it.
  Id alone(StateId state, LengthCounter::Count count = 0);
  /// After the end of a rule that was called with `stack`.
  Id behind(StackId stack);
  /// After one more byte; kDead if the grammar does not allow it.
  Id step(Id id, unsigned char byte) {
    const std::vector<Id>& next = configurations_[static_cast<std::size_t>(id)].next;
    if (!next.empty()) {
      const Id known = next[static_cast<std::size_t>(program_.class_of(byte))];
      if (known != kUnknown) return known;
    }
    return make_step(id, program_.class_of(byte));
  }
  /// After the special token of that index (Program::token_texts).
  Id step_token(Id id, std::int32_t token) {
    const auto symbol = static_cast<std::size_t>(program_.n_classes() + token);
    const std::vector<Id>& next = configurations_[static_cast<std::size_t>(id)].next;
    return !next.empty() && next[symbol] != kUnknown ? next[symbol] : make_step(id, static_cast<int>(symbol));
  }
  /// Whether the text so far is one of the grammar's.
  bool is_complete(Id id) const { return at(id).is_complete; }
  /// The derivations, sorted; none: nothing may follow.
  std::span<const Item> items(Id id) const { return at(id).items; }
  /// Whether the byte of an edge may be next for a derivation: lengths may forbid it.
  bool may_follow(const Item& item, const ByteEdge& edge) const;
  /// The characters counted in the automaton of a derivation's state.
  LengthCounter::Count count_of(const Item& item) const { return stacks_[static_cast<std::size_t>(item.stack)].count; }
  /// The one of all configurations that differ in counts only and allow the same tokens.
  Id representative(Id id);
  /// Whether texts of up to `n_bytes` lead from both to an end, or not: that differ in counts at most.
  bool are_alike(Id a, Id b, std::int32_t n_bytes) const;
  /// Whether a limit above has refused a byte so far.
  bool has_overflowed() const { return has_overflowed_; }

  /// Lets the steps that follow look at so many derivations; without a call at any number. Beyond that a step that is
  /// not known yet is kDead without being kept, and is_exhausted says so until the next call.
  void allow(std::int64_t n_derivations) {
    n_allowed_ = n_derivations;
    is_exhausted_ = false;
  }
  bool is_exhausted() const { return is_exhausted_; }
  /// What is left of that number.
  std::int64_t n_allowed() const { return n_allowed_; }

  /// Steps of work since the construction: states of derivations looked at, and what callers count.
  std::int64_t n_steps() const { return n_steps_; }
  void count(std::int64_t n_steps) { n_steps_ += n_steps; }

  /// Holds a configuration over collect, until it is released as often.
  /// Its representative, once it was asked for, is held with it.
  void retain(Id id) { add_users(id, 1); }
  void release(Id id) { add_users(id, -1); }
  bool is_retained(Id id) const { return at(id).n_users > 0; }
  std::int32_t n_users(Id id) const { return at(id).n_users; }
  /// Bytes of memory, about.
  std::size_t n_bytes() const { return n_bytes_; }
  /// Forgets all configurations that are not retained; their numbers are given again.
  void collect();

 private:
  static constexpr Id kUnknown = -2;
  static constexpr StateId kRootEnds = -1;
  /// In visited_: the callers of the stack are.
  static constexpr StateId kReturned = std::numeric_limits<StateId>::min();

  struct Configuration {
    std::vector<Item> items;
    std::vector<Id> next;  // [byte class, then special token]; empty until a step is taken
    Id representative = kUnknown;
    bool is_complete = false;
    bool is_used = false;
    std::int32_t n_users = 0;
  };
  struct Stack {
    std::vector<Item> callers;       // where to continue, each with its own stack
    LengthCounter::Count count = 0;  // of characters, in the automaton of the rule that was called
    std::int32_t depth = 0;
    Id behind = kUnknown;
    StackId longer = kUnknown;  // the same with the next count
    bool is_used = false;
  };
  /// Calls of one rule that a closure has found.
  struct Call {
    std::int32_t rank;
    RuleId rule;
    std::vector<Item> callers;
  };

  const Configuration& at(Id id) const { return configurations_[static_cast<std::size_t>(id)]; }
  void add_users(Id id, std::int32_t n) {
    Configuration& one = configurations_[static_cast<std::size_t>(id)];
    one.n_users += n;
    if (one.representative >= 0 && one.representative != id)
      configurations_[static_cast<std::size_t>(one.representative)].n_users += n;
  }
  Id make_step(Id id, int symbol);
  void begin_closure();
  bool is_too_much() const { return n_visited_ > kMaxItems || n_callers_ > kMaxCallers || n_lookups_ > kMaxLookups; }
  Id close();
  bool enter(StateId state, StackId stack);
  void visit(Item item, bool may_return);
  void add_call(const CallEdge& call, StackId stack);
  StackId intern_stack(std::vector<Item> callers, LengthCounter::Count count = 0);
  StackId with_count(StackId stack, LengthCounter::Count count);
  StackId stack_behind(const Item& item, const ByteEdge& edge);
  Id intern(bool is_complete);

  const Program& program_;
  std::vector<Configuration> configurations_;
  std::vector<Stack> stacks_;
  std::vector<Id> free_configurations_;
  std::vector<StackId> free_stacks_;
  std::unordered_multimap<std::size_t, Id> configuration_of_hash_;
  std::unordered_multimap<std::size_t, StackId> stack_of_hash_;
  std::size_t n_bytes_ = 0;
  bool has_overflowed_ = false;
  std::int64_t n_allowed_ = std::numeric_limits<std::int64_t>::max();
  bool is_exhausted_ = false;
  std::int64_t n_steps_ = 0;

  // Of one closure: where it begins, what it found, and what it has visited.
  std::vector<Item> kernel_;
  std::vector<Item> found_;
  std::vector<Call> pending_;
  std::unordered_set<std::uint64_t> visited_;  // states and, as ~state, long closures, each with a stack
  std::size_t n_visited_ = 0;                  // states in it
  std::size_t n_callers_ = 0;
  std::int64_t n_lookups_ = 0;
  bool root_ended_ = false;
};

}  // namespace baton::grammar
