/// Runs the arms over one engine in turn.
#include "bench/offline/offline_bench.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "bench/engine/arms.h"
#include "bench/report/statistics.h"
#include "cli/progress.h"
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

Result<std::vector<ArmRuns>> run_interleaved(
    const std::vector<std::string>& arms, std::int32_t n_runs,
    const std::function<Result<OfflineResult>(const std::string& arm, const std::string& title)>& run) {
  std::vector<ArmRuns> made;
  for (const std::string& arm : arms) made.push_back({arm, {}});
  for (std::int32_t round = 0; round < n_runs; ++round) {
    for (ArmRuns& arm : made) {
      BATON_TRY(OfflineResult result, run(arm.arm, fmt::format("{}, run {} of {}:", arm.arm, round + 1, n_runs)));
      if (round > 0) result.answers.clear();
      arm.runs.push_back(std::move(result));
    }
  }
  return made;
}

const ArmRuns* find_arm(const std::vector<ArmRuns>& arms, const std::string& arm) {
  const auto at = std::ranges::find(arms, arm, &ArmRuns::arm);
  return at == arms.end() ? nullptr : &*at;
}

Result<std::optional<Tokenizer>> bench_tokenizer(const OfflineBenchOptions& options) {
  if (options.tokenizer.empty() && !options.shape.empty()) return std::nullopt;
  ModelOptions named = options.model;
  if (!options.tokenizer.empty()) named.model = options.tokenizer;
  auto tokenizer = load_tokenizer(named, download_bar());
  if (tokenizer) return std::move(*tokenizer);
  if (options.tokenizer.empty() && tokenizer.error().code == ErrorCode::not_found) return std::nullopt;
  return tl::unexpected(std::move(tokenizer.error()));
}

Result<OfflineResult> OfflineBench::run_once(const Workload& workload, const std::string& arm, const std::string& title) {
  engine_->drop_cached_blocks();
  return run_offline(*engine_, workload,
                     {.arm = arm, .salt = {}, .time_limit_s = options_.time_limit_s, .title = title, .shows_progress = true});
}

Result<void> OfflineBench::warm_up(const Workload& workload) {
  const auto n_most = std::min(workload.requests.size() / 4, static_cast<std::size_t>(engine_->info().max_num_seqs));
  const std::size_t n = options_.n_warmups ? static_cast<std::size_t>(*options_.n_warmups) : std::max<std::size_t>(n_most, 1);
  if (n == 0) return {};
  const Workload some = warm_up_of(workload, n);
  for (const std::string arm : {"relay", "paged"}) {
    const auto is_like = [&](const std::string& other) { return has_relay(other) == has_relay(arm); };
    if (std::ranges::none_of(options_.arms, is_like)) continue;
    BATON_TRY_VOID(run_once(some, arm, fmt::format("warm-up, {}:", arm)).map([](const OfflineResult&) {}));
  }
  return {};
}

Result<std::vector<ArmRuns>> OfflineBench::run(const Workload& workload) {
  if (!std::exchange(is_warm_, true)) BATON_TRY_VOID(warm_up(workload));
  return run_interleaved(options_.arms, options_.n_runs,
                         [&](const std::string& arm, const std::string& title) { return run_once(workload, arm, title); });
}

}  // namespace baton
