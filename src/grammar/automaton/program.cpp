/// Automata of all rules, without dead ends, in flat arrays.
#include "grammar/automaton/program.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace baton::grammar {

namespace {

/// The automata of the rules that `root` uses. `starts` gets the start of each, `ranges` the states of those built.
struct RuleAutomata {
  std::vector<StateId> starts;
  std::vector<std::pair<StateId, StateId>> ranges;  // in the order of building
};

Result<RuleAutomata> build_rules(const Expressions& expressions, RuleId root, NfaBuilder& builder) {
  RuleAutomata rules{.starts = std::vector<StateId>(expressions.n_rules(), -1), .ranges = {}};
  std::vector<RuleId> work{root};
  std::vector<bool> is_known(expressions.n_rules(), false);
  is_known[static_cast<std::size_t>(root)] = true;
  for (std::size_t i = 0; i < work.size(); ++i) {
    const RuleId rule = work[i];
    BATON_TRY(const ExprId body, expressions.defined_body(rule));
    const auto begin = static_cast<StateId>(builder.states().size());
    const StateId end_of_rule = builder.add_final();
    BATON_TRY(const StateId start, builder.build(body, end_of_rule));
    rules.starts[static_cast<std::size_t>(rule)] = start;
    const auto end = static_cast<StateId>(builder.states().size());
    rules.ranges.emplace_back(begin, end);
    for (StateId state = begin; state < end; ++state)
      for (const CallEdge& call : builder.states()[static_cast<std::size_t>(state)].calls) {
        if (is_known[static_cast<std::size_t>(call.rule)]) continue;
        is_known[static_cast<std::size_t>(call.rule)] = true;
        work.push_back(call.rule);
      }
  }
  return rules;
}

/// How many edges all states have together.
std::size_t n_edges_of(const NfaStates& states) {
  std::size_t n = 0;
  for (const NfaState& state : states)
    n += state.bytes.size() + state.tokens.size() + state.calls.size() + state.empties.size();
  return n;
}

/// Repeats `decide(state)` over all states, callees first, until it is true for no more of them. Returns for which it
/// is.
template <class Decide>
Result<std::vector<bool>> least_fixpoint(const RuleAutomata& rules, const NfaStates& states, WorkMeter& meter,
                                         const Decide& decide) {
  std::vector<bool> holds(states.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = rules.ranges.size(); i-- > 0;)
      for (StateId id = rules.ranges[i].first; id < rules.ranges[i].second; ++id) {
        const NfaState& state = states[static_cast<std::size_t>(id)];
        const std::size_t n_edges = state.empties.size() + state.bytes.size() + state.calls.size();
        if (!meter.spend(1 + static_cast<std::int64_t>(n_edges / 4))) return over_budget(meter);
        if (holds[static_cast<std::size_t>(id)] || !decide(state, holds)) continue;
        holds[static_cast<std::size_t>(id)] = changed = true;
      }
  }
  return holds;
}

