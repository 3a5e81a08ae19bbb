/// When each counter is updated.
#include "engine/metrics_recorder.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace baton {
namespace {

double seconds_between(MetricsRecorder::Time from, MetricsRecorder::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

EngineState state_of(const StepPlan& plan, const Scheduler& scheduler, const KvCache& cache, EngineState memory) {
  memory.rows.clear();
  EngineState state{plan.step,      std::move(memory.rows), scheduler.n_running(), scheduler.n_waiting(),
                    cache.n_used(), cache.n_blocks()};
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const PlannedSequence& planned = plan.sequences[i];
    state.rows.push_back({scheduler.members()[i]->task->request, planned.id, planned.first_position, planned.n_rows});
  }
  return state;
}

void MetricsRecorder::admitted(Sequence& sequence, Time now) {
  if (sequence.schedule->n_admissions != 1) return;
  sequence.report.write().first_step = now;
  if (sequence.is_prefix_prefill()) return;
  sequence.report.write().queue_ms = 1e3 * seconds_between(sequence.task->submitted, now);
  metrics_.request_queue_time_seconds.observe(seconds_between(sequence.task->submitted, now));
  if (sequence.task->constraint != nullptr) metrics_.grammar_sequences.add(1);
  metrics_.prompt_tokens.add(sequence.task->prompt_len);
  metrics_.prompt_tokens_cached.add(sequence.schedule->n_cached);
  metrics_.prompt_tokens_replayed.add(sequence.schedule->n_replayed);
  metrics_.prefix_cache_queries.add(sequence.task->prompt_len);
  const std::int32_t n_found = sequence.schedule->n_cached - sequence.schedule->n_loaded;
  metrics_.prefix_cache_hits.add(n_found);
  if (metrics_.host_tier_blocks_total.value() > 0) {
    metrics_.external_prefix_cache_queries.add(sequence.task->prompt_len - n_found);
    metrics_.external_prefix_cache_hits.add(sequence.schedule->n_loaded);
  }
  metrics_.request_prefill_kv_computed_tokens.observe(sequence.task->prompt_len - sequence.schedule->n_cached);
}

void MetricsRecorder::ran(const StepPlan& plan, const BuiltStep& built) {
  metrics_.steps.add(1);
  metrics_.num_preemptions.add(plan.n_preempted);
  metrics_.prompt_tokens_recomputed.add(plan.n_recomputed_tokens);
  metrics_.iteration_tokens_total.observe(plan.n_rows);
  metrics_.kv_bytes_requested.add(built.kv_bytes_requested);
  metrics_.kv_bytes_saved.add(std::max<std::int64_t>(built.kv_bytes_saved, 0));  // a counter never falls
  metrics_.relay_groups.set(static_cast<std::int64_t>(built.nodes.size()));
  for (const RelayNode& node : built.nodes) {
    metrics_.relay_group_size.observe(node.n_sequences);
    metrics_.relay_prefix_tokens.observe(node.kv_end - node.kv_begin);
  }
}

void MetricsRecorder::read(Sequence& sequence, const SequenceReads& reads) {
  SequenceReport& report = sequence.report.write();
  report.kv_bytes_requested += reads.kv_bytes_requested;
  report.kv_bytes_saved += reads.kv_bytes_saved;
  report.relayed_tokens += reads.relayed_tokens;
  report.largest_group = std::max(report.largest_group, reads.largest_group);
}

void MetricsRecorder::verified(const StepOutcome& outcome) {
  const auto source = static_cast<std::size_t>(outcome.draft_source);
  metrics_.spec_decode_num_drafts.add(1);
  metrics_.spec_decode_num_draft_tokens.add(outcome.n_drafts);
  metrics_.spec_decode_num_accepted_tokens.add(outcome.n_accepted);
  metrics_.draft_tokens_by_source[source].add(outcome.n_drafts);
  metrics_.accepted_tokens_by_source[source].add(outcome.n_accepted);
  for (std::int32_t i = 0; i < outcome.n_accepted; ++i)
    metrics_.spec_decode_num_accepted_tokens_per_pos[static_cast<std::size_t>(i)].add(1);
}

void MetricsRecorder::generated(Sequence& sequence, const StepOutcome& outcome, Time now) {
  if (outcome.n_drafts > 0) verified(outcome);
  const auto n_tokens = static_cast<std::int32_t>(outcome.tokens.size()) + (outcome.stop_token ? 1 : 0);
  if (n_tokens == 0) return;
  if (sequence.report->completion_tokens == 0) {
    sequence.report.write().prefill_ms = 1e3 * seconds_between(sequence.report->first_step, now);
    metrics_.time_to_first_token_seconds.observe(seconds_between(sequence.task->submitted, now));
  } else {
    const double gap_s = seconds_between(sequence.report->last_token, now);
    if (gap_s != gap_s_) count_gaps();
    gap_s_ = gap_s;
    ++n_gaps_;
  }
  sequence.report.write().last_token = now;
  sequence.report.write().completion_tokens += n_tokens;
  n_generated_ += n_tokens;
}

void MetricsRecorder::count_gaps() {
  if (n_gaps_ > 0) metrics_.inter_token_latency_seconds.observe(gap_s_, std::exchange(n_gaps_, 0));
}

void MetricsRecorder::count_generated() {
  count_gaps();
  if (n_generated_ > 0) metrics_.generation_tokens.add(std::exchange(n_generated_, 0));
}

void MetricsRecorder::finished(const Sequence& sequence, Time now) {
  if (sequence.is_prefix_prefill()) return;
  switch (sequence.schedule->finished.value_or(FinishReason::error)) {
    case FinishReason::stop: metrics_.finished_stop.add(1); break;
    case FinishReason::length: metrics_.finished_length.add(1); break;
    case FinishReason::deadline: metrics_.finished_deadline.add(1); break;
    case FinishReason::abort: metrics_.finished_abort.add(1); break;
    case FinishReason::error: metrics_.finished_error.add(1); break;
  }
  metrics_.e2e_request_latency_seconds.observe(seconds_between(sequence.task->submitted, now));
  metrics_.request_prompt_tokens.observe(sequence.task->prompt_len);
  metrics_.request_generation_tokens.observe(sequence.report->completion_tokens);
  metrics_.request_params_max_tokens.observe(sequence.task->max_len - sequence.task->prompt_len);
  if (sequence.schedule->n_admissions == 0) return;
  metrics_.request_inference_time_seconds.observe(seconds_between(sequence.report->first_step, now));
  if (sequence.report->completion_tokens == 0) return;
  metrics_.request_prefill_time_seconds.observe(sequence.report->prefill_ms / 1e3);
  const double decode_s =
      seconds_between(sequence.report->first_step, sequence.report->last_token) - sequence.report->prefill_ms / 1e3;
  metrics_.request_decode_time_seconds.observe(decode_s);
  if (sequence.report->completion_tokens > 1)
    metrics_.request_time_per_output_token_seconds.observe(decode_s / (sequence.report->completion_tokens - 1));
}

void MetricsRecorder::update_gauges(const Scheduler& scheduler, const KvCache& cache) {
  metrics_.num_requests_running.set(scheduler.n_running());
  metrics_.num_requests_waiting.set(scheduler.n_waiting());
  metrics_.num_requests_deferred.set(std::min(scheduler.n_deferred(), scheduler.n_waiting()));
  metrics_.kv_blocks_used.set(cache.n_used());
  metrics_.kv_blocks_pinned.set(cache.n_pinned());
  if (const StateSlots* const states = cache.states()) {
    metrics_.state_slots_total.set(states->n_slots());
    metrics_.state_snapshots.set(states->n_snapshots());
    metrics_.state_snapshots_pinned.set(states->n_pinned());
    metrics_.state_snapshots_evicted.set(states->n_evicted());
  }
  if (const HostTier* const tier = cache.tier()) {
    const StateTier* const states = cache.state_tier();
    metrics_.host_tier_blocks.set(tier->n_entries());
    metrics_.host_tier_states.set(states != nullptr ? states->n_entries() : 0);
    metrics_.kv_offload_saved_bytes.set(tier->n_saved() * tier_entry_bytes_ +
                                        (states != nullptr ? states->n_saved() * state_bytes_ : 0));
    metrics_.kv_offload_loaded_bytes.set(tier->n_loaded() * tier_entry_bytes_ +
                                         (states != nullptr ? states->n_loaded() * state_bytes_ : 0));
  }
}

}  // namespace baton
