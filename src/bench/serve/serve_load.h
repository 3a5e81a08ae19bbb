/// Sends the requests of a workload to a server when they are due, and reads the streamed answers, by the shared load.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/dataset/workload.h"
#include "bench/report/latency_statistics.h"
#include "bench/serve/serve_requests.h"
#include "core/result.h"

namespace baton {

struct ServeLoad {
  RequestFormat format;
  const Workload* workload = nullptr;
  std::vector<double> arrivals_s;    ///< of each request, from the begin
  std::int32_t max_concurrency = 0;  ///< requests under way at the same time; 0: no limit
  double time_limit_s = 0;           ///< no request is sent after this time; 0: no limit
  double timeout_s = 6 * 3600;       ///< a request that takes longer has failed
};

/// One request of the workload and what came of it.
struct ServedRequest {
  RequestTimes times;
  bool is_sent = false;
  std::string error;       ///< why it was sent, or had to be, and is not complete
  double lag_s = 0;        ///< from when it was due, its previous turn over and a place free, to its sending
  std::string text;        ///< the answer
  bool has_usage = false;  ///< the server counted the answer's tokens; otherwise ids, tokenizer or chunks did
  std::optional<std::int64_t> cached_tokens;  ///< of the prompt, as far as the server says
};

struct ServeLoadResult {
  std::vector<ServedRequest> requests;  ///< in the workload's order
  double seconds = 0;                   ///< from the begin to the last answer's end
  bool was_interrupted = false;
};

/// Runs the load. `on_second` is called about
/// once a second with the number of requests that have ended. SIGINT (watch_interrupts) ends the load: requests under
/// way fail. Errors: invalid_request (more connections than open files are allowed).
Result<ServeLoadResult> run_serve_load(const ServeLoad& load, const std::function<void(std::int64_t n_ended)>& on_second);

}  // namespace baton
