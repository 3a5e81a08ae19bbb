/// The step loop: what one step takes in, plans, commits and publishes.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "engine/cache/cache_size.h"
#include "engine/engine.h"

namespace baton {
namespace {

/// A grammar that could not go on.
void log_failure(const Error& error) {
  log::warning("event=grammar_failed code={} message=\"{}\"", to_string(error.code), error.message);
}

}  // namespace

bool Engine::step() {
  watchdog_.begin_step();
  const bool took = drain();
  expire();
  end_all_if_faulty();
  const bool moved = move_blocks();
  const bool awaited = !in_flight_.empty() && scheduler_.awaits_commit();
  while (awaited && !in_flight_.empty()) commit_oldest();
  const bool planned = plan_next();
  // A device that is not asynchronous gains nothing from a plan made ahead. A tenant's request would wait for one step
  // more, namely for the one that was planned before it came.
  const bool is_ahead = executor_->backend().capabilities().is_asynchronous || !scheduler_.is_shared();
  const std::size_t n_kept = planned && is_ahead ? 1 : 0;
  const bool ran = awaited || in_flight_.size() > n_kept;
  while (in_flight_.size() > n_kept) commit_oldest();
  end_failed();
  retire();
  publish();
  watchdog_.end_step();
  return took || moved || planned || ran || needs_plan_;
}

/// Copies blocks out of the cache and into it, as callers asked. The steps in flight come first, see BlockTransfers.
bool Engine::move_blocks() {
  {
    const MutexLock lock(mutex_);
    if (!transfer_queue_.has_work()) return false;
  }
  while (!in_flight_.empty()) commit_oldest();
  transfers_.advance(scheduler_.next_step());
  return true;
}

/// Ends the sequences whose deadline has passed.
void Engine::expire() {
  const auto now = Sequence::Clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const SequenceId id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    end(id, FinishReason::deadline);
  }
}

/// Ends a sequence and emits its final event. Does nothing if it has ended already: the first reason counts.
void Engine::end(SequenceId id, FinishReason reason, std::shared_ptr<const Error> error) {
  const Sequence* sequence = scheduler_.find(id);
  if (sequence == nullptr || sequence->schedule->finished) return;
  scheduler_.finish(id, reason);
  emit(*sequence, {}, {}, std::move(error));
}

/// Ends the sequences whose grammars cannot go on, with the tokens they have.
void Engine::end_failed() {
  for (StepMasks::Failure& failure : masks_.take_failures()) {
    log_failure(failure.error);
    end(failure.id, FinishReason::error, std::make_shared<const Error>(std::move(failure.error)));
  }
}

/// Ends all sequences if a rank has been lost: what the other ranks compute without it is worthless.
void Engine::end_all_if_faulty() {
  const std::optional<std::string> sentence = executor_->fault();
  if (!sentence) return;
  const auto error = std::make_shared<const Error>(Error{ErrorCode::unavailable, *sentence});
  for (const SequenceId id : scheduler_.unfinished()) end(id, FinishReason::error, error);
}

bool Engine::drain() {
  Inbox inbox;
  PinTable::Changes pins;
  {
    const MutexLock lock(mutex_);
    std::swap(inbox, inbox_);
    pins = pins_.take_changes(next_sequence_, /*cancels_all=*/is_draining_ && !is_stopping_);
  }
  for (SubmitCommand& command : inbox.submits) take(command);
  for (PinPrefill* prefill : pins.begun) take(*prefill);
  for (const FinishCommand& command : inbox.finishes) take(command);
  for (const auto& [id, pinned] : pins.unpins) cache_.unpin(pinned.pin);
  for (const SequenceId id : pins.cancelled) end(id, FinishReason::abort);
  if (inbox.wants_tree) draw_tree();
  return !inbox.is_empty() || !pins.is_empty();
}

/// Makes the picture that Engine::tree was asked for.
void Engine::draw_tree() {
  std::vector<const BlockTable*> tables;
  for (const auto& [id, request] : requests_) {
    for (const SequenceId member : request.sequences) {
      const Sequence* sequence = scheduler_.find(member);
      if (sequence != nullptr && sequence->schedule->table.node != nullptr) tables.push_back(&sequence->schedule->table);
    }
  }
  std::vector<KvCache::Pin> pins;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, pinned] : pins_.pins()) pins.push_back(pinned.pin);
  }
  auto drawn = std::make_shared<const TreeView>(view_tree(tables, pins, cache_));
  const MutexLock lock(mutex_);
  tree_ = std::move(drawn);
}

