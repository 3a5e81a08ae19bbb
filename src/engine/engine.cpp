/// The step loop and the queues before and after it.
#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/thread_name.h"
#include "engine/batch_builder.h"
#include "engine/cache_size.h"
#include "engine/engine_parts.h"
#include "engine/event_queue.h"
#include "engine/in_flight.h"
#include "engine/inbox.h"
#include "engine/kv_cache.h"
#include "engine/metrics_recorder.h"
#include "engine/prefix_service.h"
#include "engine/request_check.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace baton {

class Engine::Impl {
 public:
  Impl(const EngineOptions& options, EngineParts parts);

  // Any thread.
  Result<RequestId> submit(Request request);
  void post(FinishCommand command);
  Result<PrefixInfo> register_prefix(std::string name, std::vector<TokenId> tokens);
  Result<void> remove_prefix(const std::string& name);
  std::vector<PrefixInfo> prefixes() const;
  void begin_drain();
  bool is_draining() const;
  bool is_idle() const;
  const Watchdog& watchdog() const { return watchdog_; }
  const EngineInfo& info() const { return info_; }
  const EngineMetrics& metrics() const { return metrics_recorder_.metrics(); }
  EventQueue& events() { return events_; }

  // The owner's thread.
  void start();
  void stop();
  bool step();
  void set_relay(bool relay) { builder_.set_relay(relay); }
  void check_invariants() const;
  const KvCache& cache() const { return cache_; }

