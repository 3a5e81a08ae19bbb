/// Greedy assignment; workers stand in lists by load.
#include "plan/pairs.h"

#include <algorithm>
#include <numeric>

namespace baton {
namespace {

constexpr std::int32_t kEvenLevels = 1024;
constexpr std::int32_t kMostLevels = 3 * kEvenLevels;

/// Calls body(item, head) in the order in which pairs start.
template <class Body>
void for_each_pair(std::int32_t n_items, std::int32_t n_item_major, std::int32_t n_heads, const Body& body) {
  for (std::int32_t item = 0; item < n_item_major; ++item)
    for (std::int32_t head = 0; head < n_heads; ++head) body(item, head);
  for (std::int32_t head = 0; head < n_heads; ++head)
    for (std::int32_t item = n_item_major; item < n_items; ++item) body(item, head);
}

}  // namespace

/// Returns the worker with the lowest load and adds `cost` to its load. Loads beyond the counted levels stay at the
/// highest level.
std::int32_t PairDealer::take(std::int32_t cost) {
  while (first_at_[static_cast<std::size_t>(lowest_)] < 0) ++lowest_;
  std::int32_t& first = first_at_[static_cast<std::size_t>(lowest_)];
  const std::int32_t worker = first;
  first = next_[static_cast<std::size_t>(worker)];
  const std::int32_t to = std::min(lowest_ + cost, kMostLevels);
  next_[static_cast<std::size_t>(worker)] = first_at_[static_cast<std::size_t>(to)];
  first_at_[static_cast<std::size_t>(to)] = worker;
  highest_ = std::max(highest_, to);
  return worker;
}

double PairDealer::deal(std::span<const double> item_us, std::int32_t n_item_major, std::int32_t n_kv_heads,
                        std::int32_t n_workers, std::vector<std::int32_t>& pairs, std::vector<std::int32_t>& offsets) {
  const auto n_items = static_cast<std::int32_t>(item_us.size());
  const double even_us = std::accumulate(item_us.begin(), item_us.end(), 0.0) * n_kv_heads / n_workers;
  const double level_us = std::max(even_us / kEvenLevels, 1e-12);
  cost_of_.resize(item_us.size());
  for (std::size_t i = 0; i < item_us.size(); ++i)
    cost_of_[i] = static_cast<std::int32_t>(std::clamp(item_us[i] / level_us + 0.5, 1.0, 1.0 * kMostLevels));
  first_at_.assign(kMostLevels + 1, -1);
  next_.resize(static_cast<std::size_t>(n_workers));
  std::iota(next_.begin(), next_.end(), 1);
  next_.back() = -1;
  first_at_[0] = 0;
  lowest_ = 0;
  highest_ = 0;
  worker_of_.resize(item_us.size() * static_cast<std::size_t>(n_kv_heads));
  offsets.assign(static_cast<std::size_t>(n_workers) + 1, 0);
  std::int32_t* next_worker = worker_of_.data();
  for_each_pair(n_items, n_item_major, n_kv_heads, [&](std::int32_t item, std::int32_t) {
    const std::int32_t worker = take(cost_of_[static_cast<std::size_t>(item)]);
    *next_worker++ = worker;
    ++offsets[static_cast<std::size_t>(worker) + 1];
  });
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  pairs.resize(worker_of_.size());
  next_.assign(offsets.begin(), offsets.end() - 1);  // from here on: the place of each worker's next pair
  std::size_t i = 0;
  for_each_pair(n_items, n_item_major, n_kv_heads, [&](std::int32_t item, std::int32_t head) {
    pairs[static_cast<std::size_t>(next_[static_cast<std::size_t>(worker_of_[i++])]++)] = item * n_kv_heads + head;
  });
  return highest_ * level_us;
}

}  // namespace baton
