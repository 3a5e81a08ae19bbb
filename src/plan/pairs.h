/// Assigns the (item, KV head) pairs of a plan to workers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

/// Assigns pairs in the order in which they start, each to the worker that is free first. Reuses its memory.
class PairDealer {
 public:
  /// item_us: one worker's time for one KV head of each item. The first n_item_major items start item by item with all
  /// heads, the others head by head. Pairs are item * n_kv_heads + kv_head, worker after worker; offsets [n_workers +
  /// 1]. Returns when the last worker ends. Loads are counted in 1024ths of the evenly divided time, up to three times
  /// that time. Cost: O(pairs + n_workers).
  double deal(std::span<const double> item_us, std::int32_t n_item_major, std::int32_t n_kv_heads, std::int32_t n_workers,
              std::vector<std::int32_t>& pairs, std::vector<std::int32_t>& offsets);

 private:
  std::vector<std::int32_t> first_at_;  ///< the first worker at each level of load, or -1
  std::vector<std::int32_t> next_;      ///< the next one at the same level
  std::vector<std::int32_t> cost_of_;   ///< of each item, in levels
  std::vector<std::int32_t> worker_of_;
};

}  // namespace baton
