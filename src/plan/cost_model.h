/// The cost model of the attention planner: what reading a run of keys costs on a device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/attention_plan.h"

namespace baton {

/// Reads of one run of keys, each for a tile of token rows. Times are microseconds for one token position and all KV
/// heads, with the whole device at work.
struct RunReads {
  double n_reads = 0;
  double matmul_us = 0;
  double cached_us = 0;  ///< sum over the reads of max(matmul time, read from the cache)
  double memory_us = 0;  ///< sum over the reads of max(matmul time, read from memory)

  RunReads& operator+=(const RunReads& other) {
    n_reads += other.n_reads;
    matmul_us += other.matmul_us;
    cached_us += other.cached_us;
    memory_us += other.memory_us;
    return *this;
  }
  RunReads& operator-=(const RunReads& other) {
    n_reads -= other.n_reads;
    matmul_us -= other.matmul_us;
    cached_us -= other.cached_us;
    memory_us -= other.memory_us;
    return *this;
  }
};

/// The costs of one device for one attention shape.
class AttentionCostModel {
 public:
  AttentionCostModel(const AttentionShape& shape, const AttentionCosts& costs)
      : shape_(shape),
        costs_(costs),
        group_(shape.n_heads / shape.n_kv_heads),
        row_tile_(rows_a_read(costs, shape)),
        memory_us_(static_cast<double>(shape.token_bytes()) / costs.memory_bytes_per_us),
        cache_us_(static_cast<double>(shape.token_bytes()) / costs.cache_bytes_per_us),
        query_us_(2.0 * (shape.head_dim + shape.v_dim()) * shape.n_kv_heads / costs.flops_per_us),
        state_us_(shape.n_heads * (4.0 * shape.v_dim() + 8) * 2 / costs.partial_bytes_per_us),
        worker_share_(static_cast<double>(costs.n_workers) / shape.n_kv_heads),
        one_row_(reads_of_tile(1)),
        full_tile_(reads_of_tile(row_tile_)) {}

  std::int32_t row_tile() const { return row_tile_; }

  /// The reads of a run that `n_rows` token rows need if they read it together.
  RunReads reads_of(std::int32_t n_rows) const {
    if (n_rows == 1) return one_row_;
    if (n_rows < row_tile_) return reads_of_tile(n_rows);
    RunReads reads;
    const std::int32_t n_full = n_rows / row_tile_;
    reads = {full_tile_.n_reads * n_full, full_tile_.matmul_us * n_full, full_tile_.cached_us * n_full,
             full_tile_.memory_us * n_full};
    if (n_rows % row_tile_ != 0) reads += reads_of_tile(n_rows % row_tile_);
    return reads;
  }

  /// Time of `reads` of a run of `n_keys`. `together`: the reads follow one another piece by piece, so all but the
  /// first find the keys in the cache, however long the run is.
  double run_us(const RunReads& reads, std::int32_t n_keys, bool together) const {
    const bool cached = together || stays_in_cache(n_keys);
    double key_us = 0;
    if (costs_.head_by_head) {
      // One worker makes the reads of a head one after the other, so their times add up. The first read comes from
      // memory.
      const double mean_matmul_us = reads.matmul_us / reads.n_reads;
      key_us = cached ? reads.cached_us + std::max(memory_us_, mean_matmul_us) - std::max(cache_us_, mean_matmul_us)
                      : reads.memory_us;
    } else {
      // Many workers read at the same time, so the most loaded part of the device determines the time.
      key_us = std::max({reads.matmul_us, memory_us_ * (cached ? 1 : reads.n_reads), cache_us_ * reads.n_reads});
    }
    return key_us * n_keys;
  }

  /// Time of the whole device to write and read back the partial states of `n_states` token rows, all heads.
  double partials_us(double n_states) const { return n_states * state_us_; }

  /// Time of one worker for one key of one KV head with `n_rows` token rows. A worker has its share of the device's
  /// rates.
  double worker_key_us(std::int32_t n_rows) const {
    const double us = n_rows == 1 ? one_row_.memory_us : std::max(memory_us_, reads_of_tile(n_rows).matmul_us);
    return us * worker_share_;
  }
  /// Time of one worker for one KV head's partial states of `n_rows` token rows.
  double worker_partials_us(std::int32_t n_rows) const { return n_rows * state_us_ * worker_share_; }

 private:
  bool stays_in_cache(std::int32_t n_keys) const {
    // If workers go head by head, only the heads in progress must fit into the cache.
    const double heads = costs_.head_by_head ? std::min(costs_.n_workers, shape_.n_kv_heads) : shape_.n_kv_heads;
    const double bytes = static_cast<double>(shape_.token_bytes()) * n_keys * heads / shape_.n_kv_heads;
    return bytes <= 0.7 * static_cast<double>(costs_.cache_bytes);
  }

  RunReads reads_of_tile(std::int32_t n_rows) const {
    std::int32_t padded = costs_.query_granule;
    while (padded < n_rows * group_ && padded < kMostPadded) padded *= 2;
    // Without padding (query_granule 1) the cost is linear in the number of rows.
    const double n_queries =
        costs_.query_granule > 1 ? std::max<double>(padded, n_rows * group_) : static_cast<double>(n_rows * group_);
    const double conversion_ratio = shape_.kv_element_bytes == 1 && n_queries > 16 ? costs_.conversion_ratio : 1;
    const double matmul_us = (n_queries + costs_.few_queries) * query_us_ * conversion_ratio;
    return {1, matmul_us, std::max(matmul_us, cache_us_), std::max(matmul_us, memory_us_)};
  }

  static constexpr std::int32_t kMostPadded = 128;

  const AttentionShape& shape_;
  const AttentionCosts& costs_;
  std::int32_t group_;  ///< query heads of a KV head
  std::int32_t row_tile_;
  double memory_us_;  ///< one position, all KV heads
  double cache_us_;
  double query_us_;      ///< matmuls of one position with one query row of each KV head
  double state_us_;      ///< a token row's partial state, written and read back
  double worker_share_;  ///< factor from the device's time for a position to one worker's time for one KV head
  RunReads one_row_;
  RunReads full_tile_;
};

}  // namespace baton
