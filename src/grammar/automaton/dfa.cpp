/// Products and minimisation of automata over bytes.
#include "grammar/automaton/dfa.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace baton::grammar {

tl::unexpected<Error> over_budget(const WorkMeter& meter) { return tl::unexpected<Error>(meter.budget().error("the grammar")); }

std::int32_t Dfa::add_state(bool final) {
  if (const std::size_t now = next.capacity(); next.size() == now) {
    const std::size_t more = std::max<std::size_t>(8, now + now / 2);
    held.add(more * sizeof(Row));
    next.reserve(more);
    held.remove(now * sizeof(Row));
  }
  next.emplace_back().fill(kDead);
  is_final.push_back(final);
  return static_cast<std::int32_t>(next.size() - 1);
}

bool Dfa::accepts(std::string_view text) const {
  std::int32_t state = next.empty() ? kDead : 0;
  for (const char byte : text) state = step(state, static_cast<unsigned char>(byte));
  return state != kDead && is_final[static_cast<std::size_t>(state)];
}

namespace {

std::size_t n_ranges(const Dfa& dfa) {
  std::size_t n = 0;
  for (const Dfa::Row& row : dfa.next)
    for (std::size_t byte = 0; byte < 256; ++byte) n += row[byte] != Dfa::kDead && (byte == 0 || row[byte] != row[byte - 1]);
  return n;
}

/// The states that texts lead from the start to.
struct ReachedStates {
  std::vector<bool> is_reached;
  std::vector<std::pair<std::int32_t, std::int32_t>> edges;  // target and source, of those reached
};

Result<ReachedStates> reached_states(const Dfa& dfa, WorkMeter& meter) {
  ReachedStates found;
  found.is_reached.assign(dfa.n_states(), false);
  found.edges.reserve(n_ranges(dfa));
  std::vector<std::int32_t> work;
  const auto reach = [&](std::int32_t state) {
    if (found.is_reached[static_cast<std::size_t>(state)]) return;
    found.is_reached[static_cast<std::size_t>(state)] = true;
    work.push_back(state);
  };
  if (dfa.n_states() > 0) reach(0);
  while (!work.empty()) {
    if (!meter.spend(6)) return over_budget(meter);
    const std::int32_t state = work.back();
    work.pop_back();
    std::int32_t last = Dfa::kDead;
    for (const std::int32_t target : dfa.next[static_cast<std::size_t>(state)]) {
      if (target == Dfa::kDead || target == last) continue;
      last = target;
      found.edges.emplace_back(target, state);
      reach(target);
    }
  }
  return found;
}

/// The states that a text leads from the start to, and from which a text leads to a final state.
Result<std::vector<bool>> useful_states(const Dfa& dfa, WorkMeter& meter) {
  const std::size_t n = dfa.n_states();
  BATON_TRY(const ReachedStates reached, reached_states(dfa, meter));
  // The sources of all states in a row, those of state 0 first.
  std::vector<std::size_t> begin_of(n + 1, 0);
  for (const auto& [target, source] : reached.edges) ++begin_of[static_cast<std::size_t>(target) + 1];
  for (std::size_t i = 0; i < n; ++i) begin_of[i + 1] += begin_of[i];
  std::vector<std::int32_t> sources(reached.edges.size());
  std::vector<std::size_t> place(begin_of);
  for (const auto& [target, source] : reached.edges) sources[place[static_cast<std::size_t>(target)]++] = source;
  std::vector<bool> is_useful(n, false);
  std::vector<std::int32_t> work;
  for (std::size_t i = 0; i < n; ++i)
    if (reached.is_reached[i] && dfa.is_final[i]) {
      is_useful[i] = true;
      work.push_back(static_cast<std::int32_t>(i));
    }
  while (!work.empty()) {
    const auto state = static_cast<std::size_t>(work.back());
    work.pop_back();
    if (!meter.spend(1 + static_cast<std::int64_t>((begin_of[state + 1] - begin_of[state]) / 64))) return over_budget(meter);
    for (std::size_t i = begin_of[state]; i < begin_of[state + 1]; ++i) {
      const auto source = static_cast<std::size_t>(sources[i]);
      if (is_useful[source]) continue;
      is_useful[source] = true;
      work.push_back(sources[i]);
    }
  }
  return is_useful;
}

/// `dfa` with states joined by `group` (of state, -1: dropped), of which there are `n_groups`; the start's group
/// becomes 0.
Result<Dfa> quotient(const Dfa& dfa, std::vector<std::int32_t> group, std::int32_t n_groups, WorkMeter& meter) {
  Dfa result(meter);
  if (group.empty() || group[0] < 0) {
    result.add_state(false);
    return result;
  }
  const std::int32_t first = group[0];
  for (std::int32_t& g : group) {
    if (g == first)
      g = 0;
    else if (g == 0)
      g = first;
  }
  std::vector<bool> is_done(static_cast<std::size_t>(n_groups), false);
  for (std::int32_t g = 0; g < n_groups; ++g) {
    if (!meter.spend(1)) return over_budget(meter);
    result.add_state(false);
  }
  for (std::size_t state = 0; state < group.size(); ++state) {
    if (group[state] < 0 || is_done[static_cast<std::size_t>(group[state])]) continue;
    if (!meter.spend(4)) return over_budget(meter);
    const auto g = static_cast<std::size_t>(group[state]);
    is_done[g] = true;
    result.is_final[g] = dfa.is_final[state];
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::int32_t target = dfa.next[state][byte];
      if (target != Dfa::kDead) result.next[g][byte] = group[static_cast<std::size_t>(target)];
    }
  }
  return result;
}

