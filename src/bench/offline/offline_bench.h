/// The runner of `baton bench throughput`, `mmlu` and `ablation`: a model, its workloads, one engine, and the arms in turn.
///
/// All arms use one engine, so they have the same weights, cache size and requests. Runs are interleaved: each round runs
/// every arm once. The prefix cache is emptied before each run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/dataset/dataset.h"
#include "bench/engine/bench_model.h"
#include "bench/offline/offline_run.h"
#include "cli/options.h"
#include "core/result.h"
#include "engine/engine.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

struct OfflineBenchOptions {
  ModelFlags model;       ///< limits of a step are those of offline use
  std::string shape;      ///< see find_bench_model
  std::string tokenizer;  ///< folder or file, for datasets of text; empty: the model's
  DatasetOptions dataset;
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

/// The arm of that name; null if there is none.
const ArmRuns* find_arm(const std::vector<ArmRuns>& arms, const std::string& arm);

/// The model of a benchmark, its workloads and its runs. `options` must outlive it.
class OfflineBench {
 public:
  /// Puts another backend around the device.
  using AroundDevice = std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)>;
  /// One run in an arm that is more than a kind of attention.
  using RunArm = std::function<Result<OfflineResult>(Engine&, const Workload&, const OfflineRunOptions&)>;

  /// Finds the model and its tokenizer, and makes a workload of each dataset. Errors: those of model and datasets.
  static Result<OfflineBench> prepare(const OfflineBenchOptions& options, std::span<const DatasetOptions> datasets);
  /// Makes the engine, with room for the longest context. A model that does not fit is a result. Errors: those of
  /// load_engine.
  Result<std::optional<MemoryShortage>> load(const AroundDevice& around_device = {});
  /// Runs every arm n_runs times, interleaved, after a warm-up before the first workload: with relayed and with paged
  /// attention, as far as the arms use them, or with every arm where `run_arm` runs them. Errors: those of run_offline.
  Result<std::vector<ArmRuns>> run(const Workload& workload, const RunArm& run_arm = {});

  const std::string& model_name() const { return model_.files.name; }
  const std::vector<Workload>& workloads() const { return workloads_; }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }  ///< null: the model has none
  EngineInfo info() const { return engine_->info(); }

 private:
  OfflineBench(const OfflineBenchOptions& options, BenchModel model) : options_(options), model_(std::move(model)) {}
  Result<OfflineResult> run_once(const Workload& workload, const std::string& arm, const std::string& title,
                                 const RunArm& run_arm);
  Result<void> warm_up(const Workload& workload, const RunArm& run_arm);

  const OfflineBenchOptions& options_;
  BenchModel model_;
  std::optional<Tokenizer> tokenizer_;
  std::vector<Workload> workloads_;
  std::unique_ptr<Engine> engine_;
  bool is_warm_ = false;
};

}  // namespace baton
