/// Many clients that read streamed answers at once, on one thread and at little cost: sockets and epoll, nothing
/// between.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/bench/stream_check.h"
#include "core/result.h"

namespace baton {

struct StreamLoad {
  std::string host;
  std::uint16_t port = 0;
  std::int32_t n_clients = 0;
  double seconds = 0;                 ///< no request begins later; those under way end
  std::int64_t n_requests = 0;        ///< in all; 0: no limit
  std::vector<std::string> requests;  ///< whole, head and body; the clients take them in turn
  StreamExpectation expected;
  double silence_s = 120;  ///< a stream to which nothing comes for so long has failed
};

struct StreamLoadResult {
  std::int64_t n_requests = 0;
  std::int64_t n_whole = 0;  ///< answers in which nothing was wrong
  std::int64_t n_frames = 0;
  std::int64_t n_tokens = 0;
  std::int64_t n_lost = 0;   ///< tokens that the usage counts and that did not come
  std::int64_t n_extra = 0;  ///< the other way round
  std::int64_t n_faults = 0;
  std::vector<std::string> faults;  ///< the first few
  std::vector<float> first_token_ms;
  std::vector<float> gap_ms;  ///< between two arrivals of text or tokens
  double seconds = 0;
};

/// Connects `n_clients`, each of which sends a request, reads its answer to the end and sends the next on the same
/// connection; one whose answer is wrong connects anew. `on_second` is called about once a second with the seconds so
/// far. Without clients it only waits. Errors: not_found (no such host), invalid_request (more clients than files may
/// be open).
Result<StreamLoadResult> run_stream_load(const StreamLoad& load, const std::function<void(double seconds)>& on_second);

}  // namespace baton
