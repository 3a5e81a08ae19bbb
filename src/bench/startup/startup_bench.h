/// `baton bench startup`: the time from the start of a process to its first token, cold and warm, in parts.
///
/// Each start is a process of its own: the program starts itself again with the same flags and the time of the start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/startup/page_cache.h"
#include "cli/options.h"
#include "core/result.h"
#include "io/json.h"

namespace CLI {
class App;
}

namespace baton {

/// Names are those of `vllm bench startup`.
struct StartupBenchOptions {
  ModelFlags model;
  std::string shape;
  std::int32_t input_len = 32;  ///< tokens of the prompt whose first answer token counts
  std::int32_t n_iters_cold = 3;
  std::int32_t n_iters_warmup = 1;  ///< starts before the warm ones
  std::int32_t n_iters_warm = 3;
  std::string json_file;
  /// Of a process that was started to be measured: the steady clock's nanoseconds at its start; 0: this one measures.
  std::int64_t started_at_ns = 0;
};

/// One start in parts, in seconds. Each part begins where the one before ends.
struct StartTimes {
  double process = 0;  ///< from exec to the program's own code
  double files = 0;    ///< finding the model, and reading its configuration
  double device = 0;   ///< opening the device
  double weights = 0;  ///< reading or drawing weights, and packing them for the device
  double engine = 0;   ///< allocating cache and workspace, capturing graphs
  double first_token = 0;

  double total() const { return process + files + device + weights + engine + first_token; }
};

struct StartupReport {
  std::string model;
  std::string device;
  std::string features;
  std::string weight_dtype;
  PageCacheShare left;  ///< the most that a cold start found in the page cache
  std::vector<StartTimes> cold;
  std::vector<StartTimes> warm;
};

/// What a started process says: the model, the machine and the times.
Result<json::Value> measure_start(const StartupBenchOptions& options);

/// Starts `program` (the words of a command) again and again, each time with "--started-at-ns TIME" after it. Errors:
/// not_found and io (the program), internal (a start failed).
Result<StartupReport> run_startup_bench(const StartupBenchOptions& options, const std::vector<std::string>& program);

/// Command, machine, table in Markdown, and how to read it.
std::string startup_text(const StartupReport& report, const StartupBenchOptions& options, const std::string& command);

/// The keys of `vllm bench startup`, and the medians of the parts.
json::Value startup_json(const StartupReport& report, const StartupBenchOptions& options, const std::string& command);

void add_startup_bench_options(CLI::App& app, StartupBenchOptions& options);

/// Runs the benchmark and prints the report, or measures this process's own start. Returns the exit code.
int startup_bench_main(const StartupBenchOptions& options, const std::string& command);

}  // namespace baton