/// One byte of each set of bytes that no state tells apart.
std::vector<std::size_t> distinct_columns(const Dfa& dfa) {
  std::map<std::vector<std::int32_t>, std::size_t> seen;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::vector<std::int32_t> column;
    column.reserve(dfa.n_states());
    for (const Dfa::Row& row : dfa.next) column.push_back(row[byte]);
    seen.emplace(std::move(column), byte);
  }
  std::vector<std::size_t> columns;
  for (const auto& [column, byte] : seen) columns.push_back(byte);
  return columns;
}

struct HashRow {
  std::size_t operator()(const std::vector<std::int32_t>& row) const {
    std::size_t hash = row.size();
    for (const std::int32_t value : row) hash = (hash ^ static_cast<std::uint32_t>(value)) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
  }
};

}  // namespace

CompactDfa::CompactDfa(const Dfa& dfa, const std::vector<bool>& counts) : is_final_(dfa.is_final), is_empty_(dfa.is_empty()) {
  edges_.reserve(n_ranges(dfa));
  at_.reserve(dfa.n_states() + 1);
  at_.push_back(0);
  for (const Dfa::Row& row : dfa.next) {
    for (std::size_t byte = 0; byte < 256;) {
      const std::size_t begin = byte;
      while (byte < 256 && row[byte] == row[begin]) ++byte;
      if (row[begin] != Dfa::kDead)
        edges_.push_back({static_cast<unsigned char>(begin), static_cast<unsigned char>(byte - 1),
                          !counts.empty() && counts[at_.size() - 1], row[begin]});
    }
    at_.push_back(static_cast<std::int32_t>(edges_.size()));
  }
}

std::size_t CompactDfa::n_bytes(const Dfa& dfa) {
  return sizeof(CompactDfa) + n_ranges(dfa) * sizeof(Edge) + (dfa.n_states() + 1) * sizeof(std::int32_t);
}

bool Dfa::is_empty() const {
  std::vector<bool> is_reached(n_states(), false);
  std::vector<std::int32_t> work;
  const auto reach = [&](std::int32_t state) {
    if (state == kDead || is_reached[static_cast<std::size_t>(state)]) return;
    is_reached[static_cast<std::size_t>(state)] = true;
    work.push_back(state);
  };
  if (!next.empty()) reach(0);
  while (!work.empty()) {
    const auto state = static_cast<std::size_t>(work.back());
    work.pop_back();
    if (is_final[state]) return false;
    for (const std::int32_t target : next[state]) reach(target);
  }
  return true;
}

bool is_between_characters(const Dfa& texts, std::size_t state) {
  const Dfa::Row& row = texts.next[state];
  const auto leads_on = [](std::int32_t target) { return target != Dfa::kDead; };
  return texts.is_final[state] || std::any_of(row.begin(), row.begin() + 0x80, leads_on) ||
         std::any_of(row.begin() + 0xC0, row.end(), leads_on);
}

Result<Dfa> minimize(const Dfa& dfa, WorkMeter& meter) {
  constexpr std::size_t kMostRefined = 4'000;
  HeldBytes held(meter);  // the edges, and the same backwards
  if (!held.add(3 * n_ranges(dfa) * sizeof(std::int32_t) + 2 * dfa.n_states() * sizeof(std::size_t))) return over_budget(meter);
  BATON_TRY(const std::vector<bool> is_useful, useful_states(dfa, meter));
  std::vector<std::int32_t> group(dfa.n_states(), -1);
  if (dfa.n_states() > kMostRefined) {
    std::int32_t n = 0;
    for (std::size_t i = 0; i < group.size(); ++i)
      if (is_useful[i]) group[i] = n++;
    return quotient(dfa, std::move(group), n, meter);
  }
  // The columns as keys, and the keys of one round.
  if (!held.add(2 * 256 * dfa.n_states() * sizeof(std::int32_t))) return over_budget(meter);
  if (!meter.spend(16 * static_cast<std::int64_t>(dfa.n_states()))) return over_budget(meter);
  const std::vector<std::size_t> columns = distinct_columns(dfa);
  std::int32_t n_groups = 0;
  bool has_final = false;
  bool has_other = false;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (!is_useful[i]) continue;
    group[i] = dfa.is_final[i] ? 1 : 0;
    (dfa.is_final[i] ? has_final : has_other) = true;
  }
  if (!has_other)
    for (std::int32_t& g : group) g = g < 0 ? g : 0;
  n_groups = (has_final ? 1 : 0) + (has_other ? 1 : 0);
  while (true) {
    std::unordered_map<std::vector<std::int32_t>, std::int32_t, HashRow> ids;
    std::vector<std::int32_t> refined(group.size(), -1);
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (group[i] < 0) continue;
      if (!meter.spend(1 + static_cast<std::int64_t>(columns.size() / 4))) return over_budget(meter);
      std::vector<std::int32_t> key{group[i]};
      key.reserve(columns.size() + 1);
      for (const std::size_t byte : columns) {
        const std::int32_t target = dfa.next[i][byte];
        key.push_back(target == Dfa::kDead ? -1 : group[static_cast<std::size_t>(target)]);
      }
      refined[i] = ids.emplace(std::move(key), static_cast<std::int32_t>(ids.size())).first->second;
    }
    const auto n = static_cast<std::int32_t>(ids.size());
    group = std::move(refined);
    if (n == n_groups) break;
    n_groups = n;
  }
  return quotient(dfa, std::move(group), n_groups, meter);
}

