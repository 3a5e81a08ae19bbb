/// The report of `baton bench serve`: vLLM's block of lines and JSON keys, Baton's own numbers after them, and a table
/// of a sweep over rates.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/http/server_counters.h"
#include "bench/report/latency_statistics.h"
#include "bench/serve/request_schedule.h"
#include "bench/serve/serve_load.h"
#include "io/json.h"

namespace baton {

/// The metrics that have distributions, by vLLM's names.
inline constexpr std::array<std::string_view, 4> kServeMetrics{"ttft", "tpot", "itl", "e2el"};

/// What is reported of a load, beside its results.
struct ServeReportOptions {
  std::vector<std::string> metrics{kServeMetrics.begin(), kServeMetrics.end()};  ///< a selection, in order
  std::vector<double> percents{99};
  ServiceLevels levels;
  double sustained_at_s = 0.5;  ///< seconds a token that a sustained load stays within
};

/// One load in numbers. Times are in milliseconds unless their name says otherwise.
struct ServeSummary {
  ScheduleOptions schedule;
  bool is_trace = false;  ///< the dataset's arrivals, not the schedule's
  std::int32_t max_concurrency = 0;
  double seconds = 0;
  std::int64_t n_requests = 0, n_sent = 0, n_failed = 0;
  std::int64_t n_without_usage = 0;  ///< complete ones whose tokens the server did not count
  LoadTotals totals;
  std::array<LatencyDistribution, kServeMetrics.size()> latencies;  ///< of kServeMetrics
  double lag_p99_ms = 0, lag_max_ms = 0;                            ///< from when a request was due to its sending
  bool is_sustained = false;  ///< no request failed and latency_per_token is within the limit
  std::optional<std::int64_t> cached_tokens;
  std::optional<double> prefix_hit_rate, kv_bytes_per_token, kv_bytes_saved_per_token;
  std::vector<std::string> errors;  ///< the first different ones

  double per_second(double count) const { return seconds > 0 ? count / seconds : 0; }
};

/// `counters`: the increase of the server's counters during the load.
ServeSummary summarize(const ServeLoadResult& result, const ServerCounters& counters, const ServeReportOptions& options);

/// "inf", "4" or "ramp linear 1 to 8".
std::string rate_text(const ServeSummary& summary);

/// Lines as vLLM's benchmark prints them, and ours.
std::string report_text(const ServeSummary& summary, const ServeReportOptions& options);

/// A line for each load.
std::string sweep_table(std::span<const ServeSummary> summaries, const ServeReportOptions& options);

/// Appends vLLM's result keys and ours.
void add_results(json::Value& object, const ServeSummary& summary, const ServeReportOptions& options);
/// Appends what vLLM's --save-detailed keeps: a list over the requests that were sent for each key.
void add_details(json::Value& object, const ServeLoadResult& result);

}  // namespace baton
