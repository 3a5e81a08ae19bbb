/// `baton bench mmlu`: the questions of MMLU after solved ones, one token a question, in each arm.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/offline/offline_bench.h"
#include "core/result.h"
#include "engine/engine.h"
#include "io/json.h"

namespace CLI {
class App;
}

namespace baton {

struct MmluBenchOptions : OfflineBenchOptions {
  std::vector<std::int32_t> shots{5};  ///< solved questions in front of each question; one table row for each number

  MmluBenchOptions();
};

/// How many questions were answered with the right letter.
struct Accuracy {
  std::int64_t n_questions = 0;
  std::int64_t n_right = 0;

  double share() const;
};

/// The answers of one run by subject; under "" all of them. Unfinished requests do not count.
std::map<std::string, Accuracy> accuracy_of(const Workload& workload, const OfflineResult& run);

/// The runs with one number of shots.
struct MmluRuns {
  std::int32_t n_shots = 0;
  std::string dataset;
  std::vector<ArmRuns> arms;
  std::vector<std::map<std::string, Accuracy>> accuracy;  ///< of each arm
};

struct MmluReport {
  std::string model;
  std::optional<EngineInfo> engine;        ///< absent: it did not fit
  std::optional<MemoryShortage> shortage;  ///< why
  std::vector<MmluRuns> runs;              ///< empty if the engine did not fit
};

/// Makes the questions for every number of shots, loads the model and runs every arm. Errors: those of the dataset, of
/// loading and of run_offline.
Result<MmluReport> run_mmlu_bench(const MmluBenchOptions& options);

/// Command, machine, tables in Markdown, and how to read them.
std::string mmlu_text(const MmluReport& report, const MmluBenchOptions& options, const std::string& command);

json::Value mmlu_json(const MmluReport& report, const MmluBenchOptions& options, const std::string& command);

void add_mmlu_bench_options(CLI::App& app, MmluBenchOptions& options);

/// Runs the benchmark and prints the report. Returns the exit code.
int mmlu_bench_main(const MmluBenchOptions& options, const std::string& command);

}  // namespace baton
