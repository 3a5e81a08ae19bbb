/// Numbers to text and JSON.
#include "bench/serve/serve_report.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "bench/report/markdown_table.h"

namespace baton {
namespace {

constexpr std::size_t kShownErrors = 5;

struct MetricTitle {
  std::string_view name;   // "TTFT"
  std::string_view title;  // "Time to First Token"
};

constexpr std::array<MetricTitle, kServeMetrics.size()> kTitles{{
    {"TTFT", "Time to First Token"},
    {"TPOT", "Time per Output Token (excl. 1st token)"},
    {"ITL", "Inter-token Latency"},
    {"E2EL", "End-to-end Latency"},
}};

std::size_t metric_index(std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(kServeMetrics, name) - kServeMetrics.begin());
}

/// The values of kServeMetrics over the complete requests, in milliseconds.
std::array<std::vector<double>, kServeMetrics.size()> latencies_of(std::span<const RequestTimes> requests) {
  constexpr double kMs = 1e3;
  std::array<std::vector<double>, kServeMetrics.size()> values;
  for (const RequestTimes& request : requests) {
    if (!request.is_complete) continue;
    values[0].push_back(kMs * request.ttft);
    if (const auto tpot = request.tpot()) values[1].push_back(kMs * *tpot);
    for (const double gap : request.gaps) values[2].push_back(kMs * gap);
    values[3].push_back(kMs * request.e2e);
  }
  return values;
}

std::optional<double> ratio_of(std::optional<double> part, double whole) {
  if (!part || whole <= 0) return std::nullopt;
  return *part / whole;
}

json::Value null_or(const std::optional<double>& value) { return value ? json::Value(*value) : json::Value(nullptr); }

/// A line of 50 characters with the text in its middle.
std::string centred(std::string_view text, char fill) {
  const std::size_t n_fill = 50 - std::min<std::size_t>(text.size(), 50);
  return std::string(n_fill / 2, fill) + std::string(text) + std::string(n_fill - n_fill / 2, fill) + "\n";
}

template <class Value>
std::string serve_line(std::string_view name, const Value& value) {
  return fmt::format("{:<40} {:<10}\n", name, value);
}
std::string serve_line(std::string_view name, double value) { return fmt::format("{:<40} {:<10.2f}\n", name, value); }

std::string upper_percent(double percent) { return fmt::format("P{:g}", percent); }

/// Only what the server counts.
std::string server_lines(const ServeSummary& summary) {
  std::string text;
  if (summary.prefix_hit_rate)
    text += fmt::format("{:<40} {:.1f} %\n", "Prompt tokens found in the cache:", 100 * *summary.prefix_hit_rate);
  if (summary.kv_bytes_per_token) text += serve_line("KV MB read per generated token:", *summary.kv_bytes_per_token / 1e6);
  if (summary.kv_bytes_saved_per_token)
    text += serve_line("KV MB saved per generated token:", *summary.kv_bytes_saved_per_token / 1e6);
  return text;
}

}  // namespace

ServeSummary summarize(const ServeLoadResult& result, const ServerCounters& counters, const ServeReportOptions& options) {
  ServeSummary summary;
  summary.seconds = result.seconds;
  summary.n_requests = static_cast<std::int64_t>(result.requests.size());
  std::vector<RequestTimes> times;
  std::vector<double> lags_ms;
  for (const ServedRequest& request : result.requests) {
    times.push_back(request.times);
    if (request.is_sent) lags_ms.push_back(1e3 * request.lag_s);
    summary.n_sent += request.is_sent ? 1 : 0;
    summary.n_failed += request.error.empty() ? 0 : 1;
    summary.n_without_usage += request.times.is_complete && !request.has_usage ? 1 : 0;
    if (request.cached_tokens) summary.cached_tokens = summary.cached_tokens.value_or(0) + *request.cached_tokens;
    if (!request.error.empty() && summary.errors.size() < kShownErrors &&
        std::ranges::find(summary.errors, request.error) == summary.errors.end())
      summary.errors.push_back(request.error);
  }
  summary.totals = totals_of(times, options.levels);
  auto values = latencies_of(times);
  for (std::size_t i = 0; i < values.size(); ++i)
    summary.latencies[i] = distribution_of(std::move(values[i]), options.percents);
  summary.lag_p99_ms = percentile_of(lags_ms, 99);
  summary.lag_max_ms = percentile_of(lags_ms, 100);
  summary.is_sustained =
      summary.totals.completed > 0 && summary.n_failed == 0 && summary.totals.latency_per_token <= options.sustained_at_s;
  const auto n_tokens = static_cast<double>(summary.totals.output_tokens);
  summary.prefix_hit_rate = ratio_of(counters.prefix_hits, counters.prefix_queries.value_or(0));
  summary.kv_bytes_per_token = ratio_of(counters.kv_bytes_requested, n_tokens);
  summary.kv_bytes_saved_per_token = ratio_of(counters.kv_bytes_saved, n_tokens);
  return summary;
}