/// Drops the edges from which no text leads to the end, and lets empty edges pass by calls that match the empty text.
/// Returns whether the root matches the empty text.
Result<bool> remove_dead_ends(const RuleAutomata& rules, RuleId root, NfaStates& states, WorkMeter& meter) {
  const auto start_holds = [&](const CallEdge& call, const std::vector<bool>& holds) {
    return holds[static_cast<std::size_t>(rules.starts[static_cast<std::size_t>(call.rule)])] &&
           holds[static_cast<std::size_t>(call.target)];
  };
  const auto any_holds = [](const std::vector<StateId>& ids, const std::vector<bool>& holds) {
    return std::any_of(ids.begin(), ids.end(), [&](StateId id) { return holds[static_cast<std::size_t>(id)]; });
  };
  const auto any_call = [&](const NfaState& state, const std::vector<bool>& holds) {
    return std::any_of(state.calls.begin(), state.calls.end(), [&](const CallEdge& call) { return start_holds(call, holds); });
  };
  BATON_TRY(const std::vector<bool> is_live,
            least_fixpoint(rules, states, meter, [&](const NfaState& state, const std::vector<bool>& holds) {
              const auto leads_on = [&](const auto& edge) { return holds[static_cast<std::size_t>(edge.target)]; };
              return state.is_final || any_holds(state.empties, holds) || any_call(state, holds) ||
                     std::any_of(state.bytes.begin(), state.bytes.end(), leads_on) ||
                     std::any_of(state.tokens.begin(), state.tokens.end(), leads_on);
            }));
  BATON_TRY(const std::vector<bool> is_nullable,
            least_fixpoint(rules, states, meter, [&](const NfaState& state, const std::vector<bool>& holds) {
              return state.is_final || any_holds(state.empties, holds) || any_call(state, holds);
            }));
  const auto root_start = static_cast<std::size_t>(rules.starts[static_cast<std::size_t>(root)]);
  if (!is_live[root_start]) return fail(ErrorCode::invalid_request, "no text can match the grammar");
  const auto is_dead = [&](StateId id) { return !is_live[static_cast<std::size_t>(id)]; };
  for (NfaState& state : states) {
    const ShortVector<ByteEdge> bytes = std::exchange(state.bytes, {});
    for (const ByteEdge& edge : bytes)
      if (!is_dead(edge.target)) state.bytes.push_back(edge);
    std::erase_if(state.tokens, [&](const TokenEdge& edge) { return is_dead(edge.target); });
    std::erase_if(state.calls, [&](const CallEdge& call) { return !start_holds(call, is_live); });
    std::erase_if(state.empties, is_dead);
    for (const CallEdge& call : state.calls)
      if (is_nullable[static_cast<std::size_t>(rules.starts[static_cast<std::size_t>(call.rule)])])
        state.empties.push_back(call.target);
  }
  return static_cast<bool>(is_nullable[root_start]);
}

}  // namespace

Result<void> Program::flatten(const NfaStates& states, WorkMeter& meter) {
  const std::size_t n_edges = n_edges_of(states);
  if (!meter.spend(static_cast<std::int64_t>(4 * states.size() + n_edges)) ||
      !meter.write(states.size() * (4 * sizeof(std::int32_t) + sizeof(Twin)) + n_edges * sizeof(ByteEdge)))
    return over_budget(meter);
  std::size_t n_bytes = 0;
  std::size_t n_tokens = 0;
  std::size_t n_calls = 0;
  for (const NfaState& state : states) {
    n_bytes += state.bytes.size();
    n_tokens += state.tokens.size();
    n_calls += state.calls.size();
  }
  bytes_.reserve(n_bytes);
  tokens_.reserve(n_tokens);
  calls_.reserve(n_calls);
  twins_.reserve(states.size());
  for (std::vector<std::int32_t>* at : {&bytes_at_, &tokens_at_, &calls_at_, &closure_at_}) {
    at->reserve(states.size() + 1);
    at->push_back(0);
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    bytes_.insert(bytes_.end(), states[i].bytes.begin(), states[i].bytes.end());
    tokens_.insert(tokens_.end(), states[i].tokens.begin(), states[i].tokens.end());
    calls_.insert(calls_.end(), states[i].calls.begin(), states[i].calls.end());
    bytes_at_.push_back(static_cast<std::int32_t>(bytes_.size()));
    tokens_at_.push_back(static_cast<std::int32_t>(tokens_.size()));
    calls_at_.push_back(static_cast<std::int32_t>(calls_.size()));
    is_final_.push_back(states[i].is_final);
    // A twin's twin is as like as the less like of the two.
    Twin twin{static_cast<StateId>(i), kMaxTokenBytes};
    while (states[static_cast<std::size_t>(twin.state)].twin >= 0 && twin.n_bytes > 0) {
      const NfaState& state = states[static_cast<std::size_t>(twin.state)];
      if (state.twin_bytes == 0 && twin.state != static_cast<StateId>(i)) break;
      twin = {state.twin, std::min(twin.n_bytes, state.twin_bytes)};
    }
    twins_.push_back(twin);
  }
  return {};
}

