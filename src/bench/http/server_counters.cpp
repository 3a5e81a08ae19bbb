/// Parses as much of the Prometheus text format as is needed.
#include "bench/http/server_counters.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "bench/http/http_exchange.h"

namespace baton {
namespace {

constexpr double kTimeoutS = 30;

/// The lines with this name, without the name: "{labels} value" or " value".
std::vector<std::string_view> lines_of(std::string_view page, std::string_view name) {
  std::vector<std::string_view> lines;
  while (!page.empty()) {
    const std::string_view line = page.substr(0, page.find('\n'));
    page.remove_prefix(std::min(page.size(), line.size() + 1));
    const std::string_view rest = line.starts_with(name) ? line.substr(name.size()) : std::string_view();
    if (rest.starts_with('{') || rest.starts_with(' ')) lines.push_back(rest);
  }
  return lines;
}

double number(std::string_view text) { return std::strtod(std::string(text).c_str(), nullptr); }
double value_of_line(std::string_view line) { return number(line.substr(line.rfind(' ') + 1)); }

double counter_value(std::string_view page, std::string_view name) {
  const auto lines = lines_of(page, name);
  return lines.empty() ? 0 : value_of_line(lines.front());
}

/// The sum over the lines with the first of these names that the page has: a server with several engines has a line for
/// each.
std::optional<double> sum_of(std::string_view page, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const auto lines = lines_of(page, name);
    if (lines.empty()) continue;
    double sum = 0;
    for (const std::string_view line : lines) sum += value_of_line(line);
    return sum;
  }
  return std::nullopt;
}

}  // namespace

ServerCounters ServerCounters::of_page(std::string_view page) {
  ServerCounters counters;
  counters.steps = counter_value(page, "baton:steps_total");
  counters.tokens = counter_value(page, "vllm:generation_tokens_total");
  counters.gap_sum_s = counter_value(page, "vllm:inter_token_latency_seconds_sum");
  counters.n_gaps = counter_value(page, "vllm:inter_token_latency_seconds_count");
  counters.prefix_queries = sum_of(page, {"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"});
  counters.prefix_hits = sum_of(page, {"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"});
  counters.kv_bytes_requested = sum_of(page, {"baton:kv_bytes_requested_total"});
  counters.kv_bytes_saved = sum_of(page, {"baton:kv_bytes_saved_total"});
  double n_before = 0;
  for (const std::string_view line : lines_of(page, "baton:io_lock_wait_seconds_bucket")) {
    constexpr std::string_view kBound = "le=\"";
    const std::string_view bound = line.substr(std::min(line.size(), line.find(kBound) + kBound.size()));
    const double n = value_of_line(line);
    counters.io_wait_bounds_s.push_back(bound.starts_with("+Inf") ? std::numeric_limits<double>::infinity() : number(bound));
    counters.io_waits.push_back(n - n_before);
    n_before = n;
  }
  return counters;
}

ServerCounters ServerCounters::since(const ServerCounters& before) const {
  ServerCounters added = *this;
  added.steps -= before.steps;
  added.tokens -= before.tokens;
  added.gap_sum_s -= before.gap_sum_s;
  added.n_gaps -= before.n_gaps;
  for (const auto field : {&ServerCounters::prefix_queries, &ServerCounters::prefix_hits, &ServerCounters::kv_bytes_requested,
                           &ServerCounters::kv_bytes_saved}) {
    std::optional<double>& value = added.*field;
    if (value) *value -= (before.*field).value_or(0);
  }
  for (std::size_t i = 0; i < std::min(io_waits.size(), before.io_waits.size()); ++i) added.io_waits[i] -= before.io_waits[i];
  return added;
}

double ServerCounters::n_io_waits() const { return std::accumulate(io_waits.begin(), io_waits.end(), 0.0); }

double ServerCounters::io_wait_within_s(double share) const {
  const double n_needed = share * n_io_waits();
  double n = 0;
  for (std::size_t i = 0; i < io_waits.size() && n_io_waits() > 0; ++i)
    if ((n += io_waits[i]) >= n_needed) return io_wait_bounds_s[i];
  return 0;
}

Result<ServerCounters> read_server_counters(const ServerAddress& address, std::span<const std::string> headers) {
  BATON_TRY(const HttpExchange page, get_http(address, "/metrics", headers, kTimeoutS));
  return ServerCounters::of_page(page.status == 200 ? page.body : "");
}

}  // namespace baton
