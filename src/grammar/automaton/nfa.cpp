/// Expressions to automata, and the subset construction.
#include "grammar/automaton/nfa.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>

#include <fmt/format.h>

namespace baton::grammar {

std::size_t KnownStates::place_of(std::uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t place = (key * 0x9E3779B97F4A7C15u) >> 32 & mask;
  while (slots_[place].state >= 0 && slots_[place].key != key) place = (place + 1) & mask;
  return place;
}

Result<void> KnownStates::grow() {
  const std::size_t n_slots = slots_.empty() ? 64 : 2 * slots_.size();
  if (!held_.add(n_slots * sizeof(Slot)) || !meter_.spend(static_cast<std::int64_t>(n_slots / 4))) return over_budget(meter_);
  const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(n_slots));
  for (const Slot& slot : before)
    if (slot.state >= 0) slots_[place_of(slot.key)] = slot;
  held_.remove(before.size() * sizeof(Slot));
  return {};
}

Result<void> KnownStates::add(ExprId expr, StateId next, StateId state) {
  if (2 * n_used_ >= slots_.size()) BATON_TRY_VOID(grow());
  const std::uint64_t key = key_of(expr, next);
  slots_[place_of(key)] = {key, state};
  ++n_used_;
  return {};
}

Result<StateId> NfaBuilder::add() {
  if (!meter_.spend(4)) return over_budget(meter_);
  if (states_.size() >= max_states_)
    return fail(ErrorCode::too_large, fmt::format("the grammar needs more than {} states", max_states_));
  // With one list of a few edges.
  if (!held_.add(sizeof(NfaState) + 32)) return over_budget(meter_);
  states_.emplace_back();
  return static_cast<StateId>(states_.size() - 1);
}

StateId NfaBuilder::add_final() {
  states_.emplace_back().is_final = true;
  return static_cast<StateId>(states_.size() - 1);
}

Result<StateId> NfaBuilder::build(ExprId expr, StateId next) {
  if (!stack_.has_room()) return fail(ErrorCode::invalid_request, "the grammar is nested too deep");
  if (!meter_.spend(1)) return over_budget(meter_);
  if (const StateId known = known_.find(expr, next); known >= 0) return known;
  BATON_TRY(const StateId state, build_new(expressions_[expr], next));
  BATON_TRY_VOID(known_.add(expr, next, state));
  return state;
}

Result<StateId> NfaBuilder::build_new(const Expr& expr, StateId next) {
  switch (expr.kind) {
    case Expr::Kind::bytes: {
      StateId state = next;
      for (std::size_t i = expr.text.size(); i-- > 0;) {
        BATON_TRY(const StateId before, add());
        const auto byte = static_cast<unsigned char>(expr.text[i]);
        at(before).bytes.push_back({.first = byte, .last = byte, .target = state});
        state = before;
      }
      return state;
    }
    case Expr::Kind::byte_set: {
      BATON_TRY(const StateId state, add());
      const ByteSet& set = expressions_.set_of(expr);
      for (std::size_t first = 0; first < 256; ++first) {
        if (!set[first]) continue;
        std::size_t last = first;
        while (last + 1 < 256 && set[last + 1]) ++last;
        at(state).bytes.push_back(
            {.first = static_cast<unsigned char>(first), .last = static_cast<unsigned char>(last), .target = next});
        first = last;
      }
      // Memory of their own, which is there before it is counted: at most 2 KB.
      const std::size_t n_edges = at(state).bytes.size();
      if (n_edges > 1 && !held_.add(2 * n_edges * sizeof(ByteEdge))) return over_budget(meter_);
      return state;
    }
    case Expr::Kind::token: {
      BATON_TRY(const StateId state, add());
      at(state).tokens.push_back({expr.index, next});
      return state;
    }
    case Expr::Kind::sequence: {
      StateId state = next;
      for (std::size_t i = expr.children.size(); i-- > 0;) {
        BATON_TRY(state, build(expr.children[i], state));
      }
      return state;
    }
    case Expr::Kind::choice: {
      HeldBytes held(meter_);
      if (!held.add(expr.children.size() * sizeof(StateId))) return over_budget(meter_);
      std::vector<StateId> entries;
      entries.reserve(expr.children.size());
      for (const ExprId child : expr.children) {
        BATON_TRY(const StateId entry, build(child, next));
        entries.push_back(entry);
      }
      std::sort(entries.begin(), entries.end());
      entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
      BATON_TRY(const StateId state, add());
      if (!held_.add(entries.size() * sizeof(StateId))) return over_budget(meter_);
      at(state).empties.assign(entries.begin(), entries.end());
      return state;
    }
    case Expr::Kind::repeat: return build_repeat(expr, next);
    case Expr::Kind::rule: {
      BATON_TRY(const StateId state, add());
      at(state).calls.push_back({expr.index, next});
      return state;
    }
    case Expr::Kind::counted: {
      BATON_TRY(const StateId first, build_automaton(expressions_.automaton_of(expr), next));
      if (!held_.add(sizeof(CountedStates))) return over_budget(meter_);
      counted_.push_back({first, static_cast<StateId>(states_.size()), expressions_.counter_of(expr)});
      return first;
    }
    case Expr::Kind::automaton: return build_automaton(expressions_.automaton_of(expr), next);
  }
  return next;
}

