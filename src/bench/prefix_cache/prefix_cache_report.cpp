/// The report of the prefix cache benchmark as text and JSON.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/prefix_cache/prefix_cache_bench.h"
#include "bench/report/machine_report.h"
#include "bench/report/markdown_table.h"
#include "core/one_line.h"

namespace baton {
namespace {

std::string name_of(const PrefixCase& each) { return fmt::format("{} {} + {}", each.kind, each.shared_len, each.own_len); }

/// What prompts can continue from in a model with recurrent layers; empty for others.
std::string states_text(const EngineInfo& engine) {
  if (engine.state_slot_bytes == 0) return "";
  const std::string interval = engine.state_snapshot_interval == 0
                                   ? "no snapshots at an interval"
                                   : fmt::format("snapshots also at every {} tokens", engine.state_snapshot_interval);
  return fmt::format("{} states, room for {}, {}; ", to_string(engine.state_dtype), counted(engine.n_snapshots(), "snapshot"),
                     interval);
}

std::string verdict(const PrefixCacheReport& report) {
  std::size_t n_kept = 0;
  std::string missed;
  for (const PrefixCaseResult& each : report.cases) {
    if (each.keeps_goal()) {
      ++n_kept;
    } else {
      missed += fmt::format("Missed: {}, by {} tokens more.\n", name_of(each.of), each.most_more());
    }
  }
  std::string text = fmt::format(
      "Goal: from the second request on (shared and forks: from the third; registered: from the first) at most {} tokens more\n"
      "than keys and values alone would need. Kept in {} of {} cases.\n",
      kPrefixCacheGoal, n_kept, report.cases.size());
  return text + missed;
}

std::string exceptions(const PrefixCacheReport& report) {
  std::string text;
  for (const PrefixCaseResult& each : report.cases)
    if (each.n_rows_untold != 0)
      text += fmt::format("{}: the steps had {} rows that no request tells of.\n", name_of(each.of), each.n_rows_untold);
  for (const FailedPrefixCase& each : report.failed) text += fmt::format("Failed: {}: {}\n", name_of(each.of), each.error);
  std::string left_out;
  for (const PrefixCase& each : report.left_out) left_out += fmt::format("{}{}", left_out.empty() ? "" : ", ", name_of(each));
  if (!left_out.empty()) text += fmt::format("Left out, longer than the model's contexts: {}.\n", left_out);
  return text;
}

}  // namespace

std::string prefix_cache_text(const PrefixCacheReport& report, const PrefixCacheBenchOptions& options,
                              const std::string& command) {
  MarkdownTable table({"case", "shared", "own", "request", "prompt", "known", "again, KV alone", "again", "more", "hit rate",
                       "first token, ms"});
  for (const PrefixCaseResult& each : report.cases) {
    for (std::size_t i = 0; i < each.requests.size(); ++i) {
      const CaseRequest& request = each.requests[i];
      table.add({each.of.kind, std::to_string(each.of.shared_len), std::to_string(each.of.own_len), std::to_string(i + 1),
                 std::to_string(request.prompt_len), std::to_string(request.shared_len), std::to_string(request.again_in_kv),
                 std::to_string(request.again), std::to_string(request.more()),
                 fmt::format("{:.1f}%", 100 * request.hit_rate()), fmt::format("{:.2f}", request.first_token_ms)});
    }
  }
  return fmt::format(
      "{}\n{}\n\n{}\n{}, {} weights, {} KV, blocks of {}; {}turns have answers of {} tokens.\n"
      "Known: tokens of the prompt that were computed before. Again: of these, computed again. KV alone: by a cache of whole "
      "blocks of keys and\nvalues. Hit rate: the share of the prompt's tokens that was not computed. {} forks come at once, "
      "all "
      "other "
      "requests one after another.\n{}{}",
      command, machine_line(report.engine), table.text(), report.model, report.engine.weight_scheme,
      to_string(report.engine.kv_dtype), report.engine.block_len, states_text(report.engine), options.cases.answer_len,
      options.cases.n_forks, verdict(report), exceptions(report));
}

json::Value prefix_cache_json(const PrefixCacheReport& report, const PrefixCacheBenchOptions& /*options*/,
                              const std::string& command) {
  json::Value cases = json::Value::array();
  for (const PrefixCaseResult& each : report.cases) {
    json::Value requests = json::Value::array();
    for (const CaseRequest& request : each.requests)
      requests.push_back({{"prompt_tokens", request.prompt_len},
                          {"known_tokens", request.shared_len},
                          {"again_kv_alone", request.again_in_kv},
                          {"again", request.again},
                          {"more", request.more()},
                          {"hit_rate", request.hit_rate()},
                          {"ttft_ms", request.first_token_ms}});
    cases.push_back({{"case", each.of.kind},
                     {"shared", each.of.shared_len},
                     {"own", each.of.own_len},
                     {"answer", each.of.answer_len},
                     {"judged_from", each.of.n_unjudged + 1},
                     {"most_more", each.most_more()},
                     {"keeps_goal", each.keeps_goal()},
                     {"rows_untold", each.n_rows_untold},
                     {"requests", requests}});
  }
  json::Value value = report_head(command, report.model, report.engine);
  json::Value left_out = json::Value::array();
  for (const PrefixCase& each : report.left_out)
    left_out.push_back({{"case", each.kind}, {"shared", each.shared_len}, {"own", each.own_len}});
  json::Value failed = json::Value::array();
  for (const auto& [of, error] : report.failed)
    failed.push_back({{"case", of.kind}, {"shared", of.shared_len}, {"own", of.own_len}, {"error", error}});
  const bool has_states = report.engine.state_slot_bytes > 0;
  value["state_cache_dtype"] = has_states ? json::Value(to_string(report.engine.state_dtype)) : json::Value(nullptr);
  value["state_snapshot_interval"] = report.engine.state_snapshot_interval;
  value["snapshots"] = report.engine.n_snapshots();
  value.update({{"block_size", report.engine.block_len},
                {"goal", kPrefixCacheGoal},
                {"cases", cases},
                {"failed", failed},
                {"left_out", left_out}});
  return value;
}

}  // namespace baton
