/// Fuzzes traces of `baton simulate`: any bytes give an error message, or requests in the order of their arrival with
/// lengths inside the limits; and a small trace can be replayed to its end.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/check.h"
#include "engine/step/replay.h"
#include "load/trace.h"
#include "support/fuzz_parts.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace = baton::parse_trace(baton::test::fuzz_text(data, size), "the input");
  if (!trace) {
    baton::check(trace.error().message.starts_with("the input"), "an error without its source");
    return 0;
  }
  double last_s = 0;
  std::int64_t n_tokens = 0;
  for (const baton::TraceRequest& request : trace->requests) {
    baton::check(std::isfinite(request.arrival_s) && request.arrival_s >= last_s, "an arrival before the last one");
    baton::check(request.prompt_len >= 0 && request.output_len >= 0, "a negative length");
    last_s = request.arrival_s;
    n_tokens += request.prompt_len + request.output_len;
  }
  if (trace->requests.size() > 20 || n_tokens > 20'000) return 0;
  baton::ReplayOptions options;
  options.n_blocks = 200;
  const baton::ReplayReport report = baton::replay(*trace, options);
  baton::check(report.n_requests == static_cast<std::int64_t>(trace->requests.size()), "a request that never arrived");
  return 0;
}