 private:
  void run();
  bool drain();
  void take(const SubmitCommand& command);
  void take(const FinishCommand& command);
  void take(PrefixPrefill& prefill);
  SequenceId add(std::unique_ptr<Sequence> sequence);
  bool plan_next();
  void commit_oldest();
  void emit(const Sequence& sequence, std::vector<TokenOutput> tokens, std::vector<TokenOutput> prompt_scores = {});
  void retire();
  void publish();
  void end_prefix_prefill(PrefixPrefill& prefill, Result<KvCache::Pin> pin);
  void expire();
  void end(SequenceId id, FinishReason reason);
  void record(StepRecord::What what, std::int64_t step) { watchdog_.record(what, step); }
  RequestLimits limits() const {
    return {info_.max_model_len, n_vocab_, eos_token_ids_, options_.speculation, bounds_.max_list_entries};
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
  MetricsRecorder metrics_recorder_;
  std::deque<StepInFlight> in_flight_;
  std::map<RequestId, LiveRequest> requests_;
  std::set<std::pair<Sequence::Clock::time_point, SequenceId>> deadlines_;
  SequenceId next_sequence_{0};
  // Collected during a step and published at its end.
  std::vector<Event> news_;
  std::int64_t n_retired_ = 0;   ///< sequences that ended
  std::int64_t n_unqueued_ = 0;  ///< requests that no longer wait in the queue

  mutable std::mutex mutex_;
  std::condition_variable inbox_filled_;
  // Guarded by mutex_.
  Inbox inbox_;
  std::int64_t next_request_ = 0;
  std::int64_t n_queued_requests_ = 0;
  std::int64_t n_unfinished_ = 0;  ///< sequences and prefix prefills, from submit to their last event
  bool is_draining_ = false;
  bool is_stopping_ = false;
  bool has_thread_ = false;
  PrefixService prefixes_;

  EventQueue events_;
  Watchdog watchdog_;
  std::thread thread_;
};

Engine::Impl::Impl(const EngineOptions& options, EngineParts parts)
    : options_(options),
      info_(std::move(parts.info)),
      eos_token_ids_(std::move(parts.eos_token_ids)),
      n_vocab_(parts.executor->model().spec().n_vocab),
      bounds_(parts.bounds),
      cache_({.block_len = info_.block_len,
              .groups = info_.cache_groups,
              .max_rows_in_flight = max_rows_in_flight(options),
              .enable_prefix_caching = options.enable_prefix_caching}),
      scheduler_({.max_num_seqs = options.max_num_seqs,
                  .max_num_batched_tokens = options.max_num_batched_tokens,
                  .max_prefill_tokens = info_.max_prefill_tokens,
                  .max_scores = parts.max_scores,
                  .max_list_entries = parts.bounds.max_list_entries,
                  .max_block_entries = parts.bounds.max_block_entries,
                  .max_drafts = parts.max_drafts,
                  .drafters_wait_alone = parts.executor->backend().capabilities().is_asynchronous},
                 cache_),
      builder_(std::move(parts.builder)),
      executor_(std::move(parts.executor)),
      prefixes_(info_.block_len),
      watchdog_(std::chrono::milliseconds(options.step_timeout_ms)) {
  metrics_recorder_.set_cache_size(cache_);
}

Result<RequestId> Engine::Impl::submit(Request request) {
  BATON_TRY_VOID(check_request(request, limits()));
  const auto arrived = request.arrived.value_or(Sequence::Clock::now());
  const std::scoped_lock lock(mutex_);
  if (is_draining_ || is_stopping_) {
    metrics_recorder_.rejected_draining();
    return fail(ErrorCode::unavailable, "the server is shutting down and takes no new requests");
  }
  if (options_.max_num_queued_reqs > 0 && n_queued_requests_ >= options_.max_num_queued_reqs) {
    metrics_recorder_.rejected_queue_full();
    return fail(ErrorCode::unavailable,
                fmt::format("{} requests are waiting, which is the limit: try again later", n_queued_requests_));
  }
  const RequestId id{next_request_++};
  ++n_queued_requests_;
  n_unfinished_ += request.n_sequences;
  inbox_.submits.push_back({id, std::move(request), arrived});
  inbox_filled_.notify_one();
  return id;
}

void Engine::Impl::post(FinishCommand command) {
  const std::scoped_lock lock(mutex_);
  if (is_stopping_) return;  // all sequences have ended or are about to
  inbox_.finishes.push_back(command);
  inbox_filled_.notify_one();
}

Result<PrefixInfo> Engine::Impl::register_prefix(std::string name, std::vector<TokenId> tokens) {
  const auto begin = Sequence::Clock::now();
  const auto n_tokens = static_cast<std::int32_t>(tokens.size());
  if (!options_.enable_prefix_caching) {
    return fail(ErrorCode::invalid_request, fmt::format("prefix '{}' cannot be registered: prefix caching is off", name),
                "prefix");
  }
  BATON_TRY_VOID(check_prefix(name, tokens, limits()));
  PrefixPrefill prefill{std::move(tokens), false, {}};
  bool has_thread = false;
  {
    const std::scoped_lock lock(mutex_);
    if (is_draining_ || is_stopping_)
      return fail(ErrorCode::unavailable, "the server is shutting down and takes no new prefixes");
    BATON_TRY_VOID(prefixes_.begin(name, prefill));
    has_thread = has_thread_;
    ++n_unfinished_;
    inbox_filled_.notify_one();
  }
  if (!has_thread) {
    while (step()) {
    }
  }
  std::unique_lock lock(mutex_);
  auto info = prefixes_.wait(lock, {std::move(name), n_tokens}, prefill, begin);
  inbox_filled_.notify_one();
  return info;
}

Result<void> Engine::Impl::remove_prefix(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  BATON_TRY_VOID(prefixes_.remove(name));
  inbox_filled_.notify_one();
  return {};
}

std::vector<PrefixInfo> Engine::Impl::prefixes() const {
  const std::scoped_lock lock(mutex_);
  return prefixes_.list();
}

void Engine::Impl::begin_drain() {
  const std::scoped_lock lock(mutex_);
  is_draining_ = true;
  prefixes_.cancel_prefills();
  inbox_filled_.notify_one();
}

bool Engine::Impl::is_draining() const {
  const std::scoped_lock lock(mutex_);
  return is_draining_;
}
bool Engine::Impl::is_idle() const {
  const std::scoped_lock lock(mutex_);
  return n_unfinished_ == 0;
}

void Engine::Impl::start() {
  const std::scoped_lock lock(mutex_);
  check(!has_thread_ && !is_stopping_, "Engine::start: it was started or stopped before");
  has_thread_ = true;
  watchdog_.start();
  thread_ = std::thread([this] {
    name_this_thread("engine");
    run();
  });
}

void Engine::Impl::run() {
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (is_stopping_) return;
    }
    if (step()) continue;
    std::unique_lock lock(mutex_);
    inbox_filled_.wait(lock, [this] { return is_stopping_ || !inbox_.is_empty() || prefixes_.has_changes(); });
  }
}

