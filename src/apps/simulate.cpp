/// The flags, the replay and its table.
#include "apps/programs.h"

#include <chrono>
#include <iostream>
#include <iterator>
#include <string>

#include <fmt/format.h>

#include "cli/output.h"
#include "cli/version.h"
#include "io/file.h"
#include "io/json.h"
#include "load/trace.h"

namespace baton {
namespace {

constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 28;

Result<Trace> read_trace(const SimulateOptions& options) {
  std::string text;
  if (options.trace == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    BATON_TRY(text, read_file(options.trace));
  }
  BATON_TRY(Trace trace, parse_trace(text, options.trace == "-" ? "standard input" : options.trace));
  if (options.limit > 0 && options.limit < static_cast<std::int64_t>(trace.requests.size()))
    trace.requests.resize(static_cast<std::size_t>(options.limit));
  for (TraceRequest& request : trace.requests) request.arrival_s /= options.rate;
  return trace;
}

Result<ReplayOptions> replay_options(const SimulateOptions& options, const Trace& trace) {
  ReplayOptions made = options.replay;
  made.scheduler.by_size = options.scheduling_policy == "fair";
  made.life_of_reuse = options.eviction == "lru" ? 0 : PrefixTree::kLifeOfReuse;
  made.step_s = options.step_ms / 1e3;
  made.row_s = 1 / options.tokens_per_second;
  if (!options.step_costs_file.empty()) {
    BATON_TRY(const std::string text, read_file(options.step_costs_file));
    BATON_TRY(made.costs, parse_step_costs(text, options.step_costs_file));
    made.scheduler.paces_prefill = made.scheduler.max_prefill_tokens == 0;
  }
  const std::int64_t n_blocks =
      options.cache_tokens > 0 ? options.cache_tokens / made.block_len : blocks_for_all(trace, made.block_len);
  if (n_blocks < 1 || n_blocks > kMaxBlocks)
    return fail(ErrorCode::invalid_request,
                fmt::format("a cache of {} blocks of {} tokens cannot be simulated; from 1 to {} can", n_blocks, made.block_len,
                            kMaxBlocks));
  made.n_blocks = static_cast<std::int32_t>(n_blocks);
  return made;
}

void print(const ReplayReport& report, const ReplayOptions& options, const SimulateOptions& given, double wall_s) {
  const auto row = [](const char* name, const std::string& value) { print_output("  {:<38} {}\n", name, value); };
  const auto times = [](const Distribution& d) { return fmt::format("{:.3f} / {:.3f} / {:.3f} s", d.median, d.p99, d.most); };
  print_output("{} requests, {} prompt tokens, {} generated; cache of {} tokens in {} blocks, eviction {}\n", report.n_requests,
               report.prompt_tokens, report.output_tokens, static_cast<std::int64_t>(options.n_blocks) * options.block_len,
               options.n_blocks, !options.enable_prefix_caching ? "none (no prefix caching)" : given.eviction);
  if (options.costs)
    print_output("Steps take what {} has.\n\n", given.step_costs_file);
  else
    print_output("A step takes {} ms and a second for {} rows, by assumption.\n\n", given.step_ms, given.tokens_per_second);
  row("prompt tokens found in the cache", fmt::format("{:.2f}%  ({})", 100 * report.share_of_tokens(), report.cached_tokens));
  row("blocks of the trace found whole",
      fmt::format("{:.2f}%  ({} of {})", 100 * report.share_of_runs(), report.cached_runs, report.runs));
  row("preemptions (most of one request)", fmt::format("{} ({})", report.preemptions, report.most_preemptions));
  row("tokens computed again", fmt::format("{}", report.recomputed_tokens));
  row("refused: longer than the cache", fmt::format("{}", report.n_refused));
  row("most rows of prefill beside decodes", fmt::format("{}", report.most_prefill_beside_decodes));
  row("queue, median / p99 / most", times(report.queue_s));
  row("first token, median / p99 / most", times(report.first_token_s));
  row("between tokens, median / p99 / most", times(report.gap_s));
  row("time per token, mean / median / p99", fmt::format("{:.2f} / {:.2f} / {:.2f} ms", 1e3 * report.mean_token_s,
                                                         1e3 * report.token_s.median, 1e3 * report.token_s.p99));
  row("steps, rows", fmt::format("{}, {}", report.steps, report.rows));
  row("simulated, took", fmt::format("{:.0f} s, {:.1f} s", report.simulated_s, wall_s));
}

json::Value to_json(const Distribution& d) { return {{"median", d.median}, {"p99", d.p99}, {"most", d.most}}; }

Result<void> write_json(const ReplayReport& report, const ReplayOptions& options, const SimulateOptions& given,
                        const std::string& command, double wall_s) {
  json::Value value;
  value["command"] = command;
  value["version"] = version_text();
  value["cache_blocks"] = options.n_blocks;
  value["block_size"] = options.block_len;
  value["eviction"] = given.eviction;
  value["requests"] = report.n_requests;
  value["refused"] = report.n_refused;
  value["prompt_tokens"] = report.prompt_tokens;
  value["cached_tokens"] = report.cached_tokens;
  value["trace_blocks"] = report.runs;
  value["cached_trace_blocks"] = report.cached_runs;
  value["output_tokens"] = report.output_tokens;
  value["preemptions"] = report.preemptions;
  value["most_preemptions"] = report.most_preemptions;
  value["recomputed_tokens"] = report.recomputed_tokens;
  value["most_prefill_beside_decodes"] = report.most_prefill_beside_decodes;
  value["queue_s"] = to_json(report.queue_s);
  value["first_token_s"] = to_json(report.first_token_s);
  value["gap_s"] = to_json(report.gap_s);
  value["token_s"] = to_json(report.token_s);
  value["mean_token_s"] = report.mean_token_s;
  value["steps"] = report.steps;
  value["rows"] = report.rows;
  value["simulated_s"] = report.simulated_s;
  value["wall_s"] = wall_s;
  return write_file(given.json_file, json::dump_pretty(value) + "\n");
}

Result<void> run(const SimulateOptions& options, const std::string& command) {
  if (!options.json_file.empty()) BATON_TRY_VOID(check_can_write(options.json_file));
  const auto begin = std::chrono::steady_clock::now();
  BATON_TRY(const Trace trace, read_trace(options));
  BATON_TRY(const ReplayOptions made, replay_options(options, trace));
  const ReplayReport report = replay(trace, made);
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  print(report, made, options, wall_s);
  if (!options.json_file.empty()) BATON_TRY_VOID(write_json(report, made, options, command, wall_s));
  return {};
}

}  // namespace

int simulate_main(const SimulateOptions& options, const std::string& command) {
  return exit_code("baton simulate", run(options, command));
}

}  // namespace baton