Result<void> Program::add_counters(const NfaBuilder& builder, WorkMeter& meter) {
  if (builder.counted().empty()) return {};
  if (!meter.spend(static_cast<std::int64_t>(n_states() / 8)) ||
      !meter.write(n_states() * sizeof(std::int32_t) + builder.counted().size() * sizeof(CountedStates)))
    return over_budget(meter);
  counted_ = builder.counted();
  counted_at_.assign(n_states(), -1);
  for (std::size_t i = 0; i < counted_.size(); ++i)
    std::fill(counted_at_.begin() + counted_[i].first, counted_at_.begin() + counted_[i].end, static_cast<std::int32_t>(i));
  return {};
}

namespace {

bool is_solid(const NfaState& state) {
  return !state.bytes.empty() || !state.tokens.empty() || !state.calls.empty() || state.is_final;
}

}  // namespace

/// Appends to closures_. `seen_by`: the state for which each was walked over last.
Result<void> Program::add_closure(const NfaStates& states, StateId state, std::vector<StateId>& seen_by, WorkMeter& meter) {
  constexpr std::size_t kMostWalked = 256;
  const std::size_t begin = closures_.size();
  std::size_t n_walked = 0;
  std::vector<StateId> work{state};
  while (!work.empty()) {
    const StateId id = work.back();
    work.pop_back();
    if (std::exchange(seen_by[static_cast<std::size_t>(id)], state) == state) continue;
    const NfaState& one = states[static_cast<std::size_t>(id)];
    if (is_solid(one)) closures_.push_back(id);
    n_walked += 1 + one.empties.size();
    if (!meter.spend(1)) return over_budget(meter);
    if (n_walked > kMostWalked || closures_.size() - begin > kMostInShortClosure) break;
    work.insert(work.end(), one.empties.begin(), one.empties.end());
  }
  if (!work.empty() || n_walked > kMostWalked || closures_.size() - begin > kMostInShortClosure) {
    const NfaState& one = states[static_cast<std::size_t>(state)];
    if (!meter.spend(static_cast<std::int64_t>(one.empties.size() / 4))) return over_budget(meter);
    closures_.resize(begin);
    if (is_solid(one)) closures_.push_back(state);
    for (const StateId next : one.empties) {
      if (next == state) continue;
      closures_.push_back(states[static_cast<std::size_t>(next)].empties.empty() ? next : ~next);
    }
  }
  // Three times: when the list grows, the old one and the new one of twice its size are there.
  if (!meter.write(3 * (closures_.size() - begin) * sizeof(StateId))) return over_budget(meter);
  std::sort(closures_.begin() + static_cast<std::ptrdiff_t>(begin), closures_.end());
  return {};
}

Result<void> Program::close(const NfaStates& states, WorkMeter& meter) {
  std::vector<StateId> seen_by(states.size(), -1);
  for (std::size_t i = 0; i < states.size(); ++i) {
    BATON_TRY_VOID(add_closure(states, static_cast<StateId>(i), seen_by, meter));
    closure_at_.push_back(static_cast<std::int32_t>(closures_.size()));
    const std::span<const StateId> all = closure(static_cast<StateId>(i));
    is_tail_.push_back(all.size() == 1 && all[0] >= 0 && is_final(all[0]) && bytes(all[0]).empty() && tokens(all[0]).empty() &&
                       calls(all[0]).empty());
  }
  closures_.shrink_to_fit();
  return {};
}

void Program::class_bytes(const NfaStates& states) {
  std::array<bool, 257> begins_class{};
  begins_class[0] = true;
  for (const NfaState& state : states)
    for (const ByteEdge& edge : state.bytes) begins_class[edge.first] = begins_class[edge.last + std::size_t{1}] = true;
  n_classes_ = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (begins_class[byte]) {
      byte_of_class_[static_cast<std::size_t>(n_classes_)] = static_cast<std::uint8_t>(byte);
      ++n_classes_;
    }
    class_of_byte_[byte] = static_cast<std::uint8_t>(n_classes_ - 1);
  }
}

