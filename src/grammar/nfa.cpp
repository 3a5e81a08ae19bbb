/// Expressions to automata, and the subset construction.
#include "grammar/nfa.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace baton::grammar {

Result<StateId> NfaBuilder::add() {
  if (!meter_.spend(4)) return over_budget(meter_);
  if (states_.size() >= max_states_)
    return fail(ErrorCode::too_large, fmt::format("the grammar needs more than {} states", max_states_));
  states_.emplace_back();
  return static_cast<StateId>(states_.size() - 1);
}

StateId NfaBuilder::add_final() {
  states_.emplace_back().is_final = true;
  return static_cast<StateId>(states_.size() - 1);
}

Result<StateId> NfaBuilder::build(ExprId expr, StateId next) {
  if (!stack_.has_room()) return fail(ErrorCode::invalid_request, "the grammar is nested too deep");
  const std::uint64_t key =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(expr)) << 32 | static_cast<std::uint32_t>(next);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  BATON_TRY(const StateId state, build_new(expressions_[expr], next));
  known_.emplace(key, state);
  return state;
}

Result<StateId> NfaBuilder::build_new(const Expr& expr, StateId next) {
  switch (expr.kind) {
    case Expr::Kind::bytes: {
      StateId state = next;
      for (std::size_t i = expr.text.size(); i-- > 0;) {
        BATON_TRY(const StateId before, add());
        const auto byte = static_cast<unsigned char>(expr.text[i]);
        at(before).bytes.push_back({byte, byte, state});
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
        at(state).bytes.push_back({static_cast<unsigned char>(first), static_cast<unsigned char>(last), next});
        first = last;
      }
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
      std::vector<StateId> entries;
      for (const ExprId child : expr.children) {
        BATON_TRY(const StateId entry, build(child, next));
        entries.push_back(entry);
      }
      BATON_TRY(const StateId state, add());
      at(state).empties = std::move(entries);
      return state;
    }
    case Expr::Kind::repeat: return build_repeat(expr, next);
    case Expr::Kind::rule: {
      BATON_TRY(const StateId state, add());
      at(state).calls.push_back({expr.index, next});
      return state;
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
  // Of the optional copies and of the others: their states, and how many copies there are up to the bound behind them.
  std::vector<std::pair<StateId, StateId>> copies[2];
  std::vector<int> distances[2];
  const int n_copies = expr.max == kUnlimited ? expr.min : expr.max;
  for (int i = n_copies; i-- > 0;) {
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
  for (const int kind : {0, 1}) name_twins(copies[kind], distances[kind]);
  return state;
}

/// A text of n bytes ends at most n copies, so shorter texts than the distance do not meet the bound.
void NfaBuilder::name_twins(const std::vector<std::pair<StateId, StateId>>& copies, const std::vector<int>& distances) {
  constexpr int kLeastBytes = 8;  // for less, hardly any token would be shared
  if (copies.empty()) return;
  const auto [farthest, end] = copies.back();
  for (std::size_t i = 0; i + 1 < copies.size(); ++i) {
    if (distances[i] - 1 < kLeastBytes || copies[i].second - copies[i].first != end - farthest) continue;
    for (StateId state = copies[i].first; state < copies[i].second; ++state) {
      if (at(state).twin >= 0 && at(state).twin_bytes > 0) continue;  // of a repetition inside of this one
      at(state).twin = farthest + (state - copies[i].first);
      at(state).twin_bytes = distances[i] - 1;
    }
  }
}

/// A name that is none of the declared ones, for example, is any text behind most of its beginnings.
void NfaBuilder::name_twins_of_automaton(const Dfa& dfa, StateId first) {
  constexpr std::size_t kMostStates = 2'000;
  constexpr int kLeastEqual = 96;  // bytes that must have the same effect
  if (dfa.n_states() > kMostStates) return;
  std::vector<int> n_edges(dfa.n_states(), 0);
  for (const Dfa::Row& row : dfa.next)
    for (const std::int32_t target : row)
      if (target != Dfa::kDead) ++n_edges[static_cast<std::size_t>(target)];
  const auto widest = static_cast<std::size_t>(std::max_element(n_edges.begin(), n_edges.end()) - n_edges.begin());
  for (std::size_t i = 0; i < dfa.n_states(); ++i) {
    int n_equal = 0;
    for (std::size_t byte = 0; byte < 256; ++byte)
      n_equal += dfa.next[i][byte] != Dfa::kDead && dfa.next[i][byte] == dfa.next[widest][byte] ? 1 : 0;
    if (i != widest && n_equal >= kLeastEqual) at(first + static_cast<StateId>(i)).twin = first + static_cast<StateId>(widest);
  }
}

Result<StateId> NfaBuilder::build_automaton(const Dfa& dfa, StateId next) {
  const auto first = static_cast<StateId>(states_.size());
  for (std::size_t i = 0; i < dfa.n_states(); ++i) BATON_TRY_VOID(add());
  for (std::size_t i = 0; i < dfa.n_states(); ++i) {
    if (!meter_.spend(32)) return over_budget(meter_);
    NfaState& state = at(first + static_cast<StateId>(i));
    for (int byte = 0; byte < 256;) {
      const std::int32_t target = dfa.next[i][static_cast<std::size_t>(byte)];
      const int begin = byte;
      while (byte < 256 && dfa.next[i][static_cast<std::size_t>(byte)] == target) ++byte;
      if (target != Dfa::kDead)
        state.bytes.push_back({static_cast<unsigned char>(begin), static_cast<unsigned char>(byte - 1), first + target});
    }
    if (dfa.is_final[i]) state.empties.push_back(next);
  }
  name_twins_of_automaton(dfa, first);
  return first;
}

namespace {

/// The states with bytes or an end that empty edges lead to, sorted.
std::vector<StateId> solid_closure(const std::vector<NfaState>& nfa, std::vector<StateId> work, std::vector<bool>& is_seen) {
  std::vector<StateId> seen;
  std::vector<StateId> solid;
  while (!work.empty()) {
    const StateId id = work.back();
    work.pop_back();
    if (is_seen[static_cast<std::size_t>(id)]) continue;
    is_seen[static_cast<std::size_t>(id)] = true;
    seen.push_back(id);
    const NfaState& state = nfa[static_cast<std::size_t>(id)];
    if (!state.bytes.empty() || state.is_final) solid.push_back(id);
    work.insert(work.end(), state.empties.begin(), state.empties.end());
  }
  for (const StateId id : seen) is_seen[static_cast<std::size_t>(id)] = false;
  std::sort(solid.begin(), solid.end());
  return solid;
}

}  // namespace

Result<Dfa> determinize(const Expressions& expressions, ExprId expr, WorkMeter& meter) {
  NfaBuilder builder(expressions, 10 * Dfa::kMaxStates, meter);
  const StateId final_state = builder.add_final();
  BATON_TRY(const StateId start, builder.build(expr, final_state));
  const std::vector<NfaState>& nfa = builder.states();

  Dfa dfa;
  std::map<std::vector<StateId>, std::int32_t> ids;
  std::vector<std::vector<StateId>> sets;
  std::vector<bool> is_seen(nfa.size(), false);
  const auto state_of = [&](std::vector<StateId> targets) {
    if (targets.empty()) return Dfa::kDead;
    std::vector<StateId> set = solid_closure(nfa, std::move(targets), is_seen);
    const auto [place, is_new] = ids.emplace(set, static_cast<std::int32_t>(sets.size()));
    if (is_new) {
      dfa.add_state(
          std::any_of(set.begin(), set.end(), [&](StateId id) { return nfa[static_cast<std::size_t>(id)].is_final; }));
      sets.push_back(std::move(set));
    }
    return place->second;
  };
  state_of({start});
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (sets.size() > Dfa::kMaxStates)
      return fail(ErrorCode::too_large, fmt::format("a pattern needs an automaton of more than {} states", Dfa::kMaxStates));
    std::array<std::vector<StateId>, 256> targets;
    std::size_t n_edges = 0;
    for (const StateId id : sets[i])
      for (const ByteEdge& edge : nfa[static_cast<std::size_t>(id)].bytes) {
        ++n_edges;
        for (int byte = edge.first; byte <= edge.last; ++byte) targets[static_cast<std::size_t>(byte)].push_back(edge.target);
      }
    if (!meter.spend(32 + 8 * static_cast<std::int64_t>(n_edges))) return over_budget(meter);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (byte > 0 && targets[byte] == targets[byte - 1])
        dfa.next[i][byte] = dfa.next[i][byte - 1];
      else
        dfa.next[i][byte] = state_of(targets[byte]);
    }
  }
  return minimize(dfa, meter);
}

}  // namespace baton::grammar