Result<StateId> NfaBuilder::build_repeat(const Expr& expr, StateId next) {
  const ExprId part = expr.children[0];
  StateId state = next;
  if (expr.max == kUnlimited) {
    BATON_TRY(state, add());
    BATON_TRY(const StateId body, build(part, state));
    at(state).empties = {body, next};
  }
  // Of the optional copies and of the others: their states, and how many copies there are up to the bound after them.
  std::vector<std::pair<StateId, StateId>> copies[2];
  std::vector<int> distances[2];
  const int n_copies = expr.max == kUnlimited ? expr.min : expr.max;
  HeldBytes held(meter_);
  for (int i = n_copies; i-- > 0;) {
    if (!meter_.spend(1) || !held.add(2 * (sizeof(copies[0][0]) + sizeof(int)))) return over_budget(meter_);
    const auto begin = static_cast<StateId>(states_.size());
    const bool is_optional = i >= expr.min;
    if (is_optional) {
      BATON_TRY(const StateId skip, add());
      BATON_TRY(const StateId body, build(part, state));
      at(skip).empties = {body, next};
      state = skip;
    } else {
      BATON_TRY(state, build(part, state));
    }
    copies[is_optional ? 1 : 0].emplace_back(begin, static_cast<StateId>(states_.size()));
    distances[is_optional ? 1 : 0].push_back((is_optional ? n_copies : expr.min) - i);
  }
  for (const int kind : {0, 1}) BATON_TRY_VOID(name_twins(copies[kind], distances[kind]));
  return state;
}

/// A text of n bytes ends at most n copies, so shorter texts than the distance do not meet the bound.
Result<void> NfaBuilder::name_twins(const std::vector<std::pair<StateId, StateId>>& copies, const std::vector<int>& distances) {
  constexpr int kLeastBytes = 8;  // for less, hardly any token would be shared
  if (copies.empty()) return {};
  const auto [farthest, end] = copies.back();
  for (std::size_t i = 0; i + 1 < copies.size(); ++i) {
    if (distances[i] - 1 < kLeastBytes || copies[i].second - copies[i].first != end - farthest) continue;
    if (!meter_.spend(1 + (copies[i].second - copies[i].first) / 8)) return over_budget(meter_);
    for (StateId state = copies[i].first; state < copies[i].second; ++state) {
      if (at(state).twin >= 0 && at(state).twin_bytes > 0) continue;  // of a repetition inside of this one
      at(state).twin = farthest + (state - copies[i].first);
      at(state).twin_bytes = distances[i] - 1;
    }
  }
  return {};
}

/// A name that is none of the declared ones, for example, is any text after most of its beginnings.
void NfaBuilder::name_twins_of_automaton(const CompactDfa& dfa, StateId first) {
  constexpr std::size_t kMostStates = 2'000;
  constexpr int kLeastEqual = 96;  // bytes that must have the same effect
  if (dfa.n_states() > kMostStates) return;
  std::vector<int> n_bytes_to(dfa.n_states(), 0);
  for (std::size_t i = 0; i < dfa.n_states(); ++i)
    for (const CompactDfa::Edge& edge : dfa.edges(i))
      n_bytes_to[static_cast<std::size_t>(edge.target)] += edge.last - edge.first + 1;
  const auto widest = static_cast<std::size_t>(std::max_element(n_bytes_to.begin(), n_bytes_to.end()) - n_bytes_to.begin());
  const std::span<const CompactDfa::Edge> of_widest = dfa.edges(widest);
  for (std::size_t i = 0; i < dfa.n_states(); ++i) {
    int n_equal = 0;
    auto other = of_widest.begin();
    for (const CompactDfa::Edge& edge : dfa.edges(i)) {
      while (other != of_widest.end() && other->last < edge.first) ++other;
      for (auto same = other; same != of_widest.end() && same->first <= edge.last; ++same)
        if (same->target == edge.target) n_equal += std::min(edge.last, same->last) - std::max(edge.first, same->first) + 1;
    }
    if (i != widest && n_equal >= kLeastEqual) at(first + static_cast<StateId>(i)).twin = first + static_cast<StateId>(widest);
  }
}

Result<StateId> NfaBuilder::build_automaton(const CompactDfa& dfa, StateId next) {
  const auto first = static_cast<StateId>(states_.size());
  for (std::size_t i = 0; i < dfa.n_states(); ++i) BATON_TRY_VOID(add());
  for (std::size_t i = 0; i < dfa.n_states(); ++i) {
    const std::span<const CompactDfa::Edge> edges = dfa.edges(i);
    if (!meter_.spend(4 + static_cast<std::int64_t>(edges.size())) || !held_.add(2 * edges.size() * sizeof(ByteEdge)))
      return over_budget(meter_);
    NfaState& state = at(first + static_cast<StateId>(i));
    for (const CompactDfa::Edge& edge : edges) state.bytes.push_back({edge.first, edge.last, edge.counts, first + edge.target});
    if (dfa.is_final(i)) state.empties.push_back(next);
  }
  name_twins_of_automaton(dfa, first);
  return first;
}

