/// Replays the requests of a trace through the real scheduler and cache on a simulated clock, without a model or
/// device.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/cache/prefix_tree.h"
#include "engine/schedule/scheduler.h"
#include "engine/step/step_cost_table.h"

namespace baton {

/// A request of a trace: its lengths, and which runs of its prompt equal those of other requests.
struct TraceRequest {
  double arrival_s = 0;  ///< from the trace's begin
  std::int32_t prompt_len = 0;
  std::int32_t output_len = 0;
  std::vector<std::int64_t> runs =
      {};  ///< an id for each run_len tokens of the prompt; empty: nothing in common with any other
};

struct Trace {
  std::int32_t run_len = 512;
  std::vector<TraceRequest> requests = {};  ///< by arrival
};

struct ReplayOptions {
  SchedulerOptions scheduler = {};
  std::int32_t n_blocks = 0;
  std::int32_t block_len = 16;
  bool enable_prefix_caching = true;
  double life_of_reuse = PrefixTree::kLifeOfReuse;  ///< see PrefixTree; 0: least recently used
  double step_s = 0.01;                             ///< least time of a step
  double row_s = 2e-5;                              ///< time that each row adds
  std::optional<StepCostTable> costs = {};          ///< measured times, in place of these two
};

/// A distribution of times in seconds.
struct Distribution {
  double median = 0;
  double p99 = 0;
  double most = 0;
};

struct ReplayReport {
  std::int64_t n_requests = 0;
  std::int64_t n_refused = 0;  ///< longer than the cache: not replayed
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  ///< of these, found in the cache at the first admission
  std::int64_t output_tokens = 0;
  std::int64_t runs = 0;         ///< of all prompts; the last run of a prompt need not be full
  std::int64_t cached_runs = 0;  ///< of these, entirely found in the cache
  std::int64_t steps = 0;
  std::int64_t rows = 0;
  std::int64_t preemptions = 0;
  std::int32_t most_preemptions = 0;  ///< of one request
  std::int64_t recomputed_tokens = 0;
  std::int32_t most_prefill_beside_decodes = 0;  ///< rows of a step
  double simulated_s = 0;
  Distribution queue_s;        ///< from arrival to admission
  Distribution first_token_s;  ///< from arrival
  Distribution gap_s;          ///< between two tokens of a request
  Distribution token_s;        ///< time per output token: of each request from its first token to its last, over their number
  double mean_token_s = 0;     ///< over requests

  double share_of_tokens() const {
    return prompt_tokens == 0 ? 0 : static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
  }
  double share_of_runs() const { return runs == 0 ? 0 : static_cast<double>(cached_runs) / static_cast<double>(runs); }
};

/// Steps are planned one ahead, as in the engine, and the scheduler is told how long they took. A step takes step_s plus row_s for
/// each of its rows, or what the table of costs says. Every request gets exactly output_len tokens (at least one), which no other request shares. Sampling is left out, and with it the
/// time of token masks and the drafts of text that a grammar demands. The same trace and options give the same report.
ReplayReport replay(const Trace& trace, const ReplayOptions& options);

/// Number of blocks that would hold every prompt and answer of the trace at once.
std::int64_t blocks_for_all(const Trace& trace, std::int32_t block_len);

}  // namespace baton
