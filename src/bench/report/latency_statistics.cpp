/// Percentiles, goodput, peaks.
#include "bench/report/latency_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace baton {
namespace {

double percentile_of_sorted(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double at = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - std::floor(at));
}

void count_second(std::vector<std::int64_t>& seconds, double at) {
  const auto second = static_cast<std::size_t>(std::max(at, 0.0));
  if (second >= seconds.size()) seconds.resize(second + 1);
  ++seconds[second];
}

}  // namespace

double percentile_of(std::vector<double> values, double percent) {
  std::ranges::sort(values);
  return percentile_of_sorted(values, percent);
}

LatencyDistribution distribution_of(std::vector<double> values, std::span<const double> percents) {
  LatencyDistribution made;
  made.percentiles.resize(percents.size());
  if (values.empty()) return made;
  std::ranges::sort(values);
  const auto n = static_cast<double>(values.size());
  made.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  made.median = percentile_of_sorted(values, 50);
  double squares = 0;
  for (const double value : values) squares += (value - made.mean) * (value - made.mean);
  made.std = std::sqrt(squares / n);
  for (std::size_t i = 0; i < percents.size(); ++i) made.percentiles[i] = percentile_of_sorted(values, percents[i]);
  return made;
}

bool ServiceLevels::are_met(const RequestTimes& times) const {
  constexpr double kMs = 1e3;
  if (ttft_ms && times.ttft * kMs > *ttft_ms) return false;
  if (tpot_ms && times.tpot().value_or(0) * kMs > *tpot_ms) return false;
  return !e2el_ms || times.e2e * kMs <= *e2el_ms;
}

LoadTotals totals_of(std::span<const RequestTimes> requests, const ServiceLevels& levels) {
  LoadTotals totals;
  double begin = std::numeric_limits<double>::infinity();
  for (const RequestTimes& request : requests)
    if (request.is_complete) begin = std::min(begin, request.sent);
  std::vector<std::int64_t> tokens;             // by second
  std::vector<std::pair<double, int>> changes;  // of the number under way; at the same time the ends come first
  for (const RequestTimes& request : requests) {
    if (!request.is_complete) continue;
    ++totals.completed;
    totals.prompt_tokens += request.prompt_len;
    totals.output_tokens += request.output_len;
    totals.good += levels.any() && levels.are_met(request) ? 1 : 0;
    totals.latency_per_token += request.e2e / static_cast<double>(std::max<std::int64_t>(request.output_len, 1));
    const double sent = request.sent - begin;
    double at = sent + request.ttft;
    count_second(tokens, at);
    for (const double gap : request.gaps) count_second(tokens, at += gap);
    changes.emplace_back(sent, 1);
    changes.emplace_back(sent + request.e2e, -1);
  }
  totals.latency_per_token /= static_cast<double>(std::max<std::int64_t>(totals.completed, 1));
  if (!tokens.empty()) totals.max_output_tokens_per_s = *std::ranges::max_element(tokens);
  std::ranges::sort(changes);
  std::int64_t n_under_way = 0;
  for (const auto& [at, change] : changes)
    totals.max_concurrent_requests = std::max(totals.max_concurrent_requests, n_under_way += change);
  return totals;
}

}  // namespace baton
