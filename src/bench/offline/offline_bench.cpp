/// Runs the arms over one engine in turn.
#include "bench/offline/offline_bench.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "bench/engine/arms.h"
#include "bench/report/statistics.h"
#include "cli/progress.h"
#include "load/load_engine.h"
#include "load/load_text.h"

namespace baton {
namespace {

/// The median of a number over the runs of an arm.
template <class Number>
double median_over(const std::vector<OfflineResult>& runs, const Number& number) {
  std::vector<double> values;
  for (const OfflineResult& run : runs) values.push_back(number(run));
  return median_of(values);
}

double per_second(std::int64_t count, const OfflineResult& run) {
  return run.seconds > 0 ? static_cast<double>(count) / run.seconds : 0;
}

/// The tokenizer for a dataset: --tokenizer's, otherwise that of the model; absent if the model has none.
Result<std::optional<Tokenizer>> bench_tokenizer(const OfflineBenchOptions& options) {
  if (options.tokenizer.empty() && !options.shape.empty()) return std::nullopt;
  ModelOptions named = options.model;
  if (!options.tokenizer.empty()) named.model = options.tokenizer;
  auto tokenizer = load_tokenizer(named, download_bar());
  if (tokenizer) return std::move(*tokenizer);
  if (options.tokenizer.empty() && tokenizer.error().code == ErrorCode::not_found) return std::nullopt;
  return tl::unexpected(std::move(tokenizer.error()));
}

}  // namespace

OfflineBenchOptions::OfflineBenchOptions() {
  model.max_num_seqs = 256;
  model.max_num_batched_tokens = 16384;
}

double ArmRuns::seconds() const {
  return median_over(runs, [](const OfflineResult& run) { return run.seconds; });
}
double ArmRuns::requests_per_s() const {
  return median_over(runs, [](const OfflineResult& run) { return per_second(run.n_requests, run); });
}
double ArmRuns::tokens_per_s() const {
  return median_over(runs, [](const OfflineResult& run) { return per_second(run.prompt_tokens + run.output_tokens, run); });
}
double ArmRuns::output_tokens_per_s() const {
  return median_over(runs, [](const OfflineResult& run) { return per_second(run.output_tokens, run); });
}
double ArmRuns::spread() const {
  std::vector<double> rates;
  for (const OfflineResult& run : runs) rates.push_back(per_second(run.n_requests, run));
  return requests_per_s() > 0 ? spread_of(rates) : 0;
}
bool ArmRuns::is_cut() const { return std::ranges::any_of(runs, &OfflineResult::is_cut); }

EqualAnswers compare_arms(const std::vector<ArmRuns>& arms) {
  std::vector<const OfflineResult*> runs;
  for (const ArmRuns& arm : arms)
    if (!arm.runs.empty()) runs.push_back(&arm.runs.front());
  return compare_answers(runs);
}

const ArmRuns* find_arm(const std::vector<ArmRuns>& arms, const std::string& arm) {
  const auto at = std::ranges::find(arms, arm, &ArmRuns::arm);
  return at == arms.end() ? nullptr : &*at;
}

Result<OfflineBench> OfflineBench::prepare(const OfflineBenchOptions& options, std::span<const DatasetOptions> datasets) {
  BATON_TRY(BenchModel model, find_bench_model(options.model, options.shape));
  OfflineBench made(options, std::move(model));
  BATON_TRY(made.tokenizer_, bench_tokenizer(options));
  const ModelSpec& spec = made.model_.spec;
  const DatasetContext context{
      .n_vocab = spec.n_vocab,
      .tokenizer = made.tokenizer(),
      .max_model_len = options.model.max_model_len > 0 ? options.model.max_model_len : spec.max_position};
  for (const DatasetOptions& dataset : datasets) {
    BATON_TRY(Workload workload, make_workload(dataset, context));
    made.workloads_.push_back(std::move(workload));
  }
  return made;
}

Result<std::optional<MemoryShortage>> OfflineBench::load(const AroundDevice& around_device) {
  std::int64_t longest = 0;
  for (const Workload& workload : workloads_) longest = std::max(longest, longest_context(workload));
  const ModelOptions chosen = offline_model_options(model_, longest);
  Result<std::unique_ptr<Engine>> engine;
  if (around_device) {
    BATON_TRY(std::unique_ptr<Backend> device, open_device(chosen));
    engine = load_engine(model_.files, chosen, around_device(std::move(device)));
  } else {
    engine = load_engine(model_.files, chosen);
  }
  if (!engine) {
    BATON_TRY(MemoryShortage shortage, shortage_behind(engine.error(), model_, longest));
    return shortage;
  }
  engine_ = std::move(*engine);
  return std::nullopt;
}

Result<OfflineResult> OfflineBench::run_once(const Workload& workload, const std::string& arm, const std::string& title,
                                             const RunArm& run_arm) {
  engine_->drop_cached_blocks();
  const OfflineRunOptions run{
      .arm = arm, .salt = {}, .time_limit_s = options_.time_limit_s, .title = title, .shows_progress = true};
  return run_arm ? run_arm(*engine_, workload, run) : run_offline(*engine_, workload, run);
}

Result<void> OfflineBench::warm_up(const Workload& workload, const RunArm& run_arm) {
  const auto n_slots = static_cast<std::size_t>(engine_->info().max_num_seqs);
  std::size_t n = std::max<std::size_t>(std::min(workload.requests.size() / 4, n_slots), 1);
  if (run_arm) n = n_slots;
  if (options_.n_warmups) n = static_cast<std::size_t>(*options_.n_warmups);
  if (n == 0) return {};
  std::vector<std::string> arms = options_.arms;
  if (!run_arm) {
    arms = {"relay", "paged"};
    std::erase_if(arms, [&](const std::string& arm) {
      return std::ranges::none_of(options_.arms, [&](const std::string& other) { return has_relay(other) == has_relay(arm); });
    });
  }
  const Workload some = warm_up_of(workload, n);
  for (const std::string& arm : arms)
    BATON_TRY_VOID(run_once(some, arm, fmt::format("warm-up, {}:", arm), run_arm).map([](const OfflineResult&) {}));
  return {};
}

Result<std::vector<ArmRuns>> OfflineBench::run(const Workload& workload, const RunArm& run_arm) {
  if (!std::exchange(is_warm_, true)) BATON_TRY_VOID(warm_up(workload, run_arm));
  std::vector<ArmRuns> made;
  for (const std::string& arm : options_.arms) made.push_back({arm, {}});
  for (std::int32_t round = 0; round < options_.n_runs; ++round) {
    for (ArmRuns& arm : made) {
      const std::string title = fmt::format("{}, run {} of {}:", arm.arm, round + 1, options_.n_runs);
      BATON_TRY(OfflineResult result, run_once(workload, arm.arm, title, run_arm));
      if (round > 0) result.answers.clear();
      arm.runs.push_back(std::move(result));
    }
  }
  return made;
}

}  // namespace baton
