/// Many clients that read streamed answers at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/stream/stream_check.h"
#include "core/result.h"

namespace baton {

struct StreamLoad {
  std::string url;
  std::int32_t n_clients = 0;
  double seconds = 0;               ///< no request begins after this time; running ones end
  std::int64_t n_requests = 0;      ///< number of requests; 0: no limit
  std::vector<std::string> bodies;  ///< of requests; clients take them in turn
  StreamExpectation expected;
  double silence_s = 120;  ///< a stream has failed if nothing arrives for this long
};

struct StreamLoadResult {
  std::int64_t n_requests = 0;
  std::int64_t n_whole = 0;  ///< answers without a fault
  std::int64_t n_frames = 0;
  std::int64_t n_tokens = 0;
  std::int64_t n_lost = 0;   ///< tokens that the usage counts but that did not arrive
  std::int64_t n_extra = 0;  ///< tokens that arrived but that the usage does not count
  std::int64_t n_faults = 0;
  std::vector<std::string> faults;  ///< the first ones
  std::vector<float> first_token_ms;
  std::vector<float> gap_ms;  ///< between two arrivals of text or tokens
  double seconds = 0;
};

/// Each of `n_clients` sends a request, reads its answer to the end and sends the next one; after a faulty answer a second
/// later. `on_second` is called about once a second with the seconds so far. Without clients this function only waits.
/// Errors: invalid_request (more clients than open files are allowed).
Result<StreamLoadResult> run_stream_load(const StreamLoad& load, const std::function<void(double seconds)>& on_second);

}  // namespace baton
