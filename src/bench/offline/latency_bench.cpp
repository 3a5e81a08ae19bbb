/// `baton bench latency`: batches of drawn requests, and their report.
#include "bench/offline/latency_bench.h"

#include <cstddef>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "bench/dataset/dataset.h"
#include "bench/engine/arms.h"
#include "bench/offline/offline_report.h"
#include "bench/offline/offline_run.h"
#include "bench/report/latency_statistics.h"
#include "bench/report/machine_report.h"
#include "bench/report/markdown_table.h"
#include "cli/progress.h"

namespace baton {
namespace {

constexpr int kPercents[] = {10, 25, 50, 75, 90, 99};

/// One batch for each iteration, warm-ups included.
Result<std::vector<Workload>> make_batches(const LatencyBenchOptions& options, const BenchModel& model) {
  DatasetOptions drawn;
  drawn.num_prompts = options.batch_size * (options.n_iters_warmup + options.n_iters);
  drawn.prefix_len = options.prefix_len;
  drawn.random_input_len = options.input_len;
  drawn.random_output_len = options.output_len;
  BATON_TRY(Workload all, make_workload(drawn, {.n_vocab = model.spec.n_vocab, .max_model_len = model.spec.max_position}));
  std::vector<Workload> batches;
  for (std::size_t i = 0; i < all.requests.size(); ++i) {
    if (i % static_cast<std::size_t>(options.batch_size) == 0) batches.emplace_back();
    batches.back().requests.push_back(std::move(all.requests[i]));
  }
  return batches;
}

double average_of(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The prefix stays cached between the iterations of an arm, but no iteration finds what another arm's requests have
/// computed after it.
std::string salt_of(const std::string& arm, std::size_t iteration) {
  return has_shared_prompts(arm) ? arm : fmt::format("{} {}", arm, iteration);
}

/// With recurrent layers a prefix is found from the second iteration on at the earliest. Where it is registered it is found in each.
Result<void> register_prefix(Engine& engine, const LatencyBenchOptions& options, const Workload& batch) {
  const EngineInfo& info = engine.info();
  if (info.state_slot_bytes == 0 || !info.enable_prefix_caching || options.prefix_len == 0) return {};
  const std::vector<TokenId>& prompt = batch.requests.front().prompt;
  for (const std::string& arm : options.arms) {
    if (!has_shared_prompts(arm)) continue;
    CacheScope scope;
    scope.salt = salt_of(arm, 0);
    BATON_TRY_VOID(engine.pin({prompt.begin(), prompt.begin() + options.prefix_len}, std::move(scope)));
  }
  return {};
}

}  // namespace

Result<LatencyReport> run_latency_bench(const LatencyBenchOptions& options) {
  BATON_TRY(BenchModel model, find_bench_model(options.model, options.shape));
  model.options.max_num_seqs = options.batch_size;
  BATON_TRY(const std::vector<Workload> batches, make_batches(options, model));
  LatencyReport report;
  report.model = model.files.name;
  const std::int64_t longest = longest_context(batches.front());
  auto engine = load_bench_engine(model, longest);
  if (!engine) {
    BATON_TRY(report.shortage, shortage_behind(engine.error(), model, longest));
    return report;
  }
  report.engine = (*engine)->info();
  BATON_TRY_VOID(register_prefix(**engine, options, batches.front()));
  for (const std::string& arm : options.arms) report.arms.push_back({arm, {}});
  Progress progress("latency:", "iterations", static_cast<std::int64_t>(batches.size()));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    for (ArmLatencies& arm : report.arms) {
      BATON_TRY(
          const OfflineResult result,
          run_offline(**engine, batches[i],
                      {.arm = arm.arm, .salt = salt_of(arm.arm, i), .time_limit_s = 0, .title = {}, .shows_progress = false}));
      if (i >= static_cast<std::size_t>(options.n_iters_warmup)) arm.seconds.push_back(result.seconds);
    }
    progress.update(static_cast<std::int64_t>(i) + 1);
  }
  return report;
}

std::string latency_text(const LatencyReport& report, const LatencyBenchOptions& options, const std::string& command) {
  if (report.shortage) return shortage_text(*report.shortage, options.arms, command);
  std::vector<std::string> titles{"arm", "average, s"};
  for (const int percent : kPercents) titles.push_back(fmt::format("P{}, s", percent));
  MarkdownTable table(titles);
  for (const ArmLatencies& arm : report.arms) {
    std::vector<std::string> cells{arm.arm, fmt::format("{:.4f}", average_of(arm.seconds))};
    for (const int percent : kPercents) cells.push_back(fmt::format("{:.4f}", percentile_of(arm.seconds, percent)));
    table.add(cells);
  }
  return fmt::format(
      "{}\n{}\n\n{}\n{}, {} weights, {} KV; batches of {}: {} tokens in, {} out, behind a system prompt of {}.\n"
      "Seconds from the first submit to the end of the last answer, of {} iterations after {} warm-ups, arms in turn.\n"
      "Relay and paged find the system prompt in the cache, unshared requests compute it.\n",
      command, machine_line(*report.engine), table.text(), report.model, report.engine->weight_scheme,
      to_string(report.engine->kv_dtype), options.batch_size, options.input_len, options.output_len, options.prefix_len,
      options.n_iters, options.n_iters_warmup);
}

json::Value latency_json(const LatencyReport& report, const LatencyBenchOptions& options, const std::string& command) {
  json::Value value = report_head(command, report.model, report.engine);
  value.update({{"input_len", options.input_len},
                {"output_len", options.output_len},
                {"prefix_len", options.prefix_len},
                {"batch_size", options.batch_size},
                {"num_iters_warmup", options.n_iters_warmup},
                {"num_iters", options.n_iters}});
  if (report.shortage) {
    value["device"] = report.shortage->need.device;
    value["arms"] = shortage_json(*report.shortage, options.arms);
    return value;
  }
  value["arms"] = json::Value::array();
  for (const ArmLatencies& arm : report.arms) {
    json::Value percentiles = json::Value::object();
    for (const int percent : kPercents) percentiles[std::to_string(percent)] = percentile_of(arm.seconds, percent);
    value["arms"].push_back(
        {{"arm", arm.arm}, {"avg_latency", average_of(arm.seconds)}, {"latencies", arm.seconds}, {"percentiles", percentiles}});
  }
  return value;
}

int latency_bench_main(const LatencyBenchOptions& options, const std::string& command) {
  return run_benchmark("baton bench latency", options, command, run_latency_bench, latency_text, latency_json);
}

}  // namespace baton