Result<Dfa> combine(const Dfa& a, const Dfa& b, DfaProduct product, WorkMeter& meter) {
  Dfa result(meter);
  std::unordered_map<std::uint64_t, std::int32_t> ids;
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  const auto state_of = [&](std::int32_t x, std::int32_t y) {
    if (x == Dfa::kDead || (y == Dfa::kDead && product == DfaProduct::intersection)) return Dfa::kDead;
    const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(x)) << 32 | static_cast<std::uint32_t>(y);
    const auto [place, is_new] = ids.emplace(key, static_cast<std::int32_t>(pairs.size()));
    if (is_new) {
      const bool in_b = y != Dfa::kDead && b.is_final[static_cast<std::size_t>(y)];
      result.add_state(a.is_final[static_cast<std::size_t>(x)] && in_b == (product == DfaProduct::intersection));
      pairs.emplace_back(x, y);
    }
    return place->second;
  };
  state_of(0, 0);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (!meter.spend(48)) return over_budget(meter);
    if (pairs.size() > Dfa::kMaxStates)
      return fail(ErrorCode::too_large,
                  fmt::format("patterns and lengths together need an automaton of more than {} states", Dfa::kMaxStates));
    const auto [x, y] = pairs[i];
    std::pair<std::int32_t, std::int32_t> last{Dfa::kDead, Dfa::kDead};
    std::int32_t target = Dfa::kDead;
    std::int64_t n_lookups = 0;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto c = static_cast<unsigned char>(byte);
      if (const std::pair both{a.step(x, c), b.step(y, c)}; both != last) {
        target = state_of(both.first, both.second);
        last = both;
        ++n_lookups;
      }
      result.next[i][byte] = target;
    }
    if (!meter.spend(2 * n_lookups)) return over_budget(meter);
  }
  return minimize(result, meter);
}

Result<Dfa> json_escaped(const Dfa& dfa, WorkMeter& meter) {
  constexpr std::pair<char, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                              {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  constexpr std::string_view kHex = "0123456789abcdef";
  Dfa result = dfa;
  const std::size_t n = dfa.n_states();
  for (std::size_t state = 0; state < n; ++state) {
    if (!meter.spend(32)) return over_budget(meter);
    const auto edge = [&](std::int32_t from, char byte) -> std::int32_t& {
      return result.next[static_cast<std::size_t>(from)][static_cast<unsigned char>(byte)];
    };
    const auto behind = [&](std::int32_t from, char byte) {
      if (edge(from, byte) == Dfa::kDead) {
        const std::int32_t target = result.add_state(false);
        edge(from, byte) = target;
      }
      return edge(from, byte);
    };
    const auto origin = static_cast<std::int32_t>(state);
    const Dfa::Row& row = dfa.next[state];
    for (std::size_t byte = 0; byte < 0x20; ++byte) edge(origin, static_cast<char>(byte)) = Dfa::kDead;
    edge(origin, '"') = edge(origin, '\\') = Dfa::kDead;
    for (std::size_t byte = 0; byte < 0x7f; ++byte) {
      const auto c = static_cast<char>(byte);
      if ((byte >= 0x20 && c != '"' && c != '\\') || row[byte] == Dfa::kDead) continue;
      const std::int32_t escape = behind(origin, '\\');
      const auto* form = std::find_if(std::begin(kShort), std::end(kShort), [&](const auto& pair) { return pair.first == c; });
      if (form != std::end(kShort)) {
        edge(escape, form->second) = row[byte];
        continue;
      }
      const std::int32_t digits = behind(behind(behind(behind(escape, 'u'), '0'), '0'), static_cast<char>('0' + byte / 16));
      const char last = kHex[byte % 16];
      edge(digits, last) = row[byte];
      if (last >= 'a') edge(digits, static_cast<char>(last - 'a' + 'A')) = row[byte];
    }
  }
  return result;
}

}  // namespace baton::grammar
