/// Runs a plan through the cost model instead of on a device: workers take (item, KV head) pairs in the plan's order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "plan/attention_plan.h"

namespace baton::testing {

/// Microseconds, by a device's cost model.
struct Makespan {
  double mean_us = 0;            ///< time of all pairs divided by the number of workers
  double greedy_us = 0;          ///< end of the last worker if a free worker takes the next pair
  double dealt_us = 0;           ///< the same with the pairs that the plan assigns to each worker
  double snake_us = 0;           ///< the same if pairs are assigned round by round, back and forth
  std::int32_t most_states = 0;  ///< most partial states of any row
};

/// A device of 132 blocks that take pairs concurrently, with costs close to an H200's.
inline AttentionCosts costs_of_132_blocks() {
  AttentionCosts costs;
  costs.memory_bytes_per_us = 4.5e6;
  costs.cache_bytes_per_us = 9.6e6;
  costs.cache_bytes = 63 << 20;
  costs.flops_per_us = 450e6;
  costs.few_queries = 32;
  costs.query_granule = 16;
  costs.partial_bytes_per_us = 5e6;
  costs.item_us = 0.7;
  costs.merge_us = 1.5;
  costs.n_workers = 132;
  costs.row_tile_queries = 128;
  costs.min_piece = 64;
  costs.head_by_head = false;
  return costs;
}

/// An H200: two workers for each of its 132 multiprocessors (CudaBackend::tuning).
inline AttentionCosts costs_of_h200() {
  AttentionCosts costs = costs_of_132_blocks();
  costs.n_workers = 264;
  costs.row_tile_queries = 64;
  costs.min_piece = 256;
  costs.partial_bytes_per_us = 3e6;
  costs.item_us = 3;
  costs.merge_us = 4.5;
  costs.relay_us = 2;
  return costs;
}

/// One worker's time for one KV head of an item.
inline double pair_us(const AttentionItem& item, const AttentionShape& shape, const AttentionCosts& costs) {
  const double group = static_cast<double>(shape.n_heads) / shape.n_kv_heads;
  const double n_keys = item.kv_end - item.kv_begin;
  double queries = item.n_rows * group;
  if (costs.query_granule > 1) {
    double padded = costs.query_granule;
    while (padded < queries) padded *= 2;
    queries = padded;
  }
  const double share = costs.n_workers;
  const double read_us = n_keys * 2 * shape.head_dim * shape.kv_element_bytes * share / costs.memory_bytes_per_us;
  const double matmul_us = 4 * n_keys * (queries + costs.few_queries) * shape.head_dim * share / costs.flops_per_us;
  const double state_bytes = 2.0 * item.n_rows * group * (4 * shape.head_dim + 8);
  const bool direct = (item.flags & AttentionItem::direct) != 0;
  return std::max(read_us, matmul_us) + costs.item_us + (direct ? 0 : state_bytes * share / costs.partial_bytes_per_us);
}

/// The (item, KV head) pairs in the order in which they start.
inline std::vector<std::pair<std::int32_t, std::int32_t>> pairs_in_order(const AttentionPlan& plan, std::int32_t n_kv_heads) {
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  for (std::int32_t item = 0; item < plan.n_item_major; ++item)
    for (std::int32_t head = 0; head < n_kv_heads; ++head) pairs.push_back({item, head});
  for (std::int32_t head = 0; head < n_kv_heads; ++head)
    for (auto item = plan.n_item_major; item < static_cast<std::int32_t>(plan.items.size()); ++item)
      pairs.push_back({item, head});
  return pairs;
}

inline Makespan simulate(const AttentionPlan& plan, const AttentionShape& shape, const AttentionCosts& costs) {
  Makespan result;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (std::int32_t i = 0; i < costs.n_workers; ++i) free_at.push(0);
  const auto n = static_cast<std::size_t>(costs.n_workers);
  std::vector<double> snake_load(n, 0);
  std::size_t at = 0;
  for (const auto& [item, head] : pairs_in_order(plan, shape.n_kv_heads)) {
    const double us = pair_us(plan.items[static_cast<std::size_t>(item)], shape, costs);
    const double end = free_at.top() + us;
    free_at.pop();
    free_at.push(end);
    result.greedy_us = std::max(result.greedy_us, end);
    result.mean_us += us / costs.n_workers;
    snake_load[at / n % 2 == 0 ? at % n : n - 1 - at % n] += us;
    ++at;
  }
  for (std::size_t w = 0; w + 1 < plan.worker_offsets.size(); ++w) {
    double us = 0;
    for (auto i = plan.worker_offsets[w]; i < plan.worker_offsets[w + 1]; ++i)
      us += pair_us(plan.items[static_cast<std::size_t>(plan.pairs[static_cast<std::size_t>(i)] / shape.n_kv_heads)], shape,
                    costs);
    result.dealt_us = std::max(result.dealt_us, us);
  }
  result.snake_us = *std::max_element(snake_load.begin(), snake_load.end());
  for (std::size_t row = 0; row < plan.rows.size(); ++row)
    result.most_states = std::max(result.most_states, plan.merge_offsets[row + 1] - plan.merge_offsets[row]);
  return result;
}

}  // namespace baton::testing