namespace {

/// The subset construction: each state is the set of states that a text leads to.
class SubsetConstruction {
 public:
  SubsetConstruction(const NfaStates& nfa, WorkMeter& meter)
      : nfa_(nfa), meter_(meter), held_(meter), dfa_(meter), is_seen_(nfa.size(), false) {}

  Result<Dfa> build(StateId start);

 private:
  /// The states with bytes or an end that empty edges lead to, sorted. Errors: the budget's.
  Result<std::vector<StateId>> solid_closure(std::vector<StateId> work);
  Result<std::int32_t> state_of(std::vector<StateId> targets);
  Result<void> add_row(std::size_t state);

  const NfaStates& nfa_;
  WorkMeter& meter_;
  HeldBytes held_;
  Dfa dfa_;
  std::map<std::vector<StateId>, std::int32_t> ids_;
  std::deque<std::span<const StateId>> sets_;  // the keys of ids_, by their numbers
  std::vector<bool> is_seen_;
};

Result<std::vector<StateId>> SubsetConstruction::solid_closure(std::vector<StateId> work) {
  std::vector<StateId> seen;
  std::vector<StateId> solid;
  while (!work.empty()) {
    const StateId id = work.back();
    work.pop_back();
    if (is_seen_[static_cast<std::size_t>(id)]) continue;
    const NfaState& state = nfa_[static_cast<std::size_t>(id)];
    if (!meter_.spend(1 + static_cast<std::int64_t>(state.empties.size()))) return over_budget(meter_);
    is_seen_[static_cast<std::size_t>(id)] = true;
    seen.push_back(id);
    if (!state.bytes.empty() || state.is_final) solid.push_back(id);
    work.insert(work.end(), state.empties.begin(), state.empties.end());
  }
  for (const StateId id : seen) is_seen_[static_cast<std::size_t>(id)] = false;
  std::sort(solid.begin(), solid.end());
  return solid;
}

Result<std::int32_t> SubsetConstruction::state_of(std::vector<StateId> targets) {
  if (targets.empty()) return Dfa::kDead;
  BATON_TRY(std::vector<StateId> set, solid_closure(std::move(targets)));
  // A search compares with about as many sets as their number has digits.
  if (!meter_.spend(4 + static_cast<std::int64_t>(set.size() / 2))) return over_budget(meter_);
  if (const auto known = ids_.find(set); known != ids_.end()) return known->second;
  if (sets_.size() >= Dfa::kMaxStates)
    return fail(ErrorCode::too_large, fmt::format("a pattern needs an automaton of more than {} states", Dfa::kMaxStates));
  if (!held_.add(96 + 2 * set.size() * sizeof(StateId))) return over_budget(meter_);
  const std::int32_t state = dfa_.add_state(
      std::any_of(set.begin(), set.end(), [&](StateId id) { return nfa_[static_cast<std::size_t>(id)].is_final; }));
  sets_.emplace_back(ids_.emplace(std::move(set), state).first->first);
  return state;
}

Result<void> SubsetConstruction::add_row(std::size_t state) {
  std::array<bool, 257> begins_range{};
  std::vector<ByteEdge> edges;
  for (const StateId id : sets_[state])
    for (const ByteEdge& edge : nfa_[static_cast<std::size_t>(id)].bytes) {
      edges.push_back(edge);
      begins_range[edge.first] = begins_range[edge.last + std::size_t{1}] = true;
    }
  const auto n_edges = static_cast<std::int64_t>(edges.size());
  if (!meter_.spend(32 + n_edges)) return over_budget(meter_);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && !begins_range[byte]) {  // the same edges as for the byte before
      dfa_.next[state][byte] = dfa_.next[state][byte - 1];
      continue;
    }
    if (!meter_.spend(1 + n_edges / 4)) return over_budget(meter_);
    std::vector<StateId> targets;
    for (const ByteEdge& edge : edges)
      if (edge.first <= byte && byte <= edge.last) targets.push_back(edge.target);
    BATON_TRY(const std::int32_t target, state_of(std::move(targets)));
    dfa_.next[state][byte] = target;
  }
  return {};
}

Result<Dfa> SubsetConstruction::build(StateId start) {
  BATON_TRY_VOID(state_of({start}));
  for (std::size_t i = 0; i < sets_.size(); ++i) BATON_TRY_VOID(add_row(i));
  return std::move(dfa_);
}

}  // namespace

Result<Dfa> determinize(const Expressions& expressions, ExprId expr, WorkMeter& meter) {
  NfaBuilder builder(expressions, 10 * Dfa::kMaxStates, meter);
  const StateId final_state = builder.add_final();
  BATON_TRY(const StateId start, builder.build(expr, final_state));
  BATON_TRY(const Dfa dfa, SubsetConstruction(builder.states(), meter).build(start));
  return minimize(dfa, meter);
}

}  // namespace baton::grammar
