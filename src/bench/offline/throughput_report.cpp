/// Markdown and JSON of the throughput benchmark.
#include "bench/offline/throughput_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "bench/offline/offline_report.h"
#include "bench/report/machine_report.h"
#include "bench/report/markdown_table.h"

namespace baton {
namespace {

std::string throughput_table(const ThroughputReport& report) {
  MarkdownTable table({"arm", "requests/s", "over paged", "spread", "tokens/s", "output tokens/s", "seconds", "requests",
                       "prefix hits", "KV read a token, MB", "saved a token, MB", "device busy", "preemptions"});
  for (const ArmRuns& arm : report.arms) {
    const OfflineResult& last = arm.runs.back();
    table.add(
        {arm.arm, fmt::format("{:.2f}", arm.requests_per_s()), rate_over_paged(report.arms, arm), percent_text(arm.spread()),
         fmt::format("{:.0f}", arm.tokens_per_s()), fmt::format("{:.0f}", arm.output_tokens_per_s()),
         fmt::format("{:.2f}{}", arm.seconds(), arm.is_cut() ? " (cut)" : ""), std::to_string(last.n_requests),
         percent_text(last.prefix_hit_rate()), fmt::format("{:.2f}", last.per_generated_token(last.kv_bytes_requested) / 1e6),
         fmt::format("{:.2f}", last.per_generated_token(last.kv_bytes_saved) / 1e6), percent_text(last.device_busy_share()),
         std::to_string(last.preemptions)});
  }
  return table.text();
}

std::string workload_line(const ThroughputReport& report, const ThroughputBenchOptions& options) {
  return fmt::format("{}; seed {}.\n", to_string(report.workload), options.dataset.seed);
}

std::string throughput_explanation(const ThroughputReport& report, const ThroughputBenchOptions& options) {
  const EngineInfo& engine = *report.engine;
  std::string text = fmt::format("{}, {} weights, {} KV, a cache of {} tokens; at most {} sequences and {} tokens in a step.\n",
                                 report.model, engine.weight_scheme, to_string(engine.kv_dtype),
                                 static_cast<std::int64_t>(engine.n_blocks) * engine.block_len, engine.max_num_seqs,
                                 engine.max_num_batched_tokens);
  text += workload_line(report, options);
  if (report.arms.size() > 1) {
    const EqualAnswers equal = compare_arms(report.arms);
    text += fmt::format("Equal answers in all arms: {} of {}{}.\n", equal.n_equal, equal.n_compared,
                        engine.batch_invariant ? "" : " (they may differ where two tokens are about equally likely)");
  }
  text += fmt::format(
      "Rates and seconds are medians of {} interleaved runs, the spread is (largest - smallest) / median of the requests/s.\n"
      "Other numbers are of the last run. Every run begins with a cold cache, all requests waiting, after a warm-up.\n",
      options.n_runs);
  if (std::ranges::any_of(report.arms, &ArmRuns::is_cut))
    text +=
        fmt::format("(cut): a run ended after {} s; it counts the requests that had finished by then.\n", options.time_limit_s);
  return text;
}

}  // namespace

std::string throughput_text(const ThroughputReport& report, const ThroughputBenchOptions& options, const std::string& command) {
  if (report.shortage) {
    return shortage_text(*report.shortage, options.arms, command) + workload_line(report, options);
  }
  return fmt::format("{}\n{}\n\n{}\n{}", command, machine_line(*report.engine), throughput_table(report),
                     throughput_explanation(report, options));
}

json::Value throughput_json(const ThroughputReport& report, const ThroughputBenchOptions& options, const std::string& command) {
  json::Value value = report_head(command, report.model, report.engine);
  value.update({{"dataset", report.workload.name},
                {"seed", options.dataset.seed},
                {"workload", to_json(report.workload)},
                {"max_num_seqs", options.model.max_num_seqs},
                {"max_num_batched_tokens", options.model.max_num_batched_tokens},
                {"batch_invariant", options.model.batch_invariant},
                {"runs", options.n_runs}});
  if (report.shortage) {
    value["device"] = report.shortage->need.device;
    value["arms"] = shortage_json(*report.shortage, options.arms);
    value["equal_answers"] = nullptr;
    return value;
  }
  value["kv_cache_tokens"] = static_cast<std::int64_t>(report.engine->n_blocks) * report.engine->block_len;
  value["arms"] = arms_json(report.arms);
  const EqualAnswers equal = compare_arms(report.arms);
  value["equal_answers"] = report.arms.size() > 1 ? json::Value(equal.n_equal == equal.n_compared) : json::Value(nullptr);
  value["num_equal_answers"] = equal.n_equal;
  value["num_compared_answers"] = equal.n_compared;
  return value;
}

}  // namespace baton
