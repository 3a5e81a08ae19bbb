/// Engine: the order of requests, deadlines, and refused requests.
#include "engine/engine.h"

#include <thread>

#include <gtest/gtest.h>

#include "support/engine_device.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using testing::collect;
using testing::Generated;
using testing::greedy;
using testing::random_prompt;
using testing::run_requests;
using testing::run_to_end;
using testing::SequenceKey;

constexpr std::int32_t kOrderedBlocks = 400;

class EngineOrder : public testing::EngineOnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, EngineOrder, testing::engine_devices(), testing::name_of_device);

TEST_P(EngineOrder, runs_a_lower_priority_number_first_and_equal_ones_in_order_of_arrival) {
  const auto engine = make_tiny_engine({.max_num_seqs = 1, .has_priorities = true}, kOrderedBlocks);
  std::vector<std::int64_t> order;
  for (const std::int32_t priority : {0, 5, -3, 0, -3}) {
    Request request = greedy(random_prompt(static_cast<std::uint32_t>(priority + 10), 20), 2);
    request.priority = priority;
    ASSERT_TRUE(engine->submit(request));
  }
  while (engine->step()) {
    for (const Event& event : engine->wait_events(milliseconds(0)))
      if (event.finished) order.push_back(event.request.value);
  }
  EXPECT_EQ(order, (std::vector<std::int64_t>{2, 4, 0, 3, 1}));
}

