/// What `baton bench throughput` and `baton bench mmlu` have in common: one engine, a workload, and the arms in turn.
///
/// All arms use one engine, so they have the same weights, cache size and requests. Runs are interleaved: each round runs
/// every arm once. The prefix cache is emptied before each run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/dataset/workload.h"
#include "bench/offline/offline_run.h"
#include "cli/options.h"
#include "core/result.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace baton {

struct OfflineBenchOptions {
  ModelFlags model;       ///< limits of a step are those of offline use
  std::string shape;      ///< see find_bench_model
  std::string tokenizer;  ///< folder or file, for datasets of text; empty: the model's
  std::vector<std::string> arms{"relay", "paged", "unshared"};
  std::int32_t n_runs = 3;
  /// Requests that run before the first timed run; absent: a quarter of them all, at most max_num_seqs.
  std::optional<std::int32_t> n_warmups;
  double time_limit_s = 0;  ///< of a run; 0: none
  std::string json_file;

  OfflineBenchOptions();
};

/// The runs of one arm. Of the answers, only the first run's are kept.
struct ArmRuns {
  std::string arm;
  std::vector<OfflineResult> runs;

  /// Medians over the runs.
  double seconds() const;
  double requests_per_s() const;
  double tokens_per_s() const;  ///< prompt and output tokens
  double output_tokens_per_s() const;
  double spread() const;  ///< of the requests a second: (largest - smallest) / median
  bool is_cut() const;    ///< at least one run was
};

/// Answers of the first runs, compared over all arms.
EqualAnswers compare_arms(const std::vector<ArmRuns>& arms);

/// Runs every arm `n_runs` times, interleaved: each round runs every arm once.
Result<std::vector<ArmRuns>> run_interleaved(
    const std::vector<std::string>& arms, std::int32_t n_runs,
    const std::function<Result<OfflineResult>(const std::string& arm, const std::string& title)>& run);

/// The arm of that name; null if there is none.
const ArmRuns* find_arm(const std::vector<ArmRuns>& arms, const std::string& arm);

/// The tokenizer for a dataset: --tokenizer's, otherwise that of the model; absent if the model has none.
Result<std::optional<Tokenizer>> bench_tokenizer(const OfflineBenchOptions& options);

/// The engine of a benchmark and its runs. `options` must outlive it.
class OfflineBench {
 public:
  OfflineBench(const OfflineBenchOptions& options, std::unique_ptr<Engine> engine)
      : options_(options), engine_(std::move(engine)) {}

  /// Before the first workload, warms up with relayed and with paged attention, as far as the arms use them. Runs every
  /// arm n_runs times. Errors: those of run_offline.
  Result<std::vector<ArmRuns>> run(const Workload& workload);

  EngineInfo info() const { return engine_->info(); }

 private:
  Result<OfflineResult> run_once(const Workload& workload, const std::string& arm, const std::string& title);
  Result<void> warm_up(const Workload& workload);

  const OfflineBenchOptions& options_;
  std::unique_ptr<Engine> engine_;
  bool is_warm_ = false;
};

}  // namespace baton