SequenceId Engine::add(std::unique_ptr<Sequence> sequence) {
  const SequenceId id = sequence->task->id;
  scheduler_.add(std::move(sequence));
  return id;
}

void Engine::take(SubmitCommand& command) {
  LiveRequest& request = requests_[command.id];
  metrics_recorder_.arrived(static_cast<std::int32_t>(command.sequences.size()));
  for (auto& sequence : command.sequences) {
    const auto deadline = sequence->task->deadline;
    request.sequences.push_back(add(std::move(sequence)));
    if (deadline) deadlines_.insert({*deadline, request.sequences.back()});
    ++request.n_unfinished;
  }
}

void Engine::take(const FinishCommand& command) {
  const auto at = requests_.find(command.request);
  if (at == requests_.end()) return;
  for (const SequenceId id : at->second.sequences) {
    const Sequence* sequence = scheduler_.find(id);
    if (sequence != nullptr && (!command.index || *command.index == sequence->task->index)) end(id, command.reason);
  }
}

void Engine::take(PinPrefill& prefill) {
  auto sequence = make_prefix_prefill(prefill, info_.block_len);
  if (sequence->task->prompt_len == 0) return end_prefix_prefill(prefill, KvCache::Pin{});
  add(std::move(sequence));
}

/// Plans, builds and submits the next step; false if there is nothing to run. The next plan may then have something, see
/// StepPlan::needs_another.
bool Engine::plan_next() {
  record(StepRecord::What::plan_begin, scheduler_.next_step());
  StepPlan plan = scheduler_.plan();
  record(StepRecord::What::plan_end, plan.step);
  executor_->copy(cache_.take_copies());
  needs_plan_ = plan.needs_another();
  const auto now = Sequence::Clock::now();
  for (const SequenceId id : plan.admitted) {
    Sequence& sequence = *scheduler_.find(id);
    metrics_recorder_.admitted(sequence, now);
    if (sequence.task->request.is_valid() && sequence.schedule->n_admissions == 1) unqueued_.push_back(line_of(*sequence.task));
  }
  if (plan.is_empty()) return false;
  BuiltStep built = builder_.build(plan, scheduler_.members());
  state_ = watchdog_.planned(state_of(plan, scheduler_, cache_, std::move(state_)));
  executor_->forward(std::move(built.input));
  in_flight_.push_back({std::move(plan), std::move(built)});
  sample_last();
  return true;
}

/// Enqueues the sampling of the newest step. If it needs masks, these depend on the tokens of the step before, so the host
/// waits for that step; the device goes on with the newest step's forward meanwhile. Sequences whose masks are not ready in
/// time have the same row in the next step.
void Engine::sample_last() {
  StepInFlight& step = in_flight_.back();
  if (step.built.masked.empty()) return executor_->sample();
  if (in_flight_.size() > 1) read_oldest();
  const StepMasks::Built masks = masks_.build(step.built, scheduler_.members(), executor_->masks());
  for (const std::size_t late : masks.late) scheduler_.drop_sample(step.plan.sequences[late]);
  metrics_recorder_.built(masks.n_rows, masks.late.size(), masks.seconds);
  executor_->sample_masked(masks.n_rows);
}

/// Waits for the oldest step and reads its results, which commit_oldest applies.
void Engine::read_oldest() {
  StepInFlight& step = in_flight_.front();
  record(StepRecord::What::run_begin, step.plan.step);
  const std::span<const SampleResult> results = executor_->wait();
  end_all_if_faulty();
  scheduler_.took(step.plan, executor_->last_step_seconds());
  record(StepRecord::What::run_end, step.plan.step);
  committing_.clear();
  for (const PlannedSequence& planned : step.plan.sequences) committing_.push_back(scheduler_.find(planned));
  // A sequence that was finished from outside after this step was planned has already had its last event.
  read_results(step.plan, step.built, results, committing_, outcomes_);
  if (!step.built.masked.empty()) masks_.take(committing_, outcomes_);
  step.built.input = executor_->take_input();
  step.is_read = true;
}

/// Applies the results of the oldest step, which it waits for if need be, and emits its events.
void Engine::commit_oldest() {
  if (!in_flight_.front().is_read) read_oldest();
  StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  record(StepRecord::What::commit_begin, step.plan.step);
  scheduler_.commit(step.plan, outcomes_);
  record(StepRecord::What::commit_end, step.plan.step);

  metrics_recorder_.ran(step.plan, step.built);
  tell_of(step.built);
  builder_.reuse(std::move(step.built));
  scheduler_.reuse(std::move(step.plan));
}

