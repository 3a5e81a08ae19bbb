/// How long the requests of a workload are and what they share, for reports.
#pragma once

#include <cstdint>
#include <string>

#include "bench/dataset/workload.h"
#include "io/json.h"

namespace baton {

/// A distribution of lengths in tokens.
struct LengthSummary {
  std::int64_t total = 0;
  double mean = 0;
  std::int64_t p50 = 0;
  std::int64_t p99 = 0;
  std::int64_t most = 0;
};

struct WorkloadSummary {
  std::string name;
  std::int64_t n_requests = 0;
  std::int64_t n_dropped = 0;  ///< longer than the model's limit and left out
  LengthSummary prompt;        ///< as sent: of a later turn, the turns before and their answers too
  LengthSummary output;
  /// Share of all prompt tokens that another request has too at the same place; of a later turn, all that was said
  /// before.
  double shared_ratio = 0;
  double arrivals_s = 0;  ///< from the first arrival to the last; 0: the workload has none
};

WorkloadSummary summarize(const Workload& workload);

/// One line.
std::string to_string(const WorkloadSummary& summary);

json::Value to_json(const WorkloadSummary& summary);

}  // namespace baton
