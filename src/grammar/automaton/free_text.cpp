/// Automata of Aho and Corasick: a state is the longest beginning of a marker that the text ends with.
#include "grammar/automaton/free_text.h"

#include <fmt/format.h>

namespace baton::grammar {

namespace {

/// Which marker a state ends with.
constexpr int kNone = -1;
constexpr int kNever = -2;

struct MarkerAutomaton {
  explicit MarkerAutomaton(WorkMeter& meter) : dfa(meter) {}

  Dfa dfa;                  // complete: every state has a target for every byte
  std::vector<int> marker;  // [state]: an index of stops, kNever or kNone
};

Result<MarkerAutomaton> marker_automaton(const TextStops& texts, WorkMeter& meter) {
  MarkerAutomaton made(meter);
  const auto add_state = [&] {
    made.marker.push_back(kNone);
    return made.dfa.add_state(false);
  };
  add_state();
  const auto add = [&](std::string_view text, int marker) -> Result<void> {
    std::int32_t state = 0;
    if (!meter.pass(4 * text.size())) return over_budget(meter);
    for (const char byte : text) {
      std::int32_t next = made.dfa.step(state, static_cast<unsigned char>(byte));
      if (next == Dfa::kDead) {
        if (made.dfa.n_states() == Dfa::kMaxStates)
          return fail(ErrorCode::too_large, fmt::format("the markers of free text have more than {} bytes", Dfa::kMaxStates));
        if (!meter.spend(8)) return over_budget(meter);
        next = add_state();
        made.dfa.next[static_cast<std::size_t>(state)][static_cast<unsigned char>(byte)] = next;
      }
      state = next;
    }
    int& known = made.marker[static_cast<std::size_t>(state)];
    if (known == kNone) known = marker;
    return {};
  };
  for (std::size_t i = 0; i < texts.stops.size(); ++i) BATON_TRY_VOID(add(texts.stops[i], static_cast<int>(i)));
  for (const std::string_view text : texts.never) BATON_TRY_VOID(add(text, kNever));
  // In the order of length; `fall` is the longest other state that the text ends with.
  std::vector<std::int32_t> order{0};
  std::vector<std::int32_t> fall(made.dfa.n_states(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto state = static_cast<std::size_t>(order[i]);
    if (!meter.spend(24)) return over_budget(meter);
    const auto back = static_cast<std::size_t>(fall[state]);
    if (made.marker[state] == kNone) made.marker[state] = made.marker[back];
    for (std::size_t byte = 0; byte < 256; ++byte) {
      std::int32_t& next = made.dfa.next[state][byte];
      const std::int32_t other = state == 0 ? 0 : made.dfa.next[back][byte];
      if (next == Dfa::kDead) {
        next = other;
      } else {
        fall[static_cast<std::size_t>(next)] = other;
        order.push_back(next);
      }
    }
  }
  return made;
}

/// Without edges out of states that end with a marker. `is_final(state)`: whether a text may end there.
template <class IsFinal>
Result<Dfa> stopped(MarkerAutomaton made, WorkMeter& meter, const IsFinal& is_final) {
  for (std::size_t state = 0; state < made.dfa.n_states(); ++state) {
    made.dfa.is_final[state] = is_final(made.marker[state]);
    if (made.marker[state] != kNone) made.dfa.next[state].fill(Dfa::kDead);
  }
  return minimize(made.dfa, meter);
}

}  // namespace

Result<Dfa> text_without(const TextStops& texts, WorkMeter& meter) {
  BATON_TRY(MarkerAutomaton made, marker_automaton(texts, meter));
  return stopped(std::move(made), meter, [](int marker) { return marker == kNone; });
}

Result<Dfa> text_up_to(const TextStops& texts, std::optional<std::size_t> which, WorkMeter& meter) {
  BATON_TRY(MarkerAutomaton made, marker_automaton(texts, meter));
  return stopped(std::move(made), meter, [&](int marker) { return which ? marker == static_cast<int>(*which) : marker >= 0; });
}

}  // namespace baton::grammar