/// Records what the committed step read and generated, and emits the events of its outcomes.
void Engine::tell_of(const BuiltStep& built) {
  const auto now = Sequence::Clock::now();
  news_.reserve(news_.size() + outcomes_.size());
  auto outcome = outcomes_.begin();
  for (std::size_t i = 0; i < committing_.size(); ++i) {
    if (i + kPrefetchDistance < committing_.size() && committing_[i + kPrefetchDistance] != nullptr) {
      committing_[i + kPrefetchDistance]->prefetch();
      committing_[i + kPrefetchDistance]->prefetch_report();
    }
    Sequence* sequence = committing_[i];
    if (sequence == nullptr) continue;
    metrics_recorder_.read(*sequence, built.reads[i]);
    if (outcome == outcomes_.end() || outcome->id != sequence->task->id) continue;
    metrics_recorder_.generated(*sequence, *outcome, now);
    if (outcome->error != nullptr) log_failure(*outcome->error);
    if (!outcome->tokens.empty() || !outcome->prompt_scores.empty() || sequence->schedule->finished)
      emit(*sequence, std::move(outcome->tokens), std::move(outcome->prompt_scores), std::move(outcome->error));
    ++outcome;
  }
  metrics_recorder_.count_generated();
}

void Engine::emit(const Sequence& sequence, ShortVector<TokenOutput> tokens, std::vector<TokenOutput> prompt_scores,
                  std::shared_ptr<const Error> error) {
  if (sequence.is_prefix_prefill()) return;
  Event& event = news_.emplace_back();
  event.request = sequence.task->request;
  event.index = sequence.task->index;
  event.tokens = std::move(tokens);
  event.finished = sequence.schedule->finished;
  if (event.finished) event.stop_token = sequence.schedule->stop_token;
  event.stats = sequence.stats();
  event.prompt_scores = std::move(prompt_scores);
  event.error = std::move(error);
}

PinPrefill& Engine::prefill_of(const Sequence& sequence) {
  const MutexLock lock(mutex_);
  return pins_.prefill_of(sequence.task->id);
}

/// Removes finished sequences, and requests without sequences.
void Engine::retire() {
  const auto now = Sequence::Clock::now();
  for (const auto& sequence : scheduler_.take_finished()) {
    metrics_recorder_.finished(*sequence, now);
    if (sequence->task->deadline) deadlines_.erase({*sequence->task->deadline, sequence->task->id});
    if (sequence->is_prefix_prefill()) {
      PinPrefill& prefill = prefill_of(*sequence);
      end_prefix_prefill(
          prefill, sequence->schedule->finished == FinishReason::length
                       ? pin_beside(cache_, prefill.scope, prefill.tokens, info_.max_model_len, options_.max_pinned_blocks)
                       : fail(ErrorCode::unavailable, "the engine stopped while a prefix was being computed"));
      continue;
    }
    const auto request = requests_.find(sequence->task->request);
    check(request != requests_.end(), "Engine: a sequence without a request");
    ++n_retired_;
    if (sequence->schedule->n_admissions == 0) unqueued_.push_back(line_of(*sequence->task));
    request->second.n_generated = std::max(request->second.n_generated, sequence->report->completion_tokens);
    if (--request->second.n_unfinished > 0) continue;
    metrics_recorder_.request_ended(request->second.n_generated);
    requests_.erase(request);
  }
}

/// Pushes the events before it updates the counts, so that a caller who sees an idle engine finds all its events.
void Engine::publish() {
  metrics_recorder_.update_gauges(scheduler_, cache_);
  events_.push(std::exchange(news_, {}));
  kv_events_.push(cache_.take_events());
  const MutexLock lock(mutex_);
  n_unfinished_ -= std::exchange(n_retired_, 0);
  for (const QueueLimit::Line& line : unqueued_) queue_.remove(line, 1);
  unqueued_.clear();
}

/// Updates the gauges first, so that the caller who waits for the prefix finds its blocks counted.
void Engine::end_prefix_prefill(PinPrefill& prefill, Result<KvCache::Pin> pin) {
  metrics_recorder_.update_gauges(scheduler_, cache_);
  const MutexLock lock(mutex_);
  --n_unfinished_;
  pins_.end(prefill, std::move(pin));
}

void Engine::check_invariants() const {
  scheduler_.check_invariants(transfers_.tables());
  check(executor_->n_in_flight() == in_flight_.size(), "Engine: the executor holds other steps than are in flight");
}

}  // namespace baton
