/// The engine's queues, its steps in flight and its threads: what engine.cpp and engine_step.cpp implement.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/limits/memory_reserve.h"
#include "core/mutex.h"
#include "engine/cache/kv_cache.h"
#include "engine/cache/tree_view.h"
#include "engine/engine.h"
#include "engine/engine_parts.h"
#include "engine/inbox.h"
#include "engine/metrics_recorder.h"
#include "engine/prefix_service.h"
#include "engine/request/event_queue.h"
#include "engine/schedule/queue_limit.h"
#include "engine/schedule/request_check.h"
#include "engine/schedule/scheduler.h"
#include "engine/step/batch_builder.h"
#include "engine/step/block_transfer.h"
#include "engine/step/executor.h"
#include "engine/step/in_flight.h"
#include "engine/step/sampler.h"
#include "engine/step/step_masks.h"
#include "engine/watchdog.h"

namespace baton {

class Engine::Impl {
 public:
  Impl(const EngineOptions& options, EngineParts parts);

  // Any thread.
  Result<RequestId> submit(Request request);
  void post(FinishCommand command);
  Result<PrefixInfo> register_prefix(std::string name, std::vector<TokenId> tokens, CacheScope scope);
  Result<void> remove_prefix(const std::string& name);
  std::vector<PrefixInfo> prefixes() const;
  const PrefixLayout& prefix_layout() const { return transfers_.layout(); }
  Result<void> export_prefix(std::span<const TokenId> tokens, const CacheScope& scope, const PieceWriter& write);
  Result<PrefixInfo> load_prefix(std::string name, std::vector<TokenId> tokens, CacheScope scope, const PieceReader& read);
  std::shared_ptr<const TreeView> tree();
  void begin_drain();
  bool is_draining() const;
  bool is_idle() const;
  const Watchdog& watchdog() const { return watchdog_; }
  std::optional<std::string> fault() const { return executor_->fault(); }
  const EngineInfo& info() const { return info_; }
  const EngineMetrics& metrics() const { return metrics_recorder_.metrics(); }
  EventQueue<Event>& events() { return events_; }
  EventQueue<KvEvent>& kv_events() { return kv_events_; }

  // The owner's thread.
  void start();
  void stop();
  bool step();
  void set_relay(bool relay) { builder_.set_relay(relay); }
  void drop_cached_blocks() { cache_.drop_cached(); }
  void check_invariants() const;
  const KvCache& cache() const { return cache_; }

 private:
  Result<void> check_new_prefix(std::string_view name, std::span<const TokenId> tokens) const;
  Result<void> check_transfer() const;
  BlockTransfer transfer_of(BlockTransfer::Direction direction, std::span<const TokenId> tokens, const CacheScope& scope) const;
  void wait_transfer(const std::function<bool()>& is_reached) BATON_REQUIRES(mutex_);
  Result<KvCache::Pin> import_blocks(BlockTransfer& transfer, const PieceReader& read);
  void run(MemoryReserve& reserve);
  void run_steps(MemoryReserve& reserve);
  bool has_work() const BATON_REQUIRES(mutex_);
  bool drain();
  bool move_blocks();
  void take(SubmitCommand& command);
  void take(const FinishCommand& command);
  void take(PrefixPrefill& prefill, SequenceId id);
  SequenceId add(std::unique_ptr<Sequence> sequence);
  bool plan_next();
  void sample_last();
  void read_oldest();
  void commit_oldest();
  void end_failed();
  void end_all_if_faulty();
  void tell_of(const BuiltStep& built);
  void emit(const Sequence& sequence, ShortVector<TokenOutput> tokens, std::vector<TokenOutput> prompt_scores = {},
            std::shared_ptr<const Error> error = {});
  void retire();
  void publish();
  void end_prefix_prefill(PrefixPrefill& prefill, Result<KvCache::Pin> pin);
  void expire();
  void draw_tree();
  void end(SequenceId id, FinishReason reason, std::shared_ptr<const Error> error = {});
  QueueLimit::Line line_of(Tenant tenant, std::int32_t prompt_len, std::int32_t max_len, std::int32_t n_sequences) const {
    return {tenant.id, options_.by_size ? FairQueue::size_of(prompt_len, max_len, n_sequences) : 0};
  }
  QueueLimit::Line line_of(const SequenceTask& task) const {
    return line_of(task.tenant, task.prompt_len, task.max_len, task.n_siblings);
  }
  void record(StepRecord::What what, std::int64_t step) { watchdog_.record(what, step); }
  RequestLimits limits() const {
    return {info_.max_model_len,    n_vocab_, eos_token_ids_, options_.speculation, bounds_.max_list_entries,
            options_.has_priorities};
  }

  const EngineOptions options_;
  const EngineInfo info_;
  const std::vector<TokenId> eos_token_ids_;
  const std::int32_t n_vocab_;
  const StepBounds bounds_;

  // Engine thread only.
  KvCache cache_;
  Scheduler scheduler_;
  BatchBuilder builder_;
  std::unique_ptr<Executor> executor_;
  BlockTransfers transfers_;
  RunningPrefills prefills_;
  StepMasks masks_;
  MetricsRecorder metrics_recorder_;
  std::deque<StepInFlight> in_flight_;
  std::map<RequestId, LiveRequest> requests_;
  std::set<std::pair<Sequence::Clock::time_point, SequenceId>> deadlines_;
  // Collected during a step and published at its end.
  std::vector<Event> news_;
  // Of the step being read and committed; their memory is kept.
  std::vector<Sequence*> committing_;  ///< in plan order; null: it is gone
  std::vector<StepOutcome> outcomes_;
  EngineState state_;                       ///< memory for the next plan's
  bool needs_plan_ = false;                 ///< see StepPlan::needs_another, of the last plan
  std::int64_t n_retired_ = 0;              ///< sequences that ended
  std::vector<QueueLimit::Line> unqueued_;  ///< the lines of sequences that no longer wait for their first step

  mutable Mutex mutex_;
  Condition inbox_filled_;
  Inbox inbox_ BATON_GUARDED_BY(mutex_);
  std::int64_t next_request_ BATON_GUARDED_BY(mutex_) = 0;
  SequenceId next_sequence_ BATON_GUARDED_BY(mutex_){0};
  QueueLimit queue_ BATON_GUARDED_BY(mutex_);               ///< of sequences that wait for their first step
  std::int64_t n_unfinished_ BATON_GUARDED_BY(mutex_) = 0;  ///< sequences and prefix prefills, from submit to their last event
  bool is_draining_ BATON_GUARDED_BY(mutex_) = false;
  bool is_stopping_ BATON_GUARDED_BY(mutex_) = false;
  bool has_thread_ BATON_GUARDED_BY(mutex_) = false;
  PrefixService prefixes_ BATON_GUARDED_BY(mutex_);
  TransferQueue transfer_queue_ BATON_GUARDED_BY(mutex_);
  /// As of the last request for one.
  std::shared_ptr<const TreeView> tree_ BATON_GUARDED_BY(mutex_) = std::make_shared<TreeView>();
  /// For steps, from start on. Without it, new requests are refused.
  std::optional<MemoryReserve> reserve_ BATON_GUARDED_BY(mutex_);

  EventQueue<Event> events_;
  EventQueue<KvEvent> kv_events_;  ///< empty without EngineOptions::kv_events
  Watchdog watchdog_;
  std::thread thread_;  ///< the owner's
};

}  // namespace baton