std::string rate_text(const ServeSummary& summary) {
  const ScheduleOptions& schedule = summary.schedule;
  if (summary.is_trace) return "trace";
  if (schedule.ramp_up.empty()) return fmt::format("{:g}", schedule.rate);
  return fmt::format("ramp {} {:g} to {:g}", schedule.ramp_up, schedule.ramp_up_start, schedule.ramp_up_end);
}

std::string report_text(const ServeSummary& summary, const ServeReportOptions& options) {
  const LoadTotals& totals = summary.totals;
  const auto per_second = [&](std::int64_t count) { return summary.per_second(static_cast<double>(count)); };
  std::string text = centred(" Serving Benchmark Result ", '=');
  text += serve_line("Successful requests:", totals.completed);
  text += serve_line("Failed requests:", summary.n_failed);
  if (summary.n_sent < summary.n_requests) text += serve_line("Requests not sent:", summary.n_requests - summary.n_sent);
  if (summary.max_concurrency > 0) text += serve_line("Maximum request concurrency:", summary.max_concurrency);
  text += serve_line("Request rate configured (RPS):", rate_text(summary));
  text += serve_line("Benchmark duration (s):", summary.seconds);
  text += serve_line("Total input tokens:", totals.prompt_tokens);
  text += serve_line("Total generated tokens:", totals.output_tokens);
  text += serve_line("Request throughput (req/s):", per_second(totals.completed));
  if (options.levels.any()) text += serve_line("Request goodput (req/s):", per_second(totals.good));
  text += serve_line("Output token throughput (tok/s):", per_second(totals.output_tokens));
  text += serve_line("Peak output token throughput (tok/s):", static_cast<double>(totals.max_output_tokens_per_s));
  text += serve_line("Peak concurrent requests:", static_cast<double>(totals.max_concurrent_requests));
  text += serve_line("Total token throughput (tok/s):", per_second(totals.prompt_tokens + totals.output_tokens));
  for (const std::string& metric : options.metrics) {
    const MetricTitle& title = kTitles[metric_index(metric)];
    const LatencyDistribution& latency = summary.latencies[metric_index(metric)];
    text += centred(title.title, '-');
    text += serve_line(fmt::format("Mean {} (ms):", title.name), latency.mean);
    text += serve_line(fmt::format("Median {} (ms):", title.name), latency.median);
    for (std::size_t i = 0; i < options.percents.size(); ++i)
      text += serve_line(fmt::format("{} {} (ms):", upper_percent(options.percents[i]), title.name), latency.percentiles[i]);
  }
  text += centred("Baton", '-');
  text += fmt::format("{:<40} {:.4f}\n", "Latency per output token (s):", totals.latency_per_token);
  text +=
      serve_line(fmt::format("Sustained at {:g} s per token:", options.sustained_at_s), summary.is_sustained ? "yes" : "no");
  text += serve_line("P99 lateness of sending (ms):", summary.lag_p99_ms);
  text += serve_line("Largest lateness of sending (ms):", summary.lag_max_ms);
  text += server_lines(summary);
  if (summary.n_without_usage > 0) text += serve_line("Answers without a token count:", summary.n_without_usage);
  text += centred("", '=');
  for (const std::string& error : summary.errors) text += "failed: " + error + "\n";
  return text;
}