Result<void> Program::rank_rules(const Expressions& expressions, WorkMeter& meter) {
  enum class Mark : std::uint8_t { none, open, done };
  struct Visit {
    RuleId rule;
    std::vector<RuleId> callees;  // that are still to be visited
  };
  std::vector<Mark> marks(starts_.size(), Mark::none);
  std::vector<RuleId> order;  // callees before their callers
  std::vector<Visit> path;
  HeldBytes held(meter);  // of the path, and of what was on it
  std::vector<bool> is_walked(n_states(), false);
  const auto enter = [&](RuleId rule) {
    marks[static_cast<std::size_t>(rule)] = Mark::open;
    std::vector<RuleId> callees;
    std::int64_t n_entries = 0;
    std::vector<StateId> work{start(rule)};
    while (!work.empty()) {
      const StateId from = work.back();
      work.pop_back();
      if (is_walked[static_cast<std::size_t>(from)]) continue;  // rules share no states
      is_walked[static_cast<std::size_t>(from)] = true;
      for (const StateId id : closure(from)) {
        ++n_entries;
        if (id < 0)
          work.push_back(~id);
        else
          for (const CallEdge& call : calls(id)) callees.push_back(call.rule);
      }
    }
    std::sort(callees.begin(), callees.end());
    callees.erase(std::unique(callees.begin(), callees.end()), callees.end());
    callees.shrink_to_fit();
    const bool is_within = meter.spend(4 * static_cast<std::int64_t>(callees.size()) + n_entries) &&
                           held.add(sizeof(Visit) + callees.size() * sizeof(RuleId));
    path.push_back({rule, std::move(callees)});
    return is_within;
  };
  for (std::size_t first = 0; first < starts_.size(); ++first) {
    if (starts_[first] < 0 || marks[first] != Mark::none) continue;
    if (!enter(static_cast<RuleId>(first))) return over_budget(meter);
    while (!path.empty()) {
      if (!meter.spend(1)) return over_budget(meter);
      Visit& visit = path.back();
      if (visit.callees.empty()) {
        marks[static_cast<std::size_t>(visit.rule)] = Mark::done;
        order.push_back(visit.rule);
        path.pop_back();
        continue;
      }
      const RuleId callee = visit.callees.back();
      visit.callees.pop_back();
      const Mark mark = marks[static_cast<std::size_t>(callee)];
      if (mark == Mark::open)
        return fail(ErrorCode::unsupported,
                    fmt::format("the rule '{}' of the grammar begins with itself (left recursion)", expressions.name(callee)));
      if (mark == Mark::none && !enter(callee)) return over_budget(meter);
    }
  }
  ranks_.assign(starts_.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i)
    ranks_[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(order.size() - i);
  return {};
}

std::size_t Program::n_bytes() const {
  std::size_t n_counter_bytes = counted_at_.size() * sizeof(std::int32_t);
  for (const CountedStates& counted : counted_) n_counter_bytes += sizeof(counted) + counted.counter->n_bytes();
  return n_counter_bytes + bytes_.size() * sizeof(ByteEdge) + tokens_.size() * sizeof(TokenEdge) +
         calls_.size() * sizeof(CallEdge) + closures_.size() * sizeof(StateId) +
         n_states() * (4 * sizeof(std::int32_t) + sizeof(Twin)) + n_rules() * (sizeof(StateId) + sizeof(std::int32_t));
}

Result<Program> Program::build(const Expressions& expressions, RuleId root, std::size_t max_states, WorkMeter& meter) {
  NfaBuilder builder(expressions, max_states, meter);
  BATON_TRY(RuleAutomata rules, build_rules(expressions, root, builder));
  NfaStates& states = builder.states();
  Program program;
  program.root_ = root;
  BATON_TRY(program.root_matches_empty_, remove_dead_ends(rules, root, states, meter));
  program.starts_ = std::move(rules.starts);
  BATON_TRY_VOID(program.flatten(states, meter));
  BATON_TRY_VOID(program.add_counters(builder, meter));
  program.token_texts_ = expressions.token_texts();
  BATON_TRY_VOID(program.close(states, meter));
  program.class_bytes(states);
  BATON_TRY_VOID(program.rank_rules(expressions, meter));
  return program;
}

}  // namespace baton::grammar
