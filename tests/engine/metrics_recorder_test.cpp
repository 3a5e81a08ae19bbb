/// MetricsRecorder: each number counted once.
#include "engine/metrics_recorder.h"

#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/sequence_editor.h"

namespace baton {
namespace {

using std::chrono::milliseconds;

std::int64_t n_observed(const Histogram& histogram) {
  const auto counts = histogram.snapshot().counts;
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

Sequence sequence_at(MetricsRecorder::Time submitted) {
  SequenceTask task;
  task.request = RequestId{0};
  task.prompt_len = 20;
  task.max_len = 30;
  task.submitted = submitted;
  Sequence sequence(std::move(task), std::vector<TokenId>(20, 7));
  SequenceEditor::schedule(sequence).n_cached = 16;
  SequenceEditor::schedule(sequence).n_admissions = 1;
  return sequence;
}

TEST(MetricsRecorder, counts_a_prompt_and_its_hits_at_the_first_admission_only) {
  MetricsRecorder accounts;
  const MetricsRecorder::Time start{};
  Sequence sequence = sequence_at(start);
  accounts.admitted(sequence, start + milliseconds(5));
  SequenceEditor::schedule(sequence).n_admissions = 2;
  accounts.admitted(sequence, start + milliseconds(90));
  EXPECT_EQ(accounts.metrics().prompt_tokens.value(), 20);
  EXPECT_EQ(accounts.metrics().prompt_tokens_cached.value(), 16);
  EXPECT_EQ(accounts.metrics().prefix_cache_queries.value(), 20);
  EXPECT_EQ(accounts.metrics().prefix_cache_hits.value(), 16);
  EXPECT_EQ(n_observed(accounts.metrics().request_queue_time_seconds), 1);
  EXPECT_DOUBLE_EQ(sequence.stats().queue_ms, 5);
}

TEST(MetricsRecorder, counts_what_the_host_tier_had_apart_from_what_the_cache_had) {
  MetricsRecorder accounts;
  EngineInfo info;
  info.n_tier_slots = 10;
  info.tier_entry_bytes = 100;
  info.n_tier_states = 3;
  accounts.set_tier_size(info);
  Sequence sequence = sequence_at({});
  SequenceEditor::schedule(sequence).n_loaded = 12;
  accounts.admitted(sequence, {});
  EXPECT_EQ(accounts.metrics().prompt_tokens_cached.value(), 16);
  EXPECT_EQ(accounts.metrics().prefix_cache_hits.value(), 4);
  EXPECT_EQ(accounts.metrics().external_prefix_cache_queries.value(), 16);
  EXPECT_EQ(accounts.metrics().external_prefix_cache_hits.value(), 12);
  EXPECT_EQ(accounts.metrics().host_tier_blocks_total.value(), 10);
  EXPECT_EQ(accounts.metrics().host_tier_states_total.value(), 3);
}

TEST(MetricsRecorder, times_the_first_token_from_submission_and_the_others_from_the_one_before) {
  MetricsRecorder accounts;
  const MetricsRecorder::Time start{};
  Sequence sequence = sequence_at(start);
  accounts.admitted(sequence, start + milliseconds(5));
  const StepOutcome token{SequenceId{0}, {{4, {}, {}}}, {}, {}};
  accounts.generated(sequence, StepOutcome{SequenceId{0}, {}, {}, {}}, start + milliseconds(8));
  accounts.generated(sequence, token, start + milliseconds(10));
  accounts.generated(sequence, token, start + milliseconds(13));
  accounts.generated(sequence, StepOutcome{SequenceId{0}, {}, FinishReason::stop, TokenOutput{2, {}, {}}},
                     start + milliseconds(15));
  EXPECT_EQ(accounts.metrics().generation_tokens.value(), 0) << "all sequences of a step are counted at once";
  accounts.count_generated();
  EXPECT_DOUBLE_EQ(sequence.stats().prefill_ms, 5);
  EXPECT_EQ(sequence.stats().completion_tokens, 3) << "the stop token was generated too";
  EXPECT_EQ(accounts.metrics().generation_tokens.value(), 3);
  EXPECT_DOUBLE_EQ(accounts.metrics().time_to_first_token_seconds.snapshot().sum, 0.010);
  EXPECT_DOUBLE_EQ(accounts.metrics().inter_token_latency_seconds.snapshot().sum, 0.005);
  EXPECT_EQ(n_observed(accounts.metrics().inter_token_latency_seconds), 2);
}

TEST(MetricsRecorder, counts_each_end_under_its_reason_and_fills_under_none) {
  MetricsRecorder accounts;
  const MetricsRecorder::Time start{};
  Sequence sequence = sequence_at(start);
  for (const FinishReason reason :
       {FinishReason::stop, FinishReason::length, FinishReason::length, FinishReason::abort, FinishReason::error}) {
    SequenceEditor::schedule(sequence).finished = reason;
    accounts.finished(sequence, start + milliseconds(20));
  }
  SequenceEditor::task(sequence).max_len = sequence.task->prompt_len;
  SequenceEditor::task(sequence).request = {};
  accounts.finished(sequence, start + milliseconds(20));
  accounts.admitted(sequence, start);
  EXPECT_EQ(accounts.metrics().finished_stop.value(), 1);
  EXPECT_EQ(accounts.metrics().finished_length.value(), 2);
  EXPECT_EQ(accounts.metrics().finished_abort.value(), 1);
  EXPECT_EQ(accounts.metrics().finished_error.value(), 1);
  EXPECT_EQ(n_observed(accounts.metrics().e2e_request_latency_seconds), 5);
  EXPECT_EQ(accounts.metrics().prompt_tokens.value(), 0);
}

TEST(MetricsRecorder, parts_a_request_into_queue_prefill_and_decode) {
  MetricsRecorder accounts;
  const MetricsRecorder::Time start{};
  Sequence sequence = sequence_at(start);
  const StepOutcome token{SequenceId{0}, {{4, {}, {}}}, {}, {}};
  accounts.admitted(sequence, start + milliseconds(100));
  accounts.generated(sequence, token, start + milliseconds(300));
  accounts.generated(sequence, token, start + milliseconds(350));
  accounts.generated(sequence, token, start + milliseconds(400));
  accounts.count_generated();
  SequenceEditor::schedule(sequence).finished = FinishReason::deadline;
  accounts.finished(sequence, start + milliseconds(500));
  const EngineMetrics& metrics = accounts.metrics();
  EXPECT_DOUBLE_EQ(metrics.request_queue_time_seconds.snapshot().sum, 0.1);
  EXPECT_DOUBLE_EQ(metrics.request_prefill_time_seconds.snapshot().sum, 0.2);
  EXPECT_DOUBLE_EQ(metrics.request_decode_time_seconds.snapshot().sum, 0.1);
  EXPECT_DOUBLE_EQ(metrics.request_time_per_output_token_seconds.snapshot().sum, 0.05);
  EXPECT_DOUBLE_EQ(metrics.request_inference_time_seconds.snapshot().sum, 0.4);
  EXPECT_DOUBLE_EQ(metrics.request_params_max_tokens.snapshot().sum, 10);
  EXPECT_DOUBLE_EQ(metrics.request_prefill_kv_computed_tokens.snapshot().sum, 4);
  EXPECT_EQ(metrics.finished_deadline.value(), 1);
  Sequence never_admitted = sequence_at(start);
  SequenceEditor::schedule(never_admitted).n_admissions = 0;
  SequenceEditor::schedule(never_admitted).finished = FinishReason::abort;
  accounts.finished(never_admitted, start + milliseconds(500));
  EXPECT_EQ(n_observed(metrics.request_inference_time_seconds), 1);
}

TEST(MetricsRecorder, adds_up_steps_and_reads) {
  MetricsRecorder accounts;
  StepPlan plan;
  plan.n_rows = 9;
  plan.n_preempted = 2;
  plan.n_recomputed_tokens = 30;
  BuiltStep built;
  built.kv_bytes_requested = 100;
  built.kv_bytes_saved = 40;
  built.nodes = {{0, 512, 4, 0}, {512, 768, 2, 1}};
  accounts.ran(plan, built);
  built.kv_bytes_saved = -5;
  built.nodes.pop_back();
  accounts.ran(plan, built);
  const EngineMetrics& metrics = accounts.metrics();
  EXPECT_EQ(metrics.steps.value(), 2);
  EXPECT_EQ(metrics.num_preemptions.value(), 4);
  EXPECT_EQ(metrics.prompt_tokens_recomputed.value(), 60);
  EXPECT_EQ(metrics.kv_bytes_requested.value(), 200);
  EXPECT_EQ(metrics.kv_bytes_saved.value(), 40);
  EXPECT_EQ(metrics.relay_groups.value(), 1);
  EXPECT_EQ(n_observed(metrics.relay_group_size), 3);
  EXPECT_DOUBLE_EQ(metrics.relay_prefix_tokens.snapshot().sum, 512 + 256 + 512);
  Sequence sequence({}, {});
  accounts.read(sequence, {.id = {}, .kv_bytes_requested = 7, .kv_bytes_saved = 3, .relayed_tokens = 5, .largest_group = 4});
  accounts.read(sequence, {.id = {}, .kv_bytes_requested = 7, .kv_bytes_saved = 3, .relayed_tokens = 5, .largest_group = 2});
  EXPECT_EQ(sequence.stats().kv_bytes_requested, 14);
  EXPECT_EQ(sequence.stats().kv_bytes_saved, 6);
  EXPECT_EQ(sequence.stats().relayed_tokens, 10);
  EXPECT_EQ(sequence.stats().largest_group, 4);
}

}  // namespace
}  // namespace baton
