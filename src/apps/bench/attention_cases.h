/// The cases of `baton bench attention`: the workloads of docs/workloads.md, the times of other programs, and the
/// goals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"

namespace baton {

/// A line of a table: requests that share `shared_len` tokens and have `own_len` tokens of their own, over one layer.
struct AttentionBenchCase {
  std::string table;  ///< W1: Flash-Decoding's table, W2: RelayAttention's figure, W3: Llama-3-8B, "free": from flags
  std::int32_t n_heads = 0;
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t n_requests = 0;
  std::int32_t shared_len = 0;  ///< full blocks of 16
  std::int32_t own_len = 0;
  std::int32_t n_groups = 1;  ///< number of prefixes, each shared by an equal part of the requests

  std::int64_t token_bytes(DType kv_dtype) const {
    return 2LL * n_kv_heads * head_dim * static_cast<std::int64_t>(size_bytes(kv_dtype));
  }
  /// Keys and values that must be read at least once.
  std::int64_t distinct_tokens() const {
    return static_cast<std::int64_t>(n_groups) * shared_len + static_cast<std::int64_t>(n_requests) * own_len;
  }
  /// Bytes read if each request reads all of its own.
  std::int64_t plain_tokens() const { return static_cast<std::int64_t>(n_requests) * (shared_len + own_len); }
};

/// The lines of the named tables.
std::vector<AttentionBenchCase> attention_bench_cases(const std::vector<std::string>& tables);

/// The dtype in which a table's times were measured: float16 for W1, otherwise bfloat16.
DType table_dtype(const std::string& table);

/// Times of other programs for a case, in microseconds, measured on an H200 on another day (2026-11-20) or published
/// (A100).
struct AttentionReferences {
  std::vector<std::pair<std::string, double>> peers;      ///< on an H200; the goal is to be faster than all of them
  std::vector<std::pair<std::string, double>> published;  ///< on other machines
  double best_peer_us() const;
};
/// The titles of a table's columns: first the peers', then the published ones'.
std::vector<std::string> reference_titles(const std::string& table);
std::optional<AttentionReferences> attention_references(const AttentionBenchCase& of);

/// The goal for a case on an H200, in microseconds: W1 read + 2, W2 1.15 floor + 3, W3 max(1.25 limit + 4, 7). The
/// limit is the larger of the floor and the time of the matmuls at 600 TFLOP/s. Other shapes have no goal.
///
///     read_us   a read-only kernel over the distinct bytes, launch included
///     floor_us  the distinct bytes at the rate of long reads
std::optional<double> attention_goal_us(const AttentionBenchCase& of, double read_us, double floor_us);

}  // namespace baton
