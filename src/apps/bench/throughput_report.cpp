/// Markdown and JSON of the throughput benchmark.
#include "apps/bench/throughput_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "apps/bench/machine_report.h"
#include "apps/bench/markdown_table.h"
#include "apps/version.h"

namespace baton {
namespace {

/// All generated tokens, those of cut requests too: steps read keys for them as well.
double per_generated_token(std::int64_t bytes, const OfflineResult& run) {
  const std::int64_t n_tokens = run.output_tokens + run.unfinished_output_tokens;
  return n_tokens == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(n_tokens);
}

double busy_share(const OfflineResult& run) { return run.seconds > 0 ? run.device_busy_s / run.seconds : 0; }

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string rate_over_paged(const std::vector<ArmRuns>& arms, const ArmRuns& arm) {
  const ArmRuns* paged = find_arm(arms, "paged");
  if (paged == nullptr || paged == &arm || paged->requests_per_s() == 0) return "-";
  return fmt::format("{:.2f}", arm.requests_per_s() / paged->requests_per_s());
}

std::string arms_table(const ThroughputReport& report) {
  MarkdownTable table({"arm", "requests/s", "over paged", "spread", "tokens/s", "output tokens/s", "seconds", "requests",
                       "prefix hits", "KV read a token, MB", "saved a token, MB", "device busy", "preemptions"});
  for (const ArmRuns& arm : report.arms) {
    const OfflineResult& last = arm.runs.back();
    table.add({arm.arm, fmt::format("{:.2f}", arm.requests_per_s()), rate_over_paged(report.arms, arm), percent(arm.spread()),
               fmt::format("{:.0f}", arm.tokens_per_s()), fmt::format("{:.0f}", arm.output_tokens_per_s()),
               fmt::format("{:.2f}{}", arm.seconds(), arm.is_cut() ? " (cut)" : ""), std::to_string(last.n_requests),
               percent(last.prefix_hit_rate()), fmt::format("{:.2f}", per_generated_token(last.kv_bytes_requested, last) / 1e6),
               fmt::format("{:.2f}", per_generated_token(last.kv_bytes_saved, last) / 1e6), percent(busy_share(last)),
               std::to_string(last.preemptions)});
  }
  return table.text();
}

std::string explanation(const ThroughputReport& report, const ThroughputBenchOptions& options) {
  const EngineInfo& engine = *report.engine;
  std::string text = fmt::format("{}, {} weights, {} KV, a cache of {} tokens; at most {} sequences and {} tokens in a step.\n",
                                 report.model, to_string(engine.weight_dtype), to_string(engine.kv_dtype),
                                 static_cast<std::int64_t>(engine.n_blocks) * engine.block_len, engine.max_num_seqs,
                                 engine.max_num_batched_tokens);
  text += fmt::format("{}, seed {}.\n", report.dataset, report.seed);
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
    const MemoryShortage& shortage = *report.shortage;
    MarkdownTable table({"arm", "does not fit", "bytes needed", "bytes available"});
    for (const ArmRuns& arm : report.arms)
      table.add(
          {arm.arm, shortage.error, std::to_string(shortage.need.needed_bytes), std::to_string(shortage.need.available_bytes)});
    return fmt::format("{}\n{}: {}\n\n{}\n{}, seed {}.\n", command, version_line(), shortage.need.device, table.text(),
                       report.dataset, report.seed);
  }
  return fmt::format("{}\n{}\n\n{}\n{}", command, machine_line(*report.engine), arms_table(report),
                     explanation(report, options));
}

json::Value arms_json(const std::vector<ArmRuns>& arms) {
  json::Value list = json::Value::array();
  for (const ArmRuns& arm : arms) {
    const OfflineResult& last = arm.runs.back();
    json::Value times = json::Value::array();
    for (const OfflineResult& run : arm.runs) times.push_back(run.seconds);
    list.push_back({{"arm", arm.arm},
                    {"elapsed_time", arm.seconds()},
                    {"elapsed_times", times},
                    {"spread", arm.spread()},
                    {"cut", arm.is_cut()},
                    {"num_requests", last.n_requests},
                    {"total_input_tokens", last.prompt_tokens},
                    {"total_output_tokens", last.output_tokens},
                    {"total_num_tokens", last.prompt_tokens + last.output_tokens},
                    {"unfinished_output_tokens", last.unfinished_output_tokens},
                    {"requests_per_second", arm.requests_per_s()},
                    {"tokens_per_second", arm.tokens_per_s()},
                    {"output_tokens_per_second", arm.output_tokens_per_s()},
                    {"prefix_hit_rate", last.prefix_hit_rate()},
                    {"kv_bytes_requested", last.kv_bytes_requested},
                    {"kv_bytes_saved", last.kv_bytes_saved},
                    {"kv_bytes_per_token", per_generated_token(last.kv_bytes_requested, last)},
                    {"kv_bytes_saved_per_token", per_generated_token(last.kv_bytes_saved, last)},
                    {"preemptions", last.preemptions},
                    {"steps", last.steps},
                    {"device_busy_share", busy_share(last)}});
  }
  return list;
}

json::Value throughput_json(const ThroughputReport& report, const ThroughputBenchOptions& options, const std::string& command) {
  json::Value value = report_head(command, report.model, report.engine);
  value.update({{"dataset", report.dataset},
                {"seed", report.seed},
                {"max_num_seqs", options.model.max_num_seqs},
                {"max_num_batched_tokens", options.model.max_num_batched_tokens},
                {"batch_invariant", options.model.batch_invariant},
                {"runs", options.n_runs}});
  if (report.shortage) {
    value["device"] = report.shortage->need.device;
    value["arms"] = json::Value::array();
    for (const ArmRuns& arm : report.arms)
      value["arms"].push_back({{"arm", arm.arm},
                               {"error", report.shortage->error},
                               {"bytes_needed", report.shortage->need.needed_bytes},
                               {"bytes_available", report.shortage->need.available_bytes}});
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
