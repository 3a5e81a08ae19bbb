/// Products and minimisation of automata over bytes.
#include "grammar/automaton/dfa.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace baton::grammar {

/// States: an automaton with more is trimmed only, so that refining takes at most 21 MB.
constexpr std::size_t kMostRefined = 4'000;

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
  std::array<std::size_t, 256> set_of{};
  std::vector<std::size_t> columns{0};  // the first byte of each set
  for (const Dfa::Row& row : dfa.next) {
    const auto is_told_apart = [&](std::size_t byte) { return row[byte] != row[columns[set_of[byte]]]; };
    bool is_same = true;
    for (std::size_t byte = 0; byte < 256; ++byte) is_same = is_same && !is_told_apart(byte);
    if (is_same) continue;
    std::map<std::pair<std::size_t, std::int32_t>, std::size_t> seen;  // an old set and a target: the new set
    columns.clear();
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto [at, is_new] = seen.emplace(std::pair(set_of[byte], row[byte]), seen.size());
      if (is_new) columns.push_back(byte);
      set_of[byte] = at->second;
    }
  }
  return columns;
}

/// Numbers in groups that split into their marked and their other members.
class Partition {
 public:
  Partition(std::vector<std::int32_t> group, std::int32_t n_groups) : group_(std::move(group)), places_(group_.size()) {
    std::vector<std::int32_t> end(static_cast<std::size_t>(n_groups) + 1, 0);
    for (const std::int32_t g : group_) ++end[static_cast<std::size_t>(g) + 1];
    for (std::size_t g = 0; g < static_cast<std::size_t>(n_groups); ++g) {
      end[g + 1] += end[g];
      groups_.push_back({end[g], end[g + 1], 0});
    }
    members_.resize(group_.size());
    for (std::size_t x = 0; x < group_.size(); ++x) {
      places_[x] = end[static_cast<std::size_t>(group_[x])]++;
      members_[static_cast<std::size_t>(places_[x])] = static_cast<std::int32_t>(x);
    }
  }

  std::size_t n_groups() const { return groups_.size(); }
  std::int32_t group_of(std::size_t x) const { return group_[x]; }
  std::span<const std::int32_t> members(std::size_t group) const {
    return std::span(members_).subspan(static_cast<std::size_t>(groups_[group].begin), groups_[group].size());
  }

  /// Marks x, which is not marked.
  void mark(std::int32_t x) {
    const auto at = static_cast<std::size_t>(x);
    Group& group = groups_[static_cast<std::size_t>(group_[at])];
    if (group.n_marked == 0) touched_.push_back(group_[at]);
    const std::int32_t first = group.begin + group.n_marked++;
    const std::int32_t other = std::exchange(members_[static_cast<std::size_t>(first)], x);
    members_[static_cast<std::size_t>(places_[at])] = other;
    places_[static_cast<std::size_t>(other)] = std::exchange(places_[at], first);
  }

  /// Splits the groups with marks and takes the marks away. The smaller part of each becomes the group of a new number.
  void split() {
    for (const std::int32_t number : touched_) {
      Group& group = groups_[static_cast<std::size_t>(number)];
      const std::int32_t n_marked = std::exchange(group.n_marked, 0);
      const auto n_others = static_cast<std::int32_t>(group.size()) - n_marked;
      if (n_others == 0) continue;
      const std::int32_t middle = group.begin + n_marked;
      const Group made = n_marked <= n_others ? Group{group.begin, middle, 0} : Group{middle, group.end, 0};
      (n_marked <= n_others ? group.begin : group.end) = middle;
      for (std::int32_t i = made.begin; i < made.end; ++i)
        group_[static_cast<std::size_t>(members_[static_cast<std::size_t>(i)])] = static_cast<std::int32_t>(groups_.size());
      groups_.push_back(made);
    }
    touched_.clear();
  }

 private:
  struct Group {
    std::int32_t begin, end;  // of its members; the marked ones come first
    std::int32_t n_marked;
    std::size_t size() const { return static_cast<std::size_t>(end - begin); }
  };

  std::vector<std::int32_t> group_;
  std::vector<std::int32_t> places_;   // of each number in members_
  std::vector<std::int32_t> members_;  // of all groups
  std::vector<Group> groups_;
  std::vector<std::int32_t> touched_;  // the groups with marks
};

/// For each column, the states that it leads to each of `n` states: sources of target t by column c are
/// list[c * n + begin[c * (n + 1) + t]] and those after it, up to the next begin.
struct ColumnSources {
  std::vector<std::int32_t> begin, list;
  std::size_t n;

  /// targets[c * n + s]: where column c leads state s.
  ColumnSources(const std::vector<std::int32_t>& targets, std::size_t n_columns, std::size_t n_states)
      : begin(n_columns * (n_states + 1), 0), list(targets.size()), n(n_states) {
    std::vector<std::int32_t> place(n + 1);
    for (std::size_t c = 0; c < n_columns; ++c) {
      const auto to = std::span(targets).subspan(c * n, n);
      const auto first = std::span(begin).subspan(c * (n + 1), n + 1);
      for (const std::int32_t target : to) ++first[static_cast<std::size_t>(target) + 1];
      for (std::size_t t = 0; t < n; ++t) first[t + 1] += first[t];
      std::ranges::copy(first, place.begin());
      for (std::size_t s = 0; s < n; ++s)
        list[c * n + static_cast<std::size_t>(place[static_cast<std::size_t>(to[s])]++)] = static_cast<std::int32_t>(s);
    }
  }

