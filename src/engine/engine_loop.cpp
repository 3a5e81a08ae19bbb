/// The step loop: what one step takes in, plans, commits and publishes.
#include "engine/engine_loop.h"

#include <chrono>
#include <utility>

#include "core/attempt.h"
#include "core/check.h"
#include "core/log.h"
#include "core/mutex.h"
#include "engine/cache/cache_size.h"
#include "engine/engine_parts.h"

namespace baton {
namespace {

/// How often an idle engine asks for memory that it has used up.
constexpr std::chrono::milliseconds kRetry{50};

PrefixLayout layout_of(const Executor& executor, const EngineInfo& info) {
  PrefixLayout layout{.block_len = info.block_len};
  for (const KvStorage* storage : executor.storages())
    layout.groups.push_back({storage->shape(), info.cache_groups[layout.groups.size()].window});
  if (executor.states() != nullptr) layout.states = executor.states()->shape();
  return layout;
}

/// Blocks in host memory that take as many bytes as a state.
std::int32_t state_loads_of(const EngineInfo& info) {
  if (info.n_tier_states == 0) return 0;
  return static_cast<std::int32_t>((info.state_slot_bytes + info.tier_entry_bytes - 1) / info.tier_entry_bytes);
}

/// A grammar that could not continue.
void log_failure(const Error& error) {
  log::warning("event=grammar_failed code={} message=\"{}\"", to_string(error.code), error.message);
}

}  // namespace

EngineLoop::EngineLoop(const EngineOptions& options, const EngineInfo& info, EngineParts parts, Mailbox& mail)
    : mail_(mail),
      cache_({.block_len = info.block_len,
              .groups = info.cache_groups,
              .max_rows_in_flight = max_rows_in_flight(options),
              .enable_prefix_caching = options.enable_prefix_caching,
              .records_events = options.kv_events,
              .n_tier_slots = info.n_tier_slots,
              .n_tier_states = info.n_tier_states,
              .n_state_slots = info.n_state_slots,
              .n_state_owners = info.max_num_seqs,
              .n_kept_rows = info.n_kept_rows}),
      scheduler_({.by_size = options.by_size,
                  .max_num_seqs = options.max_num_seqs,
                  .max_num_batched_tokens = options.max_num_batched_tokens,
                  .max_prefill_tokens = info.max_prefill_tokens,
                  .paces_prefill = info.paces_prefill,
                  .max_scores = parts.max_scores,
                  .max_list_entries = parts.bounds.max_list_entries,
                  .max_block_entries = parts.bounds.max_block_entries,
                  .state_snapshot_interval = options.state_snapshot_interval,
                  .state_loads = state_loads_of(info),
                  .max_drafts = parts.max_drafts,
                  .drafters_wait_alone = parts.executor->backend().capabilities().is_asynchronous,
                  .uses_step_times = options.uses_step_times,
                  .has_mtp = parts.drafter.has_value(),
                  .drafts_always = options.simulated_acceptance.has_value()},
                 cache_),
      builder_(std::move(parts.builder)),
      drafter_(std::move(parts.drafter)),
      executor_(std::move(parts.executor)),
      transfers_(cache_, layout_of(*executor_, info), *executor_, {info.max_model_len, options.max_pinned_blocks}, mail.mutex,
                 mail.transfers),
      masks_(options.mask_budget),
      is_recurrent_(info.state_slot_bytes > 0),
      watchdog_(std::chrono::milliseconds(options.step_timeout_ms)) {
  if (options.simulated_acceptance) simulated_.emplace(*options.simulated_acceptance, info.n_vocab);
  metrics_recorder_.set_cache_size(cache_);
  metrics_recorder_.set_tier_size(info);
}

/// A step that finds no memory, the reserve included, cannot be taken back: the scheduler's state would be half
/// changed.
void EngineLoop::run(MemoryReserve& reserve) {
  const MemoryReserve::User user(reserve);
  if (!attempt([&] { run_steps(reserve); }))
    log::fatal("event=engine_out_of_memory effect=\"the program ends: a step of the engine found no memory\"");
}

void EngineLoop::run_steps(MemoryReserve& reserve) {
  bool was_short = false;
  while (true) {
    {
      const MutexLock lock(mail_.mutex);
      if (mail_.is_stopping) return;
    }
    const bool has_run = step();
    if (!reserve.is_held()) {
      if (!std::exchange(was_short, true))
        log::warning("event=memory_reserve_used effect=\"new requests are refused until there is memory\"");
      reserve.restore();
    } else if (std::exchange(was_short, false)) {
      log::info("event=memory_reserve_restored");
    }
    if (has_run) continue;
    const auto end = Sequence::Clock::now() + kRetry;
    const MutexLock lock(mail_.mutex);
    while (!mail_.has_work()) {
      if (!was_short)
        mail_.filled.wait(mail_.mutex);
      else if (!mail_.filled.wait_until(mail_.mutex, end))
        break;  // nothing is submitted before the reserve is there
    }
  }
}

bool EngineLoop::step() {
  watchdog_.begin_step();
  bool has_worked = drain();
  end_due();
  has_worked |= move_blocks();
  if (!in_flight_.empty() && (in_flight_.back().n_draft_passes || scheduler_.awaits_commit())) has_worked |= commit_until(0);
  StepPlan next = plan();
  const bool has_rows = !next.is_empty();
  has_worked |= has_rows || next.needs_another();
  if (has_rows) {
    BuiltStep built = build(next);
    forward(std::move(next), std::move(built));
    sample();
  }
  has_worked |= commit_until(has_rows && plans_ahead() ? 1 : 0);
  publish();
  watchdog_.end_step();
  return has_worked;
}

void EngineLoop::end_all() {
  drain();
  for (const SequenceId id : scheduler_.unfinished()) end(id, FinishReason::abort);
  transfers_.end_all(scheduler_.next_step());
  publish();
}

/// Copies blocks out of the cache and into it, as callers asked. The steps in flight come first, see BlockTransfers.
bool EngineLoop::move_blocks() {
  {
    const MutexLock lock(mail_.mutex);
    if (!mail_.transfers.has_work()) return false;
  }
  commit_until(0);
  transfers_.advance(scheduler_.next_step());
  return true;
}

/// Ends the sequences whose deadline has passed, and all if a rank has been lost.
void EngineLoop::end_due() {
  const auto now = Sequence::Clock::now();
  while (const auto id = requests_.take_expired(now)) end(*id, FinishReason::deadline);
  end_all_if_faulty();
}

/// Ends a sequence and emits its final event. Does nothing if it has ended already: the first reason counts.
void EngineLoop::end(SequenceId id, FinishReason reason, std::shared_ptr<const Error> error) {
  const Sequence* sequence = scheduler_.find(id);
  if (sequence == nullptr || sequence->schedule->finished) return;
  scheduler_.finish(id, reason);
  emit(*sequence, {}, {}, std::move(error));
}

/// Ends the sequences whose grammars cannot continue, with the tokens they have.
void EngineLoop::end_failed() {
  for (StepMasks::Failure& failure : masks_.take_failures()) {
    log_failure(failure.error);
    end(failure.id, FinishReason::error, std::make_shared<const Error>(std::move(failure.error)));
  }
}

/// Ends all sequences if a rank has been lost: what the other ranks compute without it is worthless.
void EngineLoop::end_all_if_faulty() {
  const std::optional<std::string> sentence = executor_->fault();
  if (!sentence) return;
  const auto error = std::make_shared<const Error>(Error{ErrorCode::unavailable, *sentence});
  for (const SequenceId id : scheduler_.unfinished()) end(id, FinishReason::error, error);
}

bool EngineLoop::drain() {
  Inbox inbox;
  PinTable::Changes pins;
  {
    const MutexLock lock(mail_.mutex);
    std::swap(inbox, mail_.inbox);
    pins = mail_.pins.take_changes(mail_.next_sequence, /*cancels_all=*/mail_.is_draining && !mail_.is_stopping);
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
void EngineLoop::draw_tree() {
  std::vector<const BlockTable*> tables;
  for (const SequenceId id : scheduler_.unfinished()) {
    const Sequence& sequence = *scheduler_.find(id);
    if (!sequence.is_prefix_prefill() && sequence.schedule->table.node != nullptr) tables.push_back(&sequence.schedule->table);
  }
  std::vector<KvCache::Pin> pins;
  {
    const MutexLock lock(mail_.mutex);
    for (const auto& [id, pinned] : mail_.pins.pins()) pins.push_back(pinned.pin);
  }
  auto drawn = std::make_shared<const TreeView>(view_tree(tables, pins, cache_));
  const MutexLock lock(mail_.mutex);
  mail_.tree = std::move(drawn);
}

void EngineLoop::take(SubmitCommand& command) {
  metrics_recorder_.arrived(static_cast<std::int32_t>(command.sequences.size()));
  for (auto& sequence : command.sequences) {
    requests_.add(*sequence->task);
    scheduler_.add(std::move(sequence));
  }
}

void EngineLoop::take(const FinishCommand& command) {
  for (const SequenceId id : requests_.sequences_of(command.request)) {
    const Sequence* sequence = scheduler_.find(id);
    if (sequence != nullptr && (!command.index || *command.index == sequence->task->index)) end(id, command.reason);
  }
}

void EngineLoop::take(PinPrefill& prefill) {
  auto sequence = make_prefix_prefill(prefill, cache_.block_len());
  if (sequence->task->prompt_len == 0) return end_prefix_prefill(prefill, KvCache::Pin{});
  scheduler_.add(std::move(sequence));
}

StepPlan EngineLoop::plan() {
  record(StepRecord::What::plan_begin, scheduler_.next_step());
  StepPlan plan = scheduler_.plan();
  record(StepRecord::What::plan_end, plan.step);
  executor_->copy(cache_.take_copies());
  const auto now = Sequence::Clock::now();
  for (const SequenceId id : plan.admitted) {
    Sequence& sequence = *scheduler_.find(id);
    metrics_recorder_.admitted(sequence, now);
    if (sequence.task->request.is_valid() && sequence.schedule->n_admissions == 1)
      news_.unqueued.push_back(mail_.line_of(*sequence.task));
  }
  if (plan.n_cached_prefixes > 0) retire();
  return plan;
}

/// A device that is not asynchronous gains nothing from a plan made ahead. A tenant's request would wait for one step
/// more, namely for the one that was planned before it came.
bool EngineLoop::plans_ahead() const { return executor_->backend().capabilities().is_asynchronous || !scheduler_.is_shared(); }

void EngineLoop::forward(StepPlan plan, BuiltStep built) {
  const std::optional<std::int32_t> n_draft_passes = scheduler_.plan_draft_passes(plan);
  watchdog_.planned(state_of(plan, scheduler_, cache_, watchdog_.take_spare()));
  executor_->forward(std::move(built.input));
  in_flight_.push_back({.plan = std::move(plan), .built = std::move(built), .n_draft_passes = n_draft_passes});
}

/// Enqueues the sampling of the newest step. If it needs masks, these depend on the tokens of the step before, so the
/// host waits for that step; the device continues with the newest step's forward meanwhile. Sequences whose masks are
/// not ready in time have the same row in the next step.
void EngineLoop::sample() {
  StepInFlight& step = in_flight_.back();
  if (step.built.masked.empty()) return executor_->sample();
  if (in_flight_.size() > 1) read_oldest();
  const StepMasks::Built masks = masks_.build(step.built, executor_->masks());
  check(masks.late.empty() || !is_recurrent_, "EngineLoop: a row of a recurrent layer would be computed twice");
  for (const std::size_t late : masks.late) scheduler_.drop_sample(step.plan.sequences[late]);
  metrics_recorder_.built(masks.n_rows, masks.late.size(), masks.seconds);
  executor_->sample_masked(masks.n_rows);
}

/// Waits for the oldest step and reads its results, which commit_oldest applies.
void EngineLoop::read_oldest() {
  StepInFlight& step = in_flight_.front();
  record(StepRecord::What::run_begin, step.plan.step);
  std::span<const SampleResult> results = executor_->wait();
  end_all_if_faulty();
  scheduler_.took(step.plan, executor_->last_step_seconds());
  record(StepRecord::What::run_end, step.plan.step);
  // A sequence that was finished from outside after this step was planned has already had its last event.
  for (std::size_t i = 0; i < step.plan.sequences.size(); ++i)
    step.built.sequences[i].sequence = scheduler_.find(step.plan.sequences[i]);
  if (simulated_) results = simulated_->apply(step.built, results);
  read_results(step.plan, step.built, results, outcomes_);
  if (!step.built.masked.empty()) masks_.take(step.built, outcomes_);
  step.built.input = executor_->take_input();
  step.is_read = true;
  if (step.n_draft_passes) draft(step);
}

/// Has the model draft after a step that was read: its rows still have their blocks, which the commit may free.
void EngineLoop::draft(StepInFlight& step) {
  const auto begin = Sequence::Clock::now();
  step.draft_runs = scheduler_.draft_runs(step.plan, outcomes_, *step.n_draft_passes);
  executor_->copy(cache_.take_copies());  // what was evicted for the runs goes to the host tier before they write
  const std::vector<DraftPass> passes = drafter_->build(step.plan, step.built, outcomes_, step.draft_runs);
  step.drafts = read_drafts(passes, executor_->draft(passes), step.draft_runs.size());
  step.draft_seconds = std::chrono::duration<double>(Sequence::Clock::now() - begin).count();
  metrics_recorder_.drafted(passes.size());
}

/// Applies the results of the oldest step, which it waits for if need be, and emits its events.
void EngineLoop::commit_oldest() {
  if (!in_flight_.front().is_read) read_oldest();
  StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  record(StepRecord::What::commit_begin, step.plan.step);
  scheduler_.commit(step.plan, outcomes_);
  scheduler_.offer(step.plan, step.draft_runs, std::move(step.drafts), step.draft_seconds);
  record(StepRecord::What::commit_end, step.plan.step);

  metrics_recorder_.ran(step.plan, step.built);
  report(step.built);
  retire();
  builder_.reuse(std::move(step.built));
  scheduler_.reuse(std::move(step.plan));
}

/// Commits the oldest steps until so many are in flight. Whether there were any.
bool EngineLoop::commit_until(std::size_t n_in_flight) {
  const bool has_any = in_flight_.size() > n_in_flight;
  while (in_flight_.size() > n_in_flight) commit_oldest();
  return has_any;
}

/// Records what the committed step read and generated, and emits the events of its outcomes.
void EngineLoop::report(const BuiltStep& built) {
  const auto now = Sequence::Clock::now();
  news_.events.reserve(news_.events.size() + outcomes_.size());
  auto outcome = outcomes_.begin();
  for (std::size_t i = 0; i < built.sequences.size(); ++i) {
    if (i + kPrefetchDistance < built.sequences.size()) {
      const Sequence* const coming = built.sequences[i + kPrefetchDistance].sequence;
      if (coming != nullptr) {
        coming->prefetch();
        coming->prefetch_report();
      }
    }
    const auto& [sequence, samples, reads] = built.sequences[i];
    if (sequence == nullptr) continue;
    metrics_recorder_.read(*sequence, reads);
    if (outcome == outcomes_.end() || outcome->id != sequence->task->id) continue;
    metrics_recorder_.generated(*sequence, *outcome, now);
    if (outcome->error != nullptr) log_failure(*outcome->error);
    if (!outcome->tokens.empty() || !outcome->prompt_scores.empty() || sequence->schedule->finished)
      emit(*sequence, std::move(outcome->tokens), std::move(outcome->prompt_scores), std::move(outcome->error));
    ++outcome;
  }
  metrics_recorder_.count_generated();
}

void EngineLoop::emit(const Sequence& sequence, ShortVector<TokenOutput> tokens, std::vector<TokenOutput> prompt_scores,
                      std::shared_ptr<const Error> error) {
  if (sequence.is_prefix_prefill()) return;
  Event& event = news_.events.emplace_back();
  event.request = sequence.task->request;
  event.index = sequence.task->index;
  event.tokens = std::move(tokens);
  event.finished = sequence.schedule->finished;
  if (event.finished) event.stop_token = sequence.schedule->stop_token;
  event.stats = sequence.stats();
  event.prompt_scores = std::move(prompt_scores);
  event.error = std::move(error);
}

PinPrefill& EngineLoop::prefill_of(const Sequence& sequence) {
  const MutexLock lock(mail_.mutex);
  return mail_.pins.prefill_of(sequence.task->id);
}

/// Removes finished sequences, and requests without sequences. Pins prefixes, right after the commit or plan in which they end:
/// whatever allocates next could evict their blocks.
void EngineLoop::retire() {
  const auto now = Sequence::Clock::now();
  for (const auto& sequence : scheduler_.take_finished()) {
    metrics_recorder_.finished(*sequence, now);
    if (sequence->is_prefix_prefill()) {
      PinPrefill& prefill = prefill_of(*sequence);
      const Pinned& row = prefill.row.mapped();
      const PinLimits& limits = transfers_.limits();
      end_prefix_prefill(prefill,
                         sequence->schedule->finished == FinishReason::length
                             ? pin_beside(cache_, row.scope, row.tokens, limits.max_model_len, limits.max_pinned_blocks)
                             : fail(ErrorCode::unavailable, "the engine stopped while a prefix was being computed"));
      continue;
    }
    ++news_.n_ended;
    if (sequence->schedule->n_admissions == 0) news_.unqueued.push_back(mail_.line_of(*sequence->task));
    if (const auto n_most = requests_.remove(*sequence->task, sequence->report->completion_tokens))
      metrics_recorder_.request_ended(*n_most);
  }
}

/// Pushes the events before it updates the counts, so that a caller that sees an idle engine finds all its events.
void EngineLoop::publish() {
  end_failed();
  retire();
  metrics_recorder_.update_gauges(scheduler_, cache_);
  mail_.events.push(std::exchange(news_.events, {}));
  mail_.kv_events.push(cache_.take_events());
  const MutexLock lock(mail_.mutex);
  mail_.n_unfinished -= std::exchange(news_.n_ended, 0);
  for (const QueueLimit::Line& line : news_.unqueued) mail_.queue.remove(line, 1);
  news_.unqueued.clear();
}

/// Updates the gauges first, so that the caller that waits for the prefix finds its blocks counted.
void EngineLoop::end_prefix_prefill(PinPrefill& prefill, Result<KvCache::Pin> pin) {
  metrics_recorder_.update_gauges(scheduler_, cache_);
  const MutexLock lock(mail_.mutex);
  --mail_.n_unfinished;
  mail_.pins.end(prefill, std::move(pin));
}

void EngineLoop::check_invariants() const {
  scheduler_.check_invariants(transfers_.tables());
  check(executor_->n_in_flight() == in_flight_.size(), "Engine: the executor holds other steps than are in flight");
}

}  // namespace baton
