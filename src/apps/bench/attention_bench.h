/// `baton bench attention`: the attention of one layer and step, shared prompts read once (relay) against read by each request
/// (paged).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/result.h"

namespace baton {

struct AttentionBenchOptions {
  int threads = 0;                          ///< 0: all
  std::string kv_cache_dtype = "bfloat16";  ///< bfloat16 or float32
  std::vector<std::string> tables{"W1", "W2", "W3"};
  std::int32_t n_runs = 7;      ///< of each arm, interleaved
  bool processor_time = false;  ///< one thread, by its processor time: for a machine that others use
  std::string json_file;
};

/// A line of a table: requests that share `shared_len` tokens and have `own_len` of their own, over one layer.
struct AttentionBenchCase {
  std::string table;  ///< W1: the Flash-Decoding table, W2: the RelayAttention figure, W3: Llama-3-8B
  std::int32_t n_heads = 0;
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t n_requests = 0;
  std::int32_t shared_len = 0;
  std::int32_t own_len = 0;
};

/// What one arm did with a case.
struct AttentionArmRun {
  std::string arm;            ///< relay or paged
  std::vector<double> us;     ///< a layer's decode and merge, one a run
  std::int64_t kv_bytes = 0;  ///< that the plan requests
  std::int64_t n_items = 0;

  double median_us() const;
  double spread() const;  ///< (largest - smallest) / median
};

struct AttentionBenchRun {
  AttentionBenchCase of;
  std::vector<AttentionArmRun> arms;  ///< paged; and relay where something is shared
  std::int64_t distinct_bytes = 0;    ///< keys and values that must be read at least once
  std::int64_t plain_bytes = 0;       ///< were each request to read all of its own
  double flops = 0;
};

struct AttentionBenchReport {
  std::string device;
  std::string features;
  double read_bytes_per_us = 0;  ///< plain reads of 256 MiB by the same threads, the best of the run: what the floor stands on
  std::vector<AttentionBenchRun> runs;
  std::vector<std::string> left_out;  ///< cases that memory does not hold, a sentence each
};

/// The lines of the named tables, from targets.md.
std::vector<AttentionBenchCase> attention_bench_cases(const std::vector<std::string>& tables);

/// Runs the cases. Layers are rotated so that no call finds the keys of the call before in the cache: keys and values fill at
/// least 128 MiB. Errors: an unknown dtype, a backend that cannot be made.
Result<AttentionBenchReport> run_attention_bench(const AttentionBenchOptions& options,
                                                 std::span<const AttentionBenchCase> cases);

/// Adds the flags and registers nothing else.
void add_attention_bench_options(CLI::App& app, AttentionBenchOptions& options);

/// Runs and prints: tables, the command and the machine on standard output. Exit code.
int attention_bench_main(const AttentionBenchOptions& options, const std::string& command);

}  // namespace baton