void Engine::Impl::stop() {
  {
    const std::scoped_lock lock(mutex_);
    is_draining_ = is_stopping_ = true;
    inbox_filled_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  watchdog_.stop();
  drain();
  for (const SequenceId id : scheduler_.unfinished()) end(id, FinishReason::abort);
  retire();
  publish();
}

bool Engine::Impl::step() {
  watchdog_.begin_step();
  const bool took = drain();
  expire();
  const bool awaited = !in_flight_.empty() && scheduler_.awaits_commit();
  while (awaited && !in_flight_.empty()) commit_oldest();
  const bool planned = plan_next();
  const std::size_t n_kept = planned ? 1 : 0;
  const bool ran = awaited || in_flight_.size() > n_kept;
  while (in_flight_.size() > n_kept) commit_oldest();
  retire();
  publish();
  watchdog_.end_step();
  return took || planned || ran;
}

/// Ends the sequences whose deadline has passed.
void Engine::Impl::expire() {
  const auto now = Sequence::Clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const SequenceId id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    end(id, FinishReason::deadline);
  }
}

/// Ends a sequence and emits its final event. Does nothing if it has ended already: the first reason counts.
void Engine::Impl::end(SequenceId id, FinishReason reason) {
  const Sequence* sequence = scheduler_.find(id);
  if (sequence == nullptr || sequence->schedule->finished) return;
  scheduler_.finish(id, reason);
  emit(*sequence, {});
}

bool Engine::Impl::drain() {
  Inbox inbox;
  PrefixService::Changes prefixes;
  {
    const std::scoped_lock lock(mutex_);
    std::swap(inbox, inbox_);
    prefixes = prefixes_.take_changes();
  }
  for (const SubmitCommand& command : inbox.submits) take(command);
  for (PrefixPrefill* prefill : prefixes.begun) take(*prefill);
  for (const FinishCommand& command : inbox.finishes) take(command);
  for (const KvCache::Pin& pin : prefixes.unpins) cache_.unpin(pin);
  if (prefixes.has_cancelled) {
    const std::scoped_lock lock(mutex_);
    for (const SequenceId id : prefixes_.cancelled()) scheduler_.finish(id, FinishReason::abort);
  }
  return !inbox.is_empty() || !prefixes.is_empty();
}

SequenceId Engine::Impl::add(std::unique_ptr<Sequence> sequence) {
  const SequenceId id = sequence->task->id;
  next_sequence_ = SequenceId{id.value + 1};
  scheduler_.add(std::move(sequence));
  return id;
}

void Engine::Impl::take(const SubmitCommand& command) {
  LiveRequest& request = requests_[command.id];
  metrics_recorder_.arrived(command.request.n_sequences);
  const SequenceOrigin origin{command.id, next_sequence_, command.submitted};
  for (auto& sequence : make_sequences(command.request, origin, limits(), options_.seed)) {
    const auto deadline = sequence->task->deadline;
    request.sequences.push_back(add(std::move(sequence)));
    if (deadline) deadlines_.insert({*deadline, request.sequences.back()});
    ++request.n_unfinished;
  }
}

void Engine::Impl::take(const FinishCommand& command) {
  const auto at = requests_.find(command.request);
  if (at == requests_.end()) return;
  for (const SequenceId id : at->second.sequences) {
    const Sequence* sequence = scheduler_.find(id);
    if (sequence != nullptr && (!command.index || *command.index == sequence->task->index)) end(id, command.reason);
  }
}

