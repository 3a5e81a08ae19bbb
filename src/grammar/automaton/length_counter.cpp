/// Lengths of the texts from each state of an automaton to its end.
#include "grammar/automaton/length_counter.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace baton::grammar {

namespace {

using StateSet = std::vector<bool>;

/// The edges of an automaton backwards.
struct Sources {
  std::vector<std::size_t> at;  // [target + 1]: where those of a target begin
  std::vector<std::int32_t> all;

  Sources(const CompactDfa& dfa, bool counts) : at(dfa.n_states() + 1, 0) {
    const auto visit = [&](const auto& edge_of) {
      for (std::size_t state = 0; state < dfa.n_states(); ++state) {
        std::int32_t last = -1;
        for (const CompactDfa::Edge& edge : dfa.edges(state))
          if (edge.counts == counts && std::exchange(last, edge.target) != edge.target) edge_of(state, edge.target);
      }
    };
    visit([&](std::size_t, std::int32_t target) { ++at[static_cast<std::size_t>(target) + 1]; });
    for (std::size_t i = 1; i < at.size(); ++i) at[i] += at[i - 1];
    all.resize(at.back());
    std::vector<std::size_t> place(at);
    visit([&](std::size_t state, std::int32_t target) {
      all[place[static_cast<std::size_t>(target)]++] = static_cast<std::int32_t>(state);
    });
  }

  template <class Visit>
  void for_each(std::size_t target, const Visit& visit) const {
    for (std::size_t i = at[target]; i < at[target + 1]; ++i) visit(static_cast<std::size_t>(all[i]));
  }
};

/// Adds the states that edges which count nothing lead into the set from.
void close(const Sources& uncounted, StateSet& set) {
  std::vector<std::size_t> work;
  for (std::size_t state = 0; state < set.size(); ++state)
    if (set[state]) work.push_back(state);
  while (!work.empty()) {
    const std::size_t state = work.back();
    work.pop_back();
    uncounted.for_each(state, [&](std::size_t source) {
      if (set[source]) return;
      set[source] = true;
      work.push_back(source);
    });
  }
}

StateSet one_longer(const Sources& counted, const Sources& uncounted, const StateSet& set) {
  StateSet longer(set.size(), false);
  for (std::size_t state = 0; state < set.size(); ++state)
    if (set[state]) counted.for_each(state, [&](std::size_t source) { longer[source] = true; });
  close(uncounted, longer);
  return longer;
}

}  // namespace

Result<LengthCounter> LengthCounter::of(const CompactDfa& dfa, const LengthBounds& bounds, WorkMeter& meter) {
  LengthCounter counter;
  counter.bounds_ = bounds;
  const std::size_t n = dfa.n_states();
  HeldBytes held(meter);
  if (!meter.spend(static_cast<std::int64_t>(dfa.n_edges() + n)) || !held.add(8 * (dfa.n_edges() + n) * sizeof(std::size_t)))
    return over_budget(meter);
  const Sources counted(dfa, /*counts=*/true);
  const Sources uncounted(dfa, /*counts=*/false);
  StateSet set(n, false);  // the states that have a text of that length
  for (std::size_t state = 0; state < n; ++state) set[state] = dfa.is_final(state);
  close(uncounted, set);
  std::vector<std::vector<Run>> runs(n);
  // A set follows from the one before, so they repeat.
  std::unordered_map<StateSet, std::int32_t> length_of;
  std::int32_t length = 0;
  for (; bounds.max < 0 || length <= bounds.max; ++length) {
    const auto [known, is_new] = length_of.emplace(set, length);
    if (!is_new) {
      counter.n_first_ = known->second;
      counter.period_ = length - known->second;
      break;
    }
    std::size_t n_new = 0;
    for (std::size_t state = 0; state < n; ++state) {
      if (!set[state]) continue;
      std::vector<Run>& own = runs[state];
      if (!own.empty() && own.back().last == length - 1) {
        own.back().last = length;
      } else {
        own.push_back({length, length});
        ++n_new;
      }
    }
    if (!meter.spend(8 + static_cast<std::int64_t>((n + dfa.n_edges()) / 8)) ||
        !held.add(n / 8 + 128 + 3 * n_new * sizeof(Run)))
      return over_budget(meter);
    set = one_longer(counted, uncounted, set);
  }
  if (counter.period_ == 0) counter.n_first_ = length;
  counter.runs_at_.push_back(0);
  for (const std::vector<Run>& own : runs) {
    counter.runs_.insert(counter.runs_.end(), own.begin(), own.end());
    counter.runs_at_.push_back(counter.runs_.size());
    if (!own.empty()) counter.most_needed_ = std::max(counter.most_needed_, own[0].first);
  }
  counter.runs_.shrink_to_fit();
  return counter;
}

