/// Arms and shortages as text and as JSON.
#include "bench/offline/offline_report.h"

#include <fmt/format.h>

#include "bench/report/markdown_table.h"
#include "cli/version.h"

namespace baton {

std::string percent_text(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string rate_over_paged(const std::vector<ArmRuns>& arms, const ArmRuns& arm) {
  const ArmRuns* paged = find_arm(arms, "paged");
  if (paged == nullptr || paged == &arm || paged->requests_per_s() == 0) return "-";
  return fmt::format("{:.2f}", arm.requests_per_s() / paged->requests_per_s());
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
                    {"kv_bytes_per_token", last.per_generated_token(last.kv_bytes_requested)},
                    {"kv_bytes_saved_per_token", last.per_generated_token(last.kv_bytes_saved)},
                    {"preemptions", last.preemptions},
                    {"steps", last.steps},
                    {"device_busy_share", last.device_busy_share()}});
  }
  return list;
}

std::string shortage_text(const MemoryShortage& shortage, const std::vector<std::string>& arms, const std::string& command) {
  MarkdownTable table({"arm", "does not fit", "bytes needed", "bytes available"});
  for (const std::string& arm : arms)
    table.add({arm, shortage.error, std::to_string(shortage.need.needed_bytes), std::to_string(shortage.need.available_bytes)});
  return fmt::format("{}\n{}: {}\n\n{}\n", command, version_line(), shortage.need.device, table.text());
}

json::Value shortage_json(const MemoryShortage& shortage, const std::vector<std::string>& arms) {
  json::Value list = json::Value::array();
  for (const std::string& arm : arms)
    list.push_back({{"arm", arm},
                    {"error", shortage.error},
                    {"bytes_needed", shortage.need.needed_bytes},
                    {"bytes_available", shortage.need.available_bytes}});
  return list;
}

}  // namespace baton