void Engine::Impl::take(PrefixPrefill& prefill) {
  auto sequence = make_prefix_prefill(prefill.tokens, info_.block_len, next_sequence_);
  if (sequence->task->prompt_len == 0) return end_prefix_prefill(prefill, KvCache::Pin{});
  prefixes_.started(add(std::move(sequence)), prefill);
}

/// Plans, builds and submits the next step; false if there is nothing to run.
bool Engine::Impl::plan_next() {
  record(StepRecord::What::plan_begin, scheduler_.next_step());
  StepPlan plan = scheduler_.plan();
  record(StepRecord::What::plan_end, plan.step);
  const auto now = Sequence::Clock::now();
  for (const SequenceId id : plan.admitted) {
    Sequence& sequence = *scheduler_.find(id);
    metrics_recorder_.admitted(sequence, now);
    const auto request = requests_.find(sequence.task->request);
    if (request != requests_.end() && std::exchange(request->second.is_queued, false)) ++n_unqueued_;
  }
  if (plan.is_empty()) return false;
  BuiltStep built = builder_.build(plan, [this](SequenceId id) -> Sequence& { return *scheduler_.find(id); });
  watchdog_.planned(state_of(plan, scheduler_, cache_));
  executor_->forward(std::move(built.input));
  executor_->sample();
  in_flight_.push_back({std::move(plan), std::move(built)});
  return true;
}

/// Waits for the oldest step, applies its results and emits its events.
void Engine::Impl::commit_oldest() {
  const StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  record(StepRecord::What::run_begin, step.plan.step);
  const std::span<const SampleResult> results = executor_->wait();
  scheduler_.took(step.plan, executor_->last_step_seconds());
  record(StepRecord::What::run_end, step.plan.step);
  // A sequence that was finished from outside after this step was planned has already had its last event.
  const auto find_live = [this](SequenceId id) -> const Sequence* {
    const Sequence* sequence = scheduler_.find(id);
    return sequence != nullptr && !sequence->schedule->finished ? sequence : nullptr;
  };
  std::vector<StepOutcome> outcomes = read_results(step.plan, step.built, results, find_live);
  record(StepRecord::What::commit_begin, step.plan.step);
  scheduler_.commit(step.plan, outcomes);
  record(StepRecord::What::commit_end, step.plan.step);

  metrics_recorder_.ran(step.plan, step.built);
  for (const SequenceReads& reads : step.built.reads) {
    if (Sequence* sequence = scheduler_.find(reads.id)) metrics_recorder_.read(*sequence, reads);
  }
  const auto now = Sequence::Clock::now();
  news_.reserve(news_.size() + outcomes.size());
  for (StepOutcome& outcome : outcomes) {
    Sequence& sequence = *scheduler_.find(outcome.id);
    metrics_recorder_.generated(sequence, outcome, now);
    if (!outcome.tokens.empty() || !outcome.prompt_scores.empty() || sequence.schedule->finished)
      emit(sequence, std::move(outcome.tokens), std::move(outcome.prompt_scores));
  }
}

void Engine::Impl::emit(const Sequence& sequence, std::vector<TokenOutput> tokens, std::vector<TokenOutput> prompt_scores) {
  if (sequence.is_prefix_prefill()) return;
  news_.push_back({sequence.task->request, sequence.task->index, std::move(tokens), sequence.schedule->finished,
                   sequence.schedule->stop_token, sequence.stats(), std::move(prompt_scores)});
}

