/// The engine's books: metrics, and the statistics of each sequence.
#pragma once

#include "engine/batch_builder.h"
#include "engine/kv_cache.h"
#include "engine/metrics.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/watchdog.h"

namespace baton {

/// What is to be told of a step that does not end.
EngineState state_of(const StepPlan& plan, const Scheduler& scheduler, const KvCache& cache);

/// Every number is written in one place. Times are seconds in metrics and milliseconds in statistics. Fills of
/// prefixes are not requests and are counted by steps and bytes only. Thread: engine only; `metrics()` may be read by
/// any.
class MetricsRecorder {
 public:
  using Time = Sequence::Clock::time_point;

  const EngineMetrics& metrics() const { return metrics_; }

  void set_cache_size(const KvCache& cache) { metrics_.kv_blocks_total.set(cache.n_blocks()); }
  /// A request was not taken in. Any thread.
  void rejected_queue_full() { metrics_.rejected_queue_full.add(1); }
  void rejected_draining() { metrics_.rejected_draining.add(1); }
  /// A request was taken in, to have `n_sequences` / all of them have ended, the longest with `n_generated` tokens.
  void arrived(std::int32_t n_sequences) { metrics_.request_params_n.observe(n_sequences); }
  void request_ended(std::int32_t n_generated) { metrics_.request_max_num_generation_tokens.observe(n_generated); }
  /// A sequence got a slot. Tokens and cache hits count at its first admission only: what a preemption makes it
  /// compute again is no hit.
  void admitted(Sequence& sequence, Time now);
  /// A step was committed.
  void ran(const StepPlan& plan, const BuiltStep& built);
  void read(Sequence& sequence, const SequenceReads& reads);
  /// A step brought tokens, or the stop token that ended the sequence.
  void generated(Sequence& sequence, const StepOutcome& outcome, Time now);
  void finished(const Sequence& sequence, Time now);
  void update_gauges(const Scheduler& scheduler, const KvCache& cache);

 private:
  void verified(std::int32_t n_drafts, std::int32_t n_accepted);

  EngineMetrics metrics_;
};

}  // namespace baton
