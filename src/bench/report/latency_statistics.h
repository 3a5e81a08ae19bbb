/// What a load of streamed requests means in numbers, by the definitions of vLLM's serving benchmark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace baton {

/// One request as its client saw it. Times are in seconds.
struct RequestTimes {
  bool is_complete = false;
  std::int64_t prompt_len = 0;
  std::int64_t output_len = 0;
  double sent = 0;             ///< since the load began
  double ttft = 0;             ///< from sending to the first chunk with a token
  double e2e = 0;              ///< from sending to the last chunk with a token
  std::vector<double> gaps{};  ///< between chunks with tokens

  /// Time per output token, the first not counted: (e2e - ttft) / (output_len - 1); absent for a single token.
  std::optional<double> tpot() const {
    if (output_len < 2) return std::nullopt;
    return (e2e - ttft) / static_cast<double>(output_len - 1);
  }
};

/// The value below which `percent` (0 to 100) of the values lie, linear between two values, as NumPy's percentile; 0
/// for no values.
double percentile_of(std::vector<double> values, double percent);

struct LatencyDistribution {
  double mean = 0, median = 0, std = 0;  ///< std: of these values, divided by their number
  std::vector<double> percentiles;       ///< in the order in which they were asked for
};

/// All 0 for no values.
LatencyDistribution distribution_of(std::vector<double> values, std::span<const double> percents);

/// Service levels in milliseconds; an absent one is not asked for.
struct ServiceLevels {
  std::optional<double> ttft_ms = {}, tpot_ms = {}, e2el_ms = {};

  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
  /// A single token has no TPOT and keeps every level of it, as in vLLM.
  bool are_met(const RequestTimes& times) const;
};

/// Sums and peaks of the complete requests.
struct LoadTotals {
  std::int64_t completed = 0, prompt_tokens = 0, output_tokens = 0;
  std::int64_t good = 0;  ///< requests that met the service levels
  /// Most chunks with tokens that arrived within one second, seconds counted from the first request's sending.
  std::int64_t max_output_tokens_per_s = 0;
  std::int64_t max_concurrent_requests = 0;  ///< most requests under way at the same moment
  double latency_per_token = 0;  ///< mean over requests of e2e / output_len, in seconds: the papers' normalised latency
};

LoadTotals totals_of(std::span<const RequestTimes> requests, const ServiceLevels& levels);

}  // namespace baton