/// The least of the first lengths from `least` on that a text from the state to the end has.
std::optional<std::int32_t> LengthCounter::next_in_table(std::size_t state, std::int64_t least) const {
  const auto begin = runs_.begin() + static_cast<std::ptrdiff_t>(runs_at_[state]);
  const auto end = runs_.begin() + static_cast<std::ptrdiff_t>(runs_at_[state + 1]);
  const auto run = std::partition_point(begin, end, [&](const Run& one) { return one.last < least; });
  if (run == end) return std::nullopt;
  return std::max(run->first, static_cast<std::int32_t>(least));
}

/// The same of all lengths.
std::optional<std::int64_t> LengthCounter::next_length(std::size_t state, std::int64_t least) const {
  if (period_ == 0) return next_in_table(state, least);
  const std::int64_t place = least < n_first_ ? least : n_first_ + (least - n_first_) % period_;
  if (const auto next = next_in_table(state, place); next) return least + (*next - place);
  const auto next = next_in_table(state, n_first_);  // in the period that follows
  return next ? std::optional(least + (*next + period_ - place)) : std::nullopt;
}

bool LengthCounter::allows(std::size_t state, Count count) const {
  if (bounds_.max >= 0 && count > bounds_.max) return false;
  const std::optional<std::int64_t> length = next_length(state, std::max(0, bounds_.min - count));
  return length && (bounds_.max < 0 || *length <= bounds_.max - count);
}

/// Whether the minimum is so far away that what a text of `n_bytes` leads to depends on its state, and on the count by its
/// remainder only.
bool LengthCounter::is_far_below(Count count, std::int32_t n_bytes) const {
  return period_ > 0 && std::int64_t{bounds_.min} - count >= std::int64_t{n_first_} + n_bytes && count < bounds_.min;
}

/// Whether the minimum is reached and no text of `n_bytes` comes near the maximum.
bool LengthCounter::is_far_between(Count count, std::int32_t n_bytes) const {
  return count >= bounds_.min && (bounds_.max < 0 || std::int64_t{bounds_.max} - count >= std::int64_t{most_needed_} + n_bytes);
}

std::int32_t LengthCounter::step_below() const {
  return bounds_.max < 0 || bounds_.max - bounds_.min >= period_ - 1 ? 1 : period_;
}

LengthCounter::Count LengthCounter::representative(Count count) const {
  if (is_far_between(count, kMaxTokenBytes)) return bounds_.max < 0 ? bounds_.min : bounds_.max - most_needed_ - kMaxTokenBytes;
  if (!is_far_below(count, kMaxTokenBytes)) return count;
  const Count last = bounds_.min - n_first_ - kMaxTokenBytes;  // that is far
  return last - (last - count) % step_below();
}

bool LengthCounter::are_alike(Count a, Count b, std::int32_t n_bytes) const {
  if (a == b || (is_far_between(a, n_bytes) && is_far_between(b, n_bytes))) return true;
  return is_far_below(a, n_bytes) && is_far_below(b, n_bytes) && (a - b) % step_below() == 0;
}

std::optional<LengthCounter::Twin> LengthCounter::twin(Count count) const {
  constexpr std::int32_t kLeastBytes = 8;  // for less, hardly any token would be shared
  if (representative(count) != count || is_far_between(count, kMaxTokenBytes) || is_far_below(count, kMaxTokenBytes))
    return std::nullopt;
  if (is_far_below(count, kLeastBytes)) {
    const std::int32_t step = step_below();
    const std::int64_t last = std::int64_t{bounds_.min} - n_first_ - kMaxTokenBytes;
    const std::int64_t other = last - (step - (count - last) % step) % step;
    if (other >= 0) return Twin{static_cast<Count>(other), bounds_.min - n_first_ - count};
  }
  // After the minimum, and near it, most tokens are as far from the maximum as anywhere.
  const std::int64_t far = bounds_.max < 0 ? bounds_.min : std::int64_t{bounds_.max} - most_needed_ - kMaxTokenBytes;
  if (far < bounds_.min) return std::nullopt;
  if (count < bounds_.min) return Twin{static_cast<Count>(far), 0};
  const std::int32_t n_bytes = bounds_.max - most_needed_ - count;
  return n_bytes >= kLeastBytes ? std::optional(Twin{static_cast<Count>(far), n_bytes}) : std::nullopt;
}

}  // namespace baton::grammar
