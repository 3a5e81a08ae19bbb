/// `baton bench latency`: how long one batch of requests takes, from the first submit to the end of the last answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/engine/bench_model.h"
#include "cli/options.h"
#include "core/result.h"
#include "engine/engine.h"
#include "io/json.h"

namespace CLI {
class App;
}

namespace baton {

/// Names and meanings are those of `vllm bench latency`, --prefix-len those of the paper's.
struct LatencyBenchOptions {
  ModelFlags model;
  std::string shape;
  std::int32_t input_len = 32;  ///< prompt tokens of a request behind the prefix
  std::int32_t output_len = 128;
  std::int32_t prefix_len = 0;  ///< tokens of one system prompt in front of all requests
  std::int32_t batch_size = 8;
  std::int32_t n_iters_warmup = 3;
  std::int32_t n_iters = 10;
  std::vector<std::string> arms{"relay", "paged", "unshared"};
  std::string json_file;
};

struct ArmLatencies {
  std::string arm;
  std::vector<double> seconds;  ///< of each iteration
};

struct LatencyReport {
  std::string model;
  std::optional<EngineInfo> engine;        ///< absent: it did not fit
  std::optional<MemoryShortage> shortage;  ///< why
  std::vector<ArmLatencies> arms;          ///< empty if the engine did not fit
};

/// Loads the model and runs the batch in every arm, iteration by iteration. Requests have new tokens behind the prefix in
/// every iteration. In the arms relay and paged the prefix is cached from the first warm-up on; in the unshared arm every
/// request computes it. Errors: those of loading and of run_offline.
Result<LatencyReport> run_latency_bench(const LatencyBenchOptions& options);

/// Command, machine, table in Markdown, and how to read it.
std::string latency_text(const LatencyReport& report, const LatencyBenchOptions& options, const std::string& command);

/// The keys of `vllm bench latency` for each arm.
json::Value latency_json(const LatencyReport& report, const LatencyBenchOptions& options, const std::string& command);

void add_latency_bench_options(CLI::App& app, LatencyBenchOptions& options);

/// Runs the benchmark and prints the report. Returns the exit code.
int latency_bench_main(const LatencyBenchOptions& options, const std::string& command);

}  // namespace baton