TEST_P(EngineOrder, refuses_priorities_that_would_not_count) {
  const auto engine = make_tiny_engine({}, kOrderedBlocks);
  Request request = greedy(random_prompt(1, 20), 2);
  request.priority = -1;
  const auto refused = engine->submit(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(refused.error().param, "priority");
  EXPECT_NE(refused.error().message.find("--scheduling-policy priority"), std::string::npos);
}

TEST_P(EngineOrder, counts_the_sequences_that_wait_not_the_requests) {
  const auto engine = make_tiny_engine({.max_num_seqs = 2, .max_num_queued_reqs = 6}, kOrderedBlocks);
  Request four = greedy(random_prompt(1, 20), 3);
  four.n_sequences = 4;
  Request many = four;
  many.n_sequences = 100;
  std::map<SequenceKey, Generated> generated;
  ASSERT_TRUE(engine->submit(many)) << "more than the queue holds, but none waits";
  EXPECT_FALSE(engine->submit(greedy(random_prompt(1, 20), 3)));
  run_to_end(*engine, generated);
  ASSERT_TRUE(engine->submit(four));
  const auto refused = engine->submit(four);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_EQ(refused.error().message, "4 sequences are waiting, and the queue holds 6: try again later (n = 4)");
  engine->step();  // two of them run
  EXPECT_TRUE(engine->submit(four));
  EXPECT_FALSE(engine->submit(greedy(random_prompt(1, 20), 3)));
  run_to_end(*engine, generated);
  EXPECT_TRUE(engine->submit(four)) << "none waits any more";
}

TEST_P(EngineOrder, ends_a_request_at_its_deadline_with_the_tokens_it_has) {
  const auto engine = make_tiny_engine({}, kOrderedBlocks);
  Request request = greedy(random_prompt(1, 20), 1000);
  const Generated whole = run_requests(*engine, {request})[0];
  std::map<SequenceKey, Generated> generated;
  SequenceKey key;
  // However slow the machine is, one of these deadlines is long enough for ten tokens.
  for (request.deadline = milliseconds(50); generated[key].tokens.size() < 10; request.deadline = *request.deadline * 2) {
    const auto id = engine->submit(request);
    ASSERT_TRUE(id) << id.error().message;
    key = {id->value, 0};
    const auto end = Request::Clock::now() + *request.deadline;
    for (int i = 0; i < 20; ++i) engine->step();
    std::this_thread::sleep_until(end);
    run_to_end(*engine, generated);
  }
  EXPECT_EQ(generated[key].finished, FinishReason::deadline);
  EXPECT_GE(generated[key].tokens.size(), 10u);
  EXPECT_LT(generated[key].tokens.size(), 1000u);
  expect_beginning(generated[key], whole);
  EXPECT_GE(engine->metrics().finished_deadline.value(), 1);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
}

TEST_P(EngineOrder, tells_of_an_end_once_whatever_ends_a_sequence_in_one_step) {
  enum Cause { cancel, finish, deadline };
  const auto run = [this](const std::vector<Cause>& causes) {
    const auto engine = make_tiny_engine({}, kOrderedBlocks);
    Request request = greedy(random_prompt(1, 20), 500);
    const bool expires = std::ranges::find(causes, deadline) != causes.end();
    if (expires) request.deadline = milliseconds(1);
    const RequestId id = *engine->submit(request);
    if (!expires) engine->step();
    for (const Cause cause : causes) {
      if (cause == cancel) engine->cancel(id);
      if (cause == finish) engine->finish(id, 0, FinishReason::stop);
      if (cause == deadline) std::this_thread::sleep_for(milliseconds(2));
    }
    std::vector<FinishReason> ends;
    while (engine->step()) {
      for (const Event& event : engine->wait_events(milliseconds(0)))
        if (event.finished) ends.push_back(*event.finished);
    }
    EXPECT_TRUE(engine->is_idle());
    EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
    return ends;
  };
  using Reasons = std::vector<FinishReason>;
  EXPECT_EQ(run({cancel, deadline}), Reasons{FinishReason::abort});
  EXPECT_EQ(run({finish, deadline}), Reasons{FinishReason::stop});
  EXPECT_EQ(run({finish, cancel}), Reasons{FinishReason::stop});
  EXPECT_EQ(run({cancel, finish, cancel, deadline}), Reasons{FinishReason::abort});
  EXPECT_EQ(run({deadline}), Reasons{FinishReason::deadline});
}

TEST_P(EngineOrder, counts_a_deadline_from_arrival_so_that_waiting_counts_too) {
  const auto engine = make_tiny_engine({}, kOrderedBlocks);
  Request request = greedy(random_prompt(1, 20), 5);
  request.arrived = Request::Clock::now() - std::chrono::seconds(100);
  request.deadline = std::chrono::seconds(99);
  Request in_time = request;
  in_time.deadline = std::chrono::hours(1);
  const auto results = run_requests(*engine, {request, in_time});
  EXPECT_EQ(results[0].finished, FinishReason::deadline);
  EXPECT_TRUE(results[0].tokens.empty());
  EXPECT_EQ(results[1].finished, FinishReason::length);
  EXPECT_EQ(results[1].tokens.size(), 5u);
  request.deadline = milliseconds(0);
  const auto refused = engine->submit(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "deadline_ms");
}

TEST_P(EngineOrder, times_the_first_token_from_arrival) {
  const auto engine = make_tiny_engine({}, kOrderedBlocks);
  Request request = greedy(random_prompt(1, 20), 2);
  request.arrived = Request::Clock::now() - std::chrono::seconds(50);
  const Generated result = run_requests(*engine, {request})[0];
  EXPECT_GE(engine->metrics().time_to_first_token_seconds.snapshot().sum, 50);
  EXPECT_GE(engine->metrics().request_queue_time_seconds.snapshot().sum, 50);
  EXPECT_GE(engine->metrics().e2e_request_latency_seconds.snapshot().sum, 50);
  EXPECT_LT(engine->metrics().request_inference_time_seconds.snapshot().sum, 50);
  EXPECT_GE(result.stats.queue_ms, 50'000);
}

TEST_P(EngineOrder, counts_a_request_once_however_many_sequences_it_has) {
  const auto engine = make_tiny_engine({}, kOrderedBlocks);
  Request request = greedy(random_prompt(1, 20), 6);
  request.n_sequences = 3;
  run_requests(*engine, {request});
  EXPECT_DOUBLE_EQ(engine->metrics().request_params_n.snapshot().sum, 3);
  EXPECT_DOUBLE_EQ(engine->metrics().request_max_num_generation_tokens.snapshot().sum, 6);
  EXPECT_DOUBLE_EQ(engine->metrics().request_generation_tokens.snapshot().sum, 18);
}

TEST_P(EngineOrder, counts_whom_it_turns_away_and_why) {
  const auto engine = make_tiny_engine({.max_num_queued_reqs = 2}, kOrderedBlocks);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(engine->submit(greedy(random_prompt(1, 20), 2)).has_value(), i < 2);
  EXPECT_EQ(engine->metrics().rejected_queue_full.value(), 3);
  engine->begin_drain();
  EXPECT_FALSE(engine->submit(greedy(random_prompt(1, 20), 2)));
  EXPECT_EQ(engine->metrics().rejected_draining.value(), 1);
}

TEST_P(EngineOrder, a_tenant_that_fills_the_queue_does_not_keep_out_another) {
  const auto engine = make_tiny_engine({.max_num_seqs = 1, .max_num_queued_reqs = 8}, kOrderedBlocks);
  Request request = greedy(random_prompt(1, 20), 2);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(engine->submit(request).has_value(), i < 8);
  request.tenant = {1, 1};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(engine->submit(request).has_value(), i < 4) << "half of the queue is its share";
  while (engine->step()) {
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(engine->submit(request).has_value(), i < 8) << "all have left";
}

TEST_P(EngineOrder, large_requests_that_fill_the_queue_do_not_keep_out_small_ones) {
  const Request large = greedy(random_prompt(1, 20), 500);
  const Request small = greedy(random_prompt(2, 20), 2);
  for (const bool by_size : {false, true}) {
    const auto engine = make_tiny_engine({.max_num_seqs = 1, .by_size = by_size, .max_num_queued_reqs = 8}, kOrderedBlocks);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(engine->submit(large).has_value(), i < 8);
    const int n_small = by_size ? 4 : 0;
    for (int i = 0; i < 20; ++i) EXPECT_EQ(engine->submit(small).has_value(), i < n_small) << "half of the queue is its share";
    EXPECT_EQ(engine->metrics().rejected_queue_full.value(), 32 - n_small);
    while (engine->step()) {
    }
    for (int i = 0; i < 20; ++i) EXPECT_EQ(engine->submit(small).has_value(), i < 8) << "all have left";
  }
}

TEST_P(EngineOrder, keeps_prefill_beside_decodes_within_its_limit) {
  const auto engine = make_tiny_engine({.max_prefill_tokens = 32}, kOrderedBlocks);
  EXPECT_EQ(engine->info().max_prefill_tokens, 32);
  EXPECT_EQ(make_tiny_engine({}, kOrderedBlocks)->info().max_prefill_tokens, is_cuda() ? 2048 : 128) << "the device's own";
  EXPECT_EQ(make_tiny_engine({.max_num_batched_tokens = 100}, kOrderedBlocks)->info().max_prefill_tokens, 100);
  std::map<SequenceKey, Generated> generated;
  const auto step_until_token_of = [&](const SequenceKey& key) {
    while (generated[key].tokens.empty()) {
      engine->step();
      collect(engine->wait_events(milliseconds(0)), generated);
    }
  };
  const SequenceKey decoding{0, 0}, coming_in{1, 0};
  ASSERT_TRUE(engine->submit(greedy(random_prompt(1, 10), 200)));
  step_until_token_of(decoding);
  ASSERT_TRUE(engine->submit(greedy(random_prompt(2, 640), 2)));
  const std::size_t n_before = generated[decoding].tokens.size();
  step_until_token_of(coming_in);
  const std::size_t n_meanwhile = generated[decoding].tokens.size() - n_before;
  EXPECT_GE(n_meanwhile, 20u) << "20 steps of 32 rows, each with a token for the other";
  EXPECT_LE(n_meanwhile, 23u);
}

}  // namespace
}  // namespace baton
