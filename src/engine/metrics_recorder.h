/// Updates the engine's metrics and the statistics of each sequence.
#pragma once

#include "engine/cache/kv_cache.h"
#include "engine/engine_options.h"
#include "engine/request/metrics.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/sequence.h"
#include "engine/step/batch_builder.h"
#include "engine/watchdog.h"

namespace baton {

/// The state to log if the step does not end. `plan` is the last one of the scheduler; `memory` is used again.
EngineState state_of(const StepPlan& plan, const Scheduler& scheduler, const KvCache& cache, EngineState memory);

/// Every number is written in one place. Times are seconds in metrics and milliseconds in statistics. Prefix prefills
/// are not requests: only their steps and bytes are counted. Thread: engine only; any thread may read `metrics()`.
class MetricsRecorder {
 public:
  using Time = Sequence::Clock::time_point;

  const EngineMetrics& metrics() const { return metrics_; }

  void set_cache_size(const KvCache& cache) { metrics_.kv_blocks_total.set(cache.n_blocks()); }
  /// There is a host tier, for `n_slots` entries of `entry_bytes` bytes each.
  void set_tier_size(const EngineInfo& info) {
    metrics_.host_tier_blocks_total.set(info.n_tier_slots);
    metrics_.host_tier_states_total.set(info.n_tier_states);
    tier_entry_bytes_ = info.tier_entry_bytes;
    state_bytes_ = info.state_slot_bytes;
  }
  /// A request was rejected. Thread: any.
  void rejected_queue_full() { metrics_.rejected_queue_full.add(1); }
  void rejected_no_memory() { metrics_.rejected_no_memory.add(1); }
  void rejected_draining() { metrics_.rejected_draining.add(1); }
  /// A request with `n_sequences` sequences was accepted / all of them have ended, the longest with `n_generated`
  /// tokens.
  void arrived(std::int32_t n_sequences) { metrics_.request_params_n.observe(n_sequences); }
  void request_ended(std::int32_t n_generated) { metrics_.request_max_num_generation_tokens.observe(n_generated); }
  /// A sequence was given a slot. Tokens and cache hits count at its first admission only: tokens that are computed
  /// again after a preemption are no hits.
  void admitted(Sequence& sequence, Time now);
  /// A step was committed.
  void ran(const StepPlan& plan, const BuiltStep& built);
  /// The masks of a step were built, and those of `n_late` sequences were not ready.
  void built(std::int32_t n_masks, std::size_t n_late, double seconds) {
    metrics_.grammar_masks.add(n_masks);
    metrics_.mask_deferrals.add(static_cast<std::int64_t>(n_late));
    metrics_.grammar_mask_seconds.observe(seconds);
  }
  void read(Sequence& sequence, const SequenceReads& reads);
  void drafted(std::size_t n_passes) { metrics_.draft_passes.add(static_cast<std::int64_t>(n_passes)); }
  /// A step gave a sequence tokens, or the stop token that ended it. The
  /// counters know of it after count_generated.
  void generated(Sequence& sequence, const StepOutcome& outcome, Time now);
  /// Adds what `generated` was told since the last call to the counters: they are shared with other threads, so all
  /// sequences of a step are added at once.
  void count_generated();
  void finished(const Sequence& sequence, Time now);
  void update_gauges(const Scheduler& scheduler, const KvCache& cache);

 private:
  void verified(const StepOutcome& outcome);

  void count_gaps();

  EngineMetrics metrics_;
  std::int64_t tier_entry_bytes_ = 0;
  std::int64_t state_bytes_ = 0;
  std::int64_t n_generated_ = 0;  ///< tokens that are not counted yet
  double gap_s_ = 0;              ///< between two tokens of a sequence; those of a step mostly are the same
  std::int64_t n_gaps_ = 0;       ///< such gaps that are not counted yet
};

}  // namespace baton
