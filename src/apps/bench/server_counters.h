/// What a running server counts, read from its /metrics page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace baton {

/// Of GET /metrics, what a load is reported with; all 0 for a server that has no such page.
struct ServerCounters {
  double steps = 0;
  double tokens = 0;
  double gap_sum_s = 0;  ///< between two tokens of a sequence
  double n_gaps = 0;
  /// The I/O thread's waits for a lock, by how long they were: at most bounds[i] seconds, and counts[i] of them; the
  /// last bound is infinity. Both empty for a server that does not count them.
  std::vector<double> io_wait_bounds_s;
  std::vector<double> io_waits;

  static ServerCounters of_page(std::string_view page);

  /// What was added since `before`.
  ServerCounters since(const ServerCounters& before) const;
  double n_io_waits() const;
  /// A bound that at least `share` of the I/O thread's waits were within; 0 if there were none.
  double io_wait_within_s(double share) const;
};

/// Errors: those of http_get. `url`: "http://host:port".
Result<ServerCounters> read_server_counters(const std::string& url);

}  // namespace baton