std::string sweep_table(std::span<const ServeSummary> summaries, const ServeReportOptions& options) {
  const std::string last_percent = options.percents.empty() ? "P-" : upper_percent(options.percents.back());
  MarkdownTable table({"req/s offered", "sent", "failed", "req/s", "output tok/s", "TTFT mean", "TTFT " + last_percent,
                       "TPOT mean", "TPOT " + last_percent, "s a token",
                       fmt::format("sustained at {:g} s", options.sustained_at_s), "goodput req/s", "hit rate", "late P99"});
  for (const ServeSummary& summary : summaries) {
    const auto rate = [&](std::int64_t count) { return fmt::format("{:.2f}", summary.per_second(static_cast<double>(count))); };
    const auto ms = [](double value) { return fmt::format("{:.1f} ms", value); };
    const auto last = [&](std::size_t metric) {
      const auto& percentiles = summary.latencies[metric].percentiles;
      return percentiles.empty() ? std::string("-") : ms(percentiles.back());
    };
    table.add({rate_text(summary), std::to_string(summary.n_sent), std::to_string(summary.n_failed),
               rate(summary.totals.completed), rate(summary.totals.output_tokens), ms(summary.latencies[0].mean), last(0),
               ms(summary.latencies[1].mean), last(1), fmt::format("{:.4f}", summary.totals.latency_per_token),
               summary.is_sustained ? "yes" : "no", options.levels.any() ? rate(summary.totals.good) : "-",
               summary.prefix_hit_rate ? fmt::format("{:.1f} %", 100 * *summary.prefix_hit_rate) : "-",
               ms(summary.lag_p99_ms)});
  }
  return table.text();
}

void add_results(json::Value& object, const ServeSummary& summary, const ServeReportOptions& options) {
  const LoadTotals& totals = summary.totals;
  const auto per_second = [&](std::int64_t count) { return summary.per_second(static_cast<double>(count)); };
  object["duration"] = summary.seconds;
  object["completed"] = totals.completed;
  object["failed"] = summary.n_failed;
  object["total_input_tokens"] = totals.prompt_tokens;
  object["total_output_tokens"] = totals.output_tokens;
  object["request_throughput"] = per_second(totals.completed);
  object["request_goodput"] = options.levels.any() ? json::Value(per_second(totals.good)) : json::Value(nullptr);
  object["output_throughput"] = per_second(totals.output_tokens);
  object["total_token_throughput"] = per_second(totals.prompt_tokens + totals.output_tokens);
  object["max_output_tokens_per_s"] = static_cast<double>(totals.max_output_tokens_per_s);
  object["max_concurrent_requests"] = totals.max_concurrent_requests;
  for (const std::string& metric : options.metrics) {
    const LatencyDistribution& latency = summary.latencies[metric_index(metric)];
    object["mean_" + metric + "_ms"] = latency.mean;
    object["median_" + metric + "_ms"] = latency.median;
    object["std_" + metric + "_ms"] = latency.std;
    for (std::size_t i = 0; i < options.percents.size(); ++i)
      object[fmt::format("p{:g}_{}_ms", options.percents[i], metric)] = latency.percentiles[i];
  }
  object["sent"] = summary.n_sent;
  object["not_sent"] = summary.n_requests - summary.n_sent;
  object["latency_per_token_s"] = totals.latency_per_token;
  object["sustained"] = summary.is_sustained;
  object["sustained_at_s"] = options.sustained_at_s;
  object["p99_send_lag_ms"] = summary.lag_p99_ms;
  object["max_send_lag_ms"] = summary.lag_max_ms;
  object["prefix_hit_rate"] = null_or(summary.prefix_hit_rate);
  object["kv_bytes_per_token"] = null_or(summary.kv_bytes_per_token);
  object["kv_bytes_saved_per_token"] = null_or(summary.kv_bytes_saved_per_token);
  object["total_cached_tokens"] = summary.cached_tokens ? json::Value(*summary.cached_tokens) : json::Value(nullptr);
  object["answers_without_usage"] = summary.n_without_usage;
  object["first_errors"] = summary.errors;
}

void add_details(json::Value& object, const ServeLoadResult& result) {
  for (const char* const key : {"input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors"})
    object[key] = json::Value::array();
  for (const ServedRequest& request : result.requests) {
    if (!request.is_sent) continue;
    object["input_lens"].push_back(request.times.prompt_len);
    object["output_lens"].push_back(request.times.output_len);
    object["start_times"].push_back(request.times.sent);
    object["ttfts"].push_back(request.times.ttft);
    object["itls"].push_back(request.times.gaps);
    object["generated_texts"].push_back(request.text);
    object["errors"].push_back(request.error);
  }
}

}  // namespace baton
