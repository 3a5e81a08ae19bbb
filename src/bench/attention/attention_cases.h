/// The cases of `baton bench attention`: the workloads of docs/workloads.md, the times of other programs, and the
/// goals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/attention/attention_trees.h"
#include "core/dtype.h"
#include "kernels/attention_costs.h"

namespace baton {

/// Positions in a block of the KV cache.
inline constexpr std::int32_t kBenchBlockLen = 16;

/// A line of a table: requests that share `shared_len` tokens, at once or in the levels of a tree, and have `own_len`
/// tokens of their own, over one layer.
struct AttentionBenchCase {
  /// W1: Flash-Decoding's table, W2: RelayAttention's figure, W3: Llama-3-8B, "PAT 32/8": PAT's trees with these heads,
  /// "free": from flags
  std::string table;
  std::int32_t n_heads = 0;
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t n_requests = 0;
  std::int32_t shared_len = 0;  ///< full blocks of 16; of a tree, the sum of its shared levels
  std::int32_t own_len = 0;
  std::int32_t n_groups = 1;  ///< number of prefixes, each shared by an equal part of the requests; of a tree, its roots
  std::vector<AttentionLevel> tree = {};  ///< the shared levels from the roots; empty: n_groups prefixes alone
  std::int32_t latent_dim = 0;            ///< over 0: values are the beginnings of keys (KvShape::latent_dim)

  AttentionShape attention_shape(DType kv_dtype) const;
  std::int64_t token_bytes(DType kv_dtype) const { return attention_shape(kv_dtype).token_bytes(); }
  /// Floating-point operations of all requests.
  double flops() const;
  /// The tree, or the prefixes as a tree of one level; empty if nothing is shared.
  std::vector<AttentionLevel> shared_levels() const;
  /// Keys and values that must be read at least once.
  std::int64_t distinct_tokens() const;
  /// Bytes read if each request reads all of its own.
  std::int64_t plain_tokens() const { return static_cast<std::int64_t>(n_requests) * (shared_len + own_len); }
};

/// The lines of the named tables: W1, W2, W3, and pat, which is one table for each of PAT's four head shapes.
std::vector<AttentionBenchCase> attention_bench_cases(const std::vector<std::string>& tables);

/// What the levels of a tree are attended with.
struct AttentionHeads {
  std::int32_t n_heads = 0;
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t latent_dim = 0;
};
/// The case of a tree (see parse_attention_tree), whose last level is the requests.
AttentionBenchCase tree_case(std::string table, const AttentionHeads& heads, std::vector<AttentionLevel> levels);

/// What the requests share, for readers: "32 + 8 x 512".
std::string shared_text(const AttentionBenchCase& of);

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
