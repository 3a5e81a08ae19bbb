/// Markdown and JSON of the decode benchmark.
#include "bench/engine/decode_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "bench/report/machine_report.h"
#include "bench/report/markdown_table.h"

namespace baton {
namespace {

/// The other arm's run beside `run`; null if there is none.
const DecodeRun* beside(const DecodeBenchReport& report, const DecodeRun& run, const std::string& arm) {
  const auto at = std::ranges::find_if(report.runs, [&](const DecodeRun& other) {
    return other.n_shared == run.n_shared && other.n_requests == run.n_requests && other.n_drafts == run.n_drafts &&
           other.arm == arm;
  });
  return at == report.runs.end() ? nullptr : &*at;
}

std::string over_paged(const DecodeBenchReport& report, const DecodeRun& run) {
  const DecodeRun* paged = beside(report, run, "paged");
  return paged == nullptr || run.arm == "paged" ? "-" : fmt::format("{:.2f}", run.median() / paged->median());
}

std::string gigabytes(std::int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

}  // namespace

std::string decode_text(const DecodeBenchReport& report, const DecodeBenchOptions& options, const std::string& command) {
  std::vector<std::string> columns{"requests",       "arm",     "tokens/s", "spread", "over paged", "step, ms",
                                   "of it host, ms", "KV read", "KV saved"};
  if (options.draft_acceptance) columns.insert(columns.end(), {"drafts", "tokens a step"});
  if (options.count_experts) columns.push_back("experts a layer");
  const bool has_several = options.shared.size() > 1;
  if (has_several) columns.insert(columns.begin(), "shared");
  MarkdownTable table(columns);
  for (const DecodeRun& run : report.runs) {
    std::vector<std::string> row{std::to_string(run.n_requests),
                                 run.arm,
                                 fmt::format("{:.1f}", run.median()),
                                 fmt::format("{:.0f}%", 100 * run.spread()),
                                 over_paged(report, run),
                                 fmt::format("{:.2f}", run.step_ms),
                                 fmt::format("{:.2f}", run.host_ms),
                                 gigabytes(run.kv_bytes_requested),
                                 gigabytes(run.kv_bytes_saved)};
    if (options.draft_acceptance)
      row.insert(row.end(), {std::to_string(run.n_drafts), fmt::format("{:.2f}", run.tokens_per_step)});
    if (options.count_experts) row.push_back(fmt::format("{:.1f} of {}", run.experts_per_layer, report.n_experts));
    if (has_several) row.insert(row.begin(), std::to_string(run.n_shared));
    table.add(row);
  }
  std::string text = fmt::format("{}\n{}\n\n{}\n", command, machine_line(report.engine), table.text());
  text +=
      fmt::format("{}, {} weights, {} KV; {} shared tokens, {} own, {} new.\n", report.model, report.engine.weight_scheme,
                  to_string(report.engine.kv_dtype), fmt::join(options.shared, ", "), std::max(options.own, 1), options.n_new);
  if (report.prefill_tokens_per_s > 0)
    text += fmt::format("Prefill of the {}shared prompt: {:.0f} tokens/s.\n", has_several ? "last " : "",
                        report.prefill_tokens_per_s);
  if (report.unshared_tokens_per_s > 0)
    text += fmt::format("Prefill of the unshared arm's copies: {:.0f} tokens/s.\n", report.unshared_tokens_per_s);
  if (options.count_experts)
    text += "Experts a layer: chosen by some row of the last run's last step, mean of the layers with experts.\n";
  if (options.draft_acceptance)
    text += fmt::format(
        "Simulated: the model drafts after every step, and a coin accepts each draft with probability {:g}. Tokens a step\n"
        "are of each request. The clock stops before the first request ends.\n",
        *options.draft_acceptance);
  const bool keeps_prompts = report.engine.state_slot_bytes == 0;
  return text + fmt::format(
                    "Tokens/s are medians of {} interleaved runs, the spread is (largest - smallest) / median. {}. Step "
                    "times and KV bytes are of the last run.\n",
                    options.n_runs,
                    keeps_prompts ? fmt::format("All prompts are in the cache and every request has its\nfirst token "
                                                "before the clock starts: {} steps are timed",
                                                options.n_new - 1)
                                  : "Prompts are in the cache\nup to a snapshot of their states. Every request has its "
                                    "first token before the clock starts");
}

json::Value decode_json(const DecodeBenchReport& report, const DecodeBenchOptions& options, const std::string& command) {
  json::Value runs = json::Value::array();
  for (const DecodeRun& run : report.runs) {
    runs.push_back({{"arm", run.arm},
                    {"shared", run.n_shared},
                    {"requests", run.n_requests},
                    {"tokens_per_s", run.tokens_per_s},
                    {"median_tokens_per_s", run.median()},
                    {"spread", run.spread()},
                    {"step_ms", run.step_ms},
                    {"host_ms", run.host_ms},
                    {"kv_bytes_requested", run.kv_bytes_requested},
                    {"kv_bytes_saved", run.kv_bytes_saved}});
    if (options.shared.size() > 1) runs.back()["prefill_tokens_per_s"] = run.prefill_tokens_per_s;
    if (options.draft_acceptance) runs.back().update({{"drafts", run.n_drafts}, {"tokens_per_step", run.tokens_per_step}});
    if (options.count_experts) runs.back()["experts_per_layer"] = run.experts_per_layer;
  }
  json::Value value = report_head(command, report.model, report.engine);
  const json::Value shared = options.shared.size() == 1 ? json::Value(options.shared[0]) : json::Value(options.shared);
  value.update({{"shared", shared},
                {"own", std::max(options.own, 1)},
                {"new", options.n_new},
                {"prefill_tokens_per_s", report.prefill_tokens_per_s},
                {"unshared_prefill_tokens_per_s", report.unshared_tokens_per_s},
                {"runs", runs}});
  if (options.draft_acceptance) value["simulated_draft_acceptance"] = *options.draft_acceptance;
  return value;
}

}  // namespace baton
