/// Counters of a running server, read from its /metrics page.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/http/server_address.h"
#include "core/result.h"

namespace baton {

/// The counters that a load is reported with; all 0 for a server without /metrics.
struct ServerCounters {
  double steps = 0;
  double tokens = 0;
  double gap_sum_s = 0;  ///< between two tokens of a sequence
  double n_gaps = 0;
  /// The I/O thread's waits for a lock by length: counts[i] of them were at most bounds[i] seconds; the last bound is
  /// infinity. Both are empty for a server that does not count them.
  std::vector<double> io_wait_bounds_s;
  std::vector<double> io_waits;

  /// Prompt tokens looked up in the prefix cache and found there, by Baton's and vLLM's names; absent: not counted.
  std::optional<double> prefix_queries;
  std::optional<double> prefix_hits;
  std::optional<double> kv_bytes_requested;  ///< that plans read; absent: not counted
  std::optional<double> kv_bytes_saved;

  static ServerCounters of_page(std::string_view page);

  /// The increase since `before`.
  ServerCounters since(const ServerCounters& before) const;
  double n_io_waits() const;
  /// The smallest bound that at least `share` of the I/O thread's waits were within; 0 if there were none.
  double io_wait_within_s(double share) const;
};

/// Reads the counters of a server; `headers` are sent with the request. Errors: those of get_http.
Result<ServerCounters> read_server_counters(const ServerAddress& address, std::span<const std::string> headers);

}  // namespace baton