  std::span<const std::int32_t> of(std::size_t column, std::int32_t target) const {
    const std::int32_t* const at = begin.data() + column * (n + 1) + static_cast<std::size_t>(target);
    return std::span(list).subspan(column * n + static_cast<std::size_t>(at[0]), static_cast<std::size_t>(at[1] - at[0]));
  }
};

/// Splits groups until no column tells two states of one apart. `largest`: the group that the others are compared with.
/// Source: Hopcroft, An n log n algorithm for minimizing states in a finite automaton, 1971.
Result<void> refine_groups(Partition& partition, const ColumnSources& sources, std::size_t n_columns, std::size_t largest,
                           WorkMeter& meter) {
  std::vector<std::pair<std::int32_t, std::int32_t>> work;  // a group and a column that may tell other groups apart
  const auto add_work = [&](std::size_t group) {
    for (std::size_t c = 0; c < n_columns; ++c)
      work.emplace_back(static_cast<std::int32_t>(group), static_cast<std::int32_t>(c));
  };
  for (std::size_t g = 0; g < partition.n_groups(); ++g)
    if (g != largest) add_work(g);
  std::vector<std::int32_t> targets;
  while (!work.empty()) {
    const auto [group, column] = work.back();
    work.pop_back();
    const auto members = partition.members(static_cast<std::size_t>(group));
    targets.assign(members.begin(), members.end());
    std::size_t n_marked = 0;
    for (const std::int32_t target : targets)
      for (const std::int32_t source : sources.of(static_cast<std::size_t>(column), target)) {
        partition.mark(source);
        ++n_marked;
      }
    const std::size_t n_before = partition.n_groups();
    partition.split();
    for (std::size_t g = n_before; g < partition.n_groups(); ++g) add_work(g);
    const std::size_t n_looked_at = targets.size() + n_marked + (partition.n_groups() - n_before) * n_columns;
    if (!meter.spend(1 + static_cast<std::int64_t>(n_looked_at / 2))) return over_budget(meter);
  }
  return {};
}

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
  HeldBytes held(meter);  // the edges, and the same backwards
  if (!held.add(3 * n_ranges(dfa) * sizeof(std::int32_t) + 2 * dfa.n_states() * sizeof(std::size_t))) return over_budget(meter);
  BATON_TRY(const std::vector<bool> is_useful, useful_states(dfa, meter));
  std::vector<std::int32_t> number(dfa.n_states(), -1);  // of the useful states
  std::int32_t n_useful = 0;
  for (std::size_t state = 0; state < number.size(); ++state)
    if (is_useful[state]) number[state] = n_useful++;
  if (n_useful == 0 || dfa.n_states() > kMostRefined) return quotient(dfa, std::move(number), n_useful, meter);

  if (!meter.spend(8 * static_cast<std::int64_t>(dfa.n_states()))) return over_budget(meter);
  const std::vector<std::size_t> columns = distinct_columns(dfa);
  const std::size_t n = static_cast<std::size_t>(n_useful) + 1;  // with a last state, which nothing leaves
  // Targets, sources and their places, the work that waits, and the groups.
  if (!held.add((5 * columns.size() + 8) * (n + 1) * sizeof(std::int32_t))) return over_budget(meter);
  if (!meter.spend(static_cast<std::int64_t>(n * columns.size() / 4))) return over_budget(meter);
  std::vector<std::int32_t> targets(columns.size() * n, n_useful), group(n, 0);
  std::vector<std::size_t> sizes(3, 0);  // of the groups: the last state, final states, others
  for (std::size_t state = 0; state < number.size(); ++state) {
    if (number[state] < 0) continue;
    const auto at = static_cast<std::size_t>(number[state]);
    group[at] = dfa.is_final[state] ? 1 : 2;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::int32_t target = dfa.next[state][columns[c]];
      if (target != Dfa::kDead && number[static_cast<std::size_t>(target)] >= 0)
        targets[c * n + at] = number[static_cast<std::size_t>(target)];
    }
  }
  for (const std::int32_t g : group) ++sizes[static_cast<std::size_t>(g)];
  const ColumnSources sources(targets, columns.size(), n);
  Partition partition(std::move(group), 3);
  const auto largest = static_cast<std::size_t>(std::ranges::max_element(sizes) - sizes.begin());
  BATON_TRY_VOID(refine_groups(partition, sources, columns.size(), largest, meter));

  // Groups are numbered in the order of their first states.
  std::vector<std::int32_t> joined(partition.n_groups(), -1);
  std::int32_t n_groups = 0;
  for (std::int32_t& at : number) {
    if (at < 0) continue;
    std::int32_t& g = joined[static_cast<std::size_t>(partition.group_of(static_cast<std::size_t>(at)))];
    if (g < 0) g = n_groups++;
    at = g;
  }
  return quotient(dfa, std::move(number), n_groups, meter);
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