/// Removes finished sequences, and requests without sequences.
void Engine::Impl::retire() {
  const auto now = Sequence::Clock::now();
  for (const auto& sequence : scheduler_.take_finished()) {
    metrics_recorder_.finished(*sequence, now);
    if (sequence->task->deadline) deadlines_.erase({*sequence->task->deadline, sequence->task->id});
    if (PrefixPrefill* prefill = prefixes_.take_ended(sequence->task->id)) {
      end_prefix_prefill(*prefill, sequence->schedule->finished == FinishReason::length
                                       ? pin_beside(cache_, prefill->tokens, info_.max_model_len, options_.max_pinned_blocks)
                                       : fail(ErrorCode::unavailable, "the engine stopped while a prefix was being computed"));
      continue;
    }
    const auto request = requests_.find(sequence->task->request);
    check(request != requests_.end(), "Engine: a sequence without a request");
    ++n_retired_;
    request->second.n_generated = std::max(request->second.n_generated, sequence->report->completion_tokens);
    if (--request->second.n_unfinished > 0) continue;
    metrics_recorder_.request_ended(request->second.n_generated);
    if (request->second.is_queued) ++n_unqueued_;
    requests_.erase(request);
  }
}

/// Pushes the events before it updates the counts, so that a caller who sees an idle engine finds all its events.
void Engine::Impl::publish() {
  metrics_recorder_.update_gauges(scheduler_, cache_);
  events_.push(std::exchange(news_, {}));
  const std::scoped_lock lock(mutex_);
  n_unfinished_ -= std::exchange(n_retired_, 0);
  n_queued_requests_ -= std::exchange(n_unqueued_, 0);
}

/// Updates the gauges first, so that the caller who waits for the prefix finds its blocks counted.
void Engine::Impl::end_prefix_prefill(PrefixPrefill& prefill, Result<KvCache::Pin> pin) {
  metrics_recorder_.update_gauges(scheduler_, cache_);
  const std::scoped_lock lock(mutex_);
  --n_unfinished_;
  prefixes_.end(prefill, std::move(pin));
}

void Engine::Impl::check_invariants() const {
  scheduler_.check_invariants();
  check(executor_->n_in_flight() == in_flight_.size(), "Engine: the executor holds other steps than are in flight");
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, std::unique_ptr<Backend> backend,
                                               std::unique_ptr<Model> model) {
  BATON_TRY(EngineParts parts, make_parts(options, std::move(backend), std::move(model)));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(options, std::move(parts))));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() { impl_->stop(); }

Result<RequestId> Engine::submit(Request request) { return impl_->submit(std::move(request)); }
void Engine::finish(RequestId request, std::int32_t index, FinishReason reason) {
  impl_->post(FinishCommand{request, index, reason});
}
void Engine::cancel(RequestId request) { impl_->post(FinishCommand{request, {}, FinishReason::abort}); }
std::vector<Event> Engine::wait_events(std::chrono::milliseconds timeout) { return impl_->events().wait(timeout); }
Result<PrefixInfo> Engine::register_prefix(std::string name, std::vector<TokenId> tokens) {
  return impl_->register_prefix(std::move(name), std::move(tokens));
}
Result<void> Engine::remove_prefix(const std::string& name) { return impl_->remove_prefix(name); }
std::vector<PrefixInfo> Engine::prefixes() const { return impl_->prefixes(); }
void Engine::start() { impl_->start(); }
void Engine::stop() { impl_->stop(); }
bool Engine::step() { return impl_->step(); }
void Engine::set_relay(bool relay) { impl_->set_relay(relay); }
void Engine::begin_drain() { impl_->begin_drain(); }
bool Engine::is_draining() const { return impl_->is_draining(); }
bool Engine::is_idle() const { return impl_->is_idle(); }
bool Engine::is_stuck() const { return impl_->watchdog().is_stuck(); }
const EngineMetrics& Engine::metrics() const { return impl_->metrics(); }
EngineInfo Engine::info() const { return impl_->info(); }
std::vector<StepRecord> Engine::recent_steps() const { return impl_->watchdog().recent_steps(); }
void Engine::check_invariants() const { impl_->check_invariants(); }
std::vector<BlockId> Engine::free_blocks(int group) const {
  const std::span<const BlockId> blocks = impl_->cache().free_blocks(group);
  return {blocks.begin(), blocks.end()};
}

}  // namespace baton
