/// The engine's steps: what its thread does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/limits/memory_reserve.h"
#include "engine/cache/kv_cache.h"
#include "engine/engine_options.h"
#include "engine/live_requests.h"
#include "engine/mailbox.h"
#include "engine/metrics_recorder.h"
#include "engine/pin_table.h"
#include "engine/schedule/scheduler.h"
#include "engine/step/batch_builder.h"
#include "engine/step/block_transfer.h"
#include "engine/step/draft_builder.h"
#include "engine/step/executor.h"
#include "engine/step/in_flight.h"
#include "engine/step/simulated_acceptance.h"
#include "engine/step/step_masks.h"
#include "engine/watchdog.h"

namespace baton {

struct EngineParts;

/// Takes commands out of a mailbox, runs steps and puts events into it. Each step is planned and enqueued before the previous
/// step is committed: plan(n+1) ends before commit(n) begins.
///
/// Thread: the one that runs the steps, but for metrics, watchdog, layout and fault.
class EngineLoop {
 public:
  /// `info`: of the same engine. `mail` must outlive it.
  EngineLoop(const EngineOptions& options, const EngineInfo& info, EngineParts parts, Mailbox& mail);

  /// Runs one step. Returns false if there was nothing to do.
  bool step();
  /// Runs steps until the mailbox says stop. Allocations of the steps use the mailbox's reserve.
  void run(MemoryReserve& reserve);
  /// Ends all sequences and transfers (`abort`) and publishes their events. No step may be run afterwards.
  void end_all();

  void set_relay(bool relay) {
    builder_.set_relay(relay);
    if (drafter_) drafter_->set_relay(relay);
  }
  KvCache& cache() { return cache_; }
  const KvCache& cache() const { return cache_; }
  void check_invariants() const;

  MetricsRecorder& metrics_recorder() { return metrics_recorder_; }
  const MetricsRecorder& metrics_recorder() const { return metrics_recorder_; }
  Watchdog& watchdog() { return watchdog_; }
  const Watchdog& watchdog() const { return watchdog_; }
  const PrefixLayout& prefix_layout() const { return transfers_.layout(); }
  std::optional<std::string> fault() const { return executor_->fault(); }

 private:
  /// What is collected during a step and published at its end.
  struct News {
    std::vector<Event> events;
    std::int64_t n_ended = 0;                ///< sequences
    std::vector<QueueLimit::Line> unqueued;  ///< the lines of sequences that no longer wait for their first step
  };

  void run_steps(MemoryReserve& reserve);
  bool drain();
  void end_due();
  void take(SubmitCommand& command);
  void take(const FinishCommand& command);
  void take(PinPrefill& prefill);
  void draw_tree();
  bool move_blocks();
  StepPlan plan();
  bool plans_ahead() const;
  BuiltStep build(const StepPlan& plan) { return builder_.build(plan, scheduler_.members()); }
  void forward(StepPlan plan, BuiltStep built);
  void sample();
  void read_oldest();
  void draft(StepInFlight& step);
  void commit_oldest();
  bool commit_until(std::size_t n_in_flight);
  void report(const BuiltStep& built);
  void end(SequenceId id, FinishReason reason, std::shared_ptr<const Error> error = {});
  void end_failed();
  void end_all_if_faulty();
  void emit(const Sequence& sequence, ShortVector<TokenOutput> tokens, std::vector<TokenOutput> prompt_scores = {},
            std::shared_ptr<const Error> error = {});
  void retire();
  PinPrefill& prefill_of(const Sequence& sequence);
  void end_prefix_prefill(PinPrefill& prefill, Result<KvCache::Pin> pin);
  void publish();
  void record(StepRecord::What what, std::int64_t step) { watchdog_.record(what, step); }

  Mailbox& mail_;
  KvCache cache_;
  Scheduler scheduler_;
  BatchBuilder builder_;
  std::optional<DraftBuilder> drafter_;  ///< of a model with a layer for drafts
  std::optional<SimulatedAcceptance> simulated_;
  std::unique_ptr<Executor> executor_;
  BlockTransfers transfers_;
  StepMasks masks_;
  const bool is_recurrent_;  ///< the model has recurrent layers
  MetricsRecorder metrics_recorder_;
  Watchdog watchdog_;
  std::deque<StepInFlight> in_flight_;
  LiveRequests requests_;
  std::vector<StepOutcome> outcomes_;  ///< of the step that is read and committed
  News news_;
};

}  // namespace baton
