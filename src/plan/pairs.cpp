/// Greedy assignment; workers stand in lists by load.
#include "plan/pairs.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace baton {
namespace {

constexpr std::int32_t kEvenLevels = 1024;
constexpr std::int32_t kMostPairLevels = 3 * kEvenLevels;

/// Calls body(item, head) in the order in which pairs start.
template <class Body>
void for_each_pair(std::int32_t n_items, std::int32_t n_item_major, std::int32_t n_heads, const Body& body) {
  for (std::int32_t item = 0; item < n_item_major; ++item)
    for (std::int32_t head = 0; head < n_heads; ++head) body(item, head);
  for (std::int32_t head = 0; head < n_heads; ++head)
    for (std::int32_t item = n_item_major; item < n_items; ++item) body(item, head);
}

/// Workers by load. A level's workers stand in a list, the one that came last first; the lowest level's are taken.
/// Loads beyond the counted levels stay at the highest level.
class LowestLoad {
 public:
  /// `first_at` [kMostPairLevels + 1], `next` [n_workers]: memory of the lists. All workers begin at level 0 in order.
  LowestLoad(std::vector<std::int32_t>& first_at, std::vector<std::int32_t>& next) {
    first_at.assign(kMostPairLevels + 1, -1);
    std::iota(next.begin(), next.end(), 1);
    next.back() = -1;
    first_at_ = first_at.data();
    next_ = next.data();
  }
  std::int32_t highest() const { return highest_; }

  /// The worker with the lowest load; `cost` (at least 1) is added to its load.
  std::int32_t take(std::int32_t cost) {
    while (worker_ < 0) worker_ = first_at_[++lowest_];
    const std::int32_t taken = worker_;
    worker_ = next_[taken];
    std::int32_t to = lowest_ + cost;
    if (to >= kMostPairLevels) {
      to = kMostPairLevels;
      // The highest level may be the lowest too: there its list is the one that is taken from.
      if (lowest_ == kMostPairLevels) {
        next_[taken] = std::exchange(worker_, taken);
        return taken;
      }
    }
    next_[taken] = std::exchange(first_at_[to], taken);
    highest_ = std::max(highest_, to);
    return taken;
  }

 private:
  std::int32_t* first_at_;   ///< the first worker at each level above the lowest, or -1
  std::int32_t* next_;       ///< the next one at the same level
  std::int32_t worker_ = 0;  ///< the first worker at the lowest level, or -1
  std::int32_t lowest_ = 0;
  std::int32_t highest_ = 0;
};

}  // namespace

double PairDealer::deal(std::span<const double> item_us, std::int32_t n_item_major, std::int32_t n_kv_heads,
                        std::int32_t n_workers, std::vector<std::int32_t>& pairs, std::vector<std::int32_t>& offsets) {
  const auto n_items = static_cast<std::int32_t>(item_us.size());
  const double even_us = std::accumulate(item_us.begin(), item_us.end(), 0.0) * n_kv_heads / n_workers;
  const double level_us = std::max(even_us / kEvenLevels, 1e-12);
  cost_of_.resize(item_us.size());
  for (std::size_t i = 0; i < item_us.size(); ++i)
    cost_of_[i] = static_cast<std::int32_t>(std::clamp(item_us[i] / level_us + 0.5, 1.0, 1.0 * kMostPairLevels));
  next_.resize(static_cast<std::size_t>(n_workers));
  LowestLoad workers(first_at_, next_);
  worker_of_.resize(item_us.size() * static_cast<std::size_t>(n_kv_heads));
  offsets.assign(static_cast<std::size_t>(n_workers) + 1, 0);
  std::int32_t* next_worker = worker_of_.data();
  const std::int32_t* cost_of = cost_of_.data();
  std::int32_t* n_of_worker = offsets.data() + 1;
  for_each_pair(n_items, n_item_major, n_kv_heads, [&](std::int32_t item, std::int32_t) {
    const std::int32_t worker = workers.take(cost_of[item]);
    *next_worker++ = worker;
    ++n_of_worker[worker];
  });
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  pairs.resize(worker_of_.size());
  next_.assign(offsets.begin(), offsets.end() - 1);  // from here on: the place of each worker's next pair
  const std::int32_t* worker = worker_of_.data();
  std::int32_t* place = next_.data();
  std::int32_t* pair = pairs.data();
  for_each_pair(n_items, n_item_major, n_kv_heads,
                [&](std::int32_t item, std::int32_t head) { pair[place[*worker++]++] = item * n_kv_heads + head; });
  return workers.highest() * level_us;
}

}  // namespace baton
