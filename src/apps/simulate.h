/// `baton simulate`: a trace replayed through scheduler and cache without a model, in seconds.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace baton {

struct SimulateOptions {
  std::string trace = "-";  ///< a file, or - for standard input
  std::int64_t cache_tokens = 0;
  std::int32_t block_size = 16;
  std::string eviction = "reuse";  ///< or lru
  bool enable_prefix_caching = true;
  std::string scheduling_policy = "fair";  ///< or fcfs
  std::int32_t max_num_seqs = 128;
  std::int32_t max_num_batched_tokens = 2048;
  std::int32_t max_prefill_tokens = 0;
  double step_ms = 10;
  double tokens_per_second = 50000;
  double rate = 1;
  std::int64_t limit = 0;
  std::string json_file;
};

void add_simulate_options(CLI::App& app, SimulateOptions& options);

/// A table on standard output. Exit code: 0, 1 (failed).
int simulate_main(const SimulateOptions& options, const std::string& command);

}  // namespace baton
