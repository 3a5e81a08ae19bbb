/// `baton bench attention`: the attention of one layer in one step, with shared prompts read once (relay) or by each
/// request (paged).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/attention/attention_cases.h"
#include "bench/attention/attention_report.h"
#include "core/result.h"

namespace CLI {
class App;
}

namespace baton {

/// A shape given by flags: all combinations of the three lists.
struct AttentionFreeShape {
  std::int32_t n_heads = 32;
  std::int32_t n_kv_heads = 8;
  std::int32_t head_dim = 128;
  std::int32_t latent_dim = 0;         ///< over 0: multi-head latent attention (KvShape::latent_dim)
  std::vector<std::int32_t> requests;  ///< empty: the tables
  std::vector<std::int32_t> shared{0};
  std::vector<std::int32_t> own{512};
  std::int32_t n_groups = 1;
  std::vector<std::string> trees;  ///< in place of requests, shared, own and n_groups; see parse_attention_tree
};

struct AttentionBenchOptions {
  std::string device = "cpu";           ///< one of kBackendNames
  int device_number = 0;                ///< index of the CUDA device
  int attention_blocks = 0;             ///< of the CUDA kernel's grid; 0: as many as are resident at once
  int threads = 0;                      ///< of a CPU; 0: all
  std::string kv_cache_dtype = "auto";  ///< auto: on CUDA the table's own, on a CPU bfloat16
  std::vector<std::string> tables{"W1", "W2", "W3"};
  AttentionFreeShape free;
  std::int32_t n_runs = 0;      ///< of each arm, interleaved; 0: 7 on a CPU, 25 on CUDA
  bool processor_time = false;  ///< CPU: one thread, timed by its processor time, for a machine in use
  std::vector<std::string> arms{"paged", "relay"};
  bool batch_invariant = false;  ///< BackendOptions::batch_invariant, and plans of that mode
  bool explain = false;          ///< also print the plans
  std::string json_file;
};

/// The cases that the options select: the free shape if it has requests or trees, otherwise the tables. Errors: a shape that no
/// plan allows.
Result<std::vector<AttentionBenchCase>> cases_of(const AttentionBenchOptions& options);

/// Runs the cases. Layers are rotated so that no call finds the keys of the previous call in the cache: keys and
/// values take at least 128 MiB on a CPU and 256 MiB on CUDA. Errors: an unknown dtype, a backend that cannot be made
/// or refuses a shape.
Result<AttentionBenchReport> run_attention_bench(const AttentionBenchOptions& options,
                                                 std::span<const AttentionBenchCase> cases);

/// Adds the flags only.
void add_attention_bench_options(CLI::App& app, AttentionBenchOptions& options);

/// Runs the benchmark and prints tables, the command and the machine on standard output. Returns the exit code.
int attention_bench_main(const AttentionBenchOptions& options, const std::string& command);

}  // namespace baton
