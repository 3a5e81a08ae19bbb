/// Markdown and JSON of the startup benchmark.
#include <numeric>

#include <fmt/format.h>

#include "bench/report/latency_statistics.h"
#include "bench/report/markdown_table.h"
#include "bench/report/statistics.h"
#include "bench/startup/startup_bench.h"
#include "cli/version.h"

namespace baton {
namespace {

/// More than this share of the files in the page cache: the starts were not cold.
constexpr double kColdShare = 0.05;

struct StartPart {
  const char* name;
  double StartTimes::*seconds;
};
constexpr StartPart kParts[] = {{"process", &StartTimes::process}, {"files", &StartTimes::files},
                                {"device", &StartTimes::device},   {"weights", &StartTimes::weights},
                                {"engine", &StartTimes::engine},   {"first_token", &StartTimes::first_token}};

std::vector<double> totals_of_starts(const std::vector<StartTimes>& starts) {
  std::vector<double> totals;
  for (const StartTimes& start : starts) totals.push_back(start.total());
  return totals;
}

double median_part(const std::vector<StartTimes>& starts, const StartPart& part) {
  std::vector<double> seconds;
  for (const StartTimes& start : starts) seconds.push_back(start.*part.seconds);
  return median_of(seconds);
}

std::string page_cache_text(const StartupReport& report) {
  if (report.cold.empty()) return {};
  const double megabytes = static_cast<double>(report.left.bytes) / 1e6;
  if (report.left.share() <= kColdShare)
    return fmt::format(
        "Before a cold start the model's files ({:.1f} MB) were dropped from the page cache; not the program's.\n", megabytes);
  return fmt::format(
      "The system kept {:.0f}% of the model's files ({:.1f} MB) in the page cache: the cold starts were not cold.\n",
      100 * report.left.share(), megabytes);
}

void add_starts(json::Value& value, const std::string& kind, const std::vector<StartTimes>& starts) {
  const std::vector<double> totals = totals_of_starts(starts);
  const double sum = std::accumulate(totals.begin(), totals.end(), 0.0);
  value["avg_" + kind + "_startup_time"] =
      totals.empty() ? json::Value(nullptr) : json::Value(sum / static_cast<double>(totals.size()));
  value[kind + "_startup_times"] = totals;
  json::Value percentiles = json::Value::object();
  for (const int percent : {10, 25, 50, 75, 90, 99}) percentiles[std::to_string(percent)] = percentile_of(totals, percent);
  value[kind + "_startup_percentiles"] = percentiles;
  json::Value parts = json::Value::object();
  for (const StartPart& part : kParts) parts[part.name] = median_part(starts, part);
  value[kind + "_parts"] = parts;
}

}  // namespace

std::string startup_text(const StartupReport& report, const StartupBenchOptions& options, const std::string& command) {
  MarkdownTable table({"start", "first token after, s", "spread", "process, s", "files, s", "device, s", "weights, s",
                       "engine, s", "first token, s"});
  for (const auto& [name, starts] : {std::pair("cold", &report.cold), std::pair("warm", &report.warm)}) {
    if (starts->empty()) continue;
    const std::vector<double> totals = totals_of_starts(*starts);
    std::vector<std::string> cells{name, fmt::format("{:.3f}", median_of(totals)),
                                   fmt::format("{:.0f}%", 100 * spread_of(totals))};
    for (const StartPart& part : kParts) cells.push_back(fmt::format("{:.3f}", median_part(*starts, part)));
    table.add(cells);
  }
  return fmt::format(
      "{}\n{}: {} ({})\n\n{}\n{}, {} weights; the first token behind a prompt of {} tokens.\n{}"
      "Medians of {} cold and {} warm starts, each a process of its own; parts follow each other. Process: from exec to the\n"
      "program's own code. Engine: cache, workspace and captured graphs.\n",
      command, version_line(), report.device, report.features, table.text(), report.model, report.weight_dtype,
      options.input_len, page_cache_text(report), report.cold.size(), report.warm.size());
}

json::Value startup_json(const StartupReport& report, const StartupBenchOptions& options, const std::string& command) {
  json::Value value{{"command", command},
                    {"version", version_line()},
                    {"device", report.device},
                    {"features", report.features},
                    {"model", report.model},
                    {"weight_dtype", report.weight_dtype},
                    {"input_len", options.input_len}};
  value["page_cache_share"] = report.cold.empty() ? json::Value(nullptr) : json::Value(report.left.share());
  add_starts(value, "cold", report.cold);
  add_starts(value, "warm", report.warm);
  return value;
}

}  // namespace baton
