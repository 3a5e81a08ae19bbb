/// `baton bench throughput`: requests of a dataset, all there at once, with relayed, paged and unshared prompts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/dataset/workload_summary.h"
#include "bench/offline/offline_bench.h"
#include "core/result.h"
#include "engine/engine.h"

namespace CLI {
class App;
}

namespace baton {

using ThroughputBenchOptions = OfflineBenchOptions;

struct ThroughputReport {
  std::string model;
  WorkloadSummary workload;
  std::optional<EngineInfo> engine;        ///< absent: it did not fit
  std::optional<MemoryShortage> shortage;  ///< why
  std::vector<ArmRuns> arms;               ///< empty if the engine did not fit
};

/// Makes the workload, loads the model and runs every arm. A model that does not fit into memory is a result. Errors:
/// those of the dataset, of loading and of run_offline.
Result<ThroughputReport> run_throughput_bench(const ThroughputBenchOptions& options);

void add_throughput_bench_options(CLI::App& app, ThroughputBenchOptions& options);

/// Runs the benchmark and prints the command, the machine and a table on standard output. Returns the exit code.
int throughput_bench_main(const ThroughputBenchOptions& options, const std::string& command);

}  // namespace baton
