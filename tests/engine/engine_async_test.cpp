/// Engine on an asynchronous device: behaviour that shows only if the device has not yet run what was enqueued.
#include "engine/engine.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/held_engine.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using testing::AsyncBackend;
using testing::collect;
using testing::Generated;
using testing::greedy;
using testing::HeldEngine;
using testing::joined;
using testing::make_async_engine;
using testing::make_tiny_engine;
using testing::Pace;
using testing::random_prompt;
using testing::run_requests;
using testing::run_to_end;
using testing::SequenceKey;
using testing::wait_until;

constexpr std::int32_t kAsyncBlocks = 130;

/// A mixture of requests that share, are preempted in a small cache, stop early, and sample with penalties.
std::vector<Request> mixture() {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 12; ++i) {
    Request request = greedy(joined(random_prompt(i % 2, 16 * (i % 4)), random_prompt(50 + i, 3 + 7 * (i % 5))), 40);
    if (i % 2 == 1) {
      request.sampling.temperature = 1;
      request.sampling.seed = i;
      request.sampling.frequency_penalty = 0.1F;
    }
    if (i % 3 == 0) request.sampling.stop_ids = random_prompt(i, 6);
    if (i % 5 == 0) request.n_sequences = 2;
    requests.push_back(request);
  }
  return requests;
}

TEST(EngineAsync, gives_the_tokens_of_the_cpu_bit_for_bit_at_each_pace) {
  const EngineOptions options{.batch_invariant = true, .max_num_seqs = 8, .max_num_batched_tokens = 60, .max_model_len = 160};
  const std::vector<Request> requests = mixture();
  const auto cpu = make_tiny_engine(options, 20);
  const std::vector<Generated> expected = run_requests(*cpu, requests);
  EXPECT_GT(cpu->metrics().num_preemptions.value(), 0) << "the load was too light to show anything";
  for (const Pace pace : {Pace::late, Pace::at_once, Pace::random}) {
    SCOPED_TRACE(static_cast<int>(pace));
    AsyncBackend* device = nullptr;
    const auto engine = make_async_engine(options, 20, pace, testing::tiny_spec(), &device);
    const std::vector<Generated> got = run_requests(*engine, requests);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].tokens, expected[i].tokens) << i;
      EXPECT_EQ(got[i].logprobs, expected[i].logprobs) << i;
      EXPECT_EQ(got[i].finished, expected[i].finished) << i;
    }
    EXPECT_GT(device->n_replays(), 10u) << "decode steps are replayed";
    EXPECT_GT(device->n_blocks_overwritten(), 20u) << "freed blocks are overwritten";
  }
}

TEST(EngineAsync, has_two_steps_in_flight_and_no_more) {
  HeldEngine held;
  ASSERT_TRUE(held.engine->submit(greedy(random_prompt(1, 20), 5)));
  held.wait();
  std::int64_t planned = -1;
  std::int64_t waited_for = -1;
  for (const StepRecord& record : held.engine->recent_steps()) {
    if (record.what == StepRecord::What::plan_end) planned = record.step;
    if (record.what == StepRecord::What::run_begin) waited_for = record.step;
    EXPECT_NE(record.what, StepRecord::What::run_end);
  }
  EXPECT_EQ(planned, waited_for + 1) << "the second step is enqueued before the first has run";
  EXPECT_EQ((held.finish()[{0, 0}].tokens.size()), 5u);
}

TEST(EngineAsync, continues_operation_by_operation) {
  const Request request = greedy(random_prompt(1, 20), 5);
  const auto cpu = make_tiny_engine({}, kAsyncBlocks);
  const std::vector<TokenId> expected = run_requests(*cpu, {request})[0].tokens;
  HeldEngine held;
  ASSERT_TRUE(held.engine->submit(request));
  std::map<SequenceKey, Generated> generated;
  int n_allowed = 0;
  while (!held.engine->is_idle()) {
    if (held.device->is_waited_for()) {
      held.device->let_run(1);
      ++n_allowed;
    }
    collect(held.engine->wait_events(milliseconds(0)), generated);
  }
  collect(held.engine->wait_events(milliseconds(0)), generated);
  EXPECT_EQ((generated[{0, 0}].tokens), expected);
  EXPECT_GT(n_allowed, 5);
}

TEST(EngineAsync, ends_once_what_is_cancelled_finished_or_late_while_the_device_is_busy) {
  const Request request = greedy(random_prompt(1, 20), 60);
  const auto cpu = make_tiny_engine({}, kAsyncBlocks);
  const std::vector<TokenId> expected = run_requests(*cpu, {request})[0].tokens;
  HeldEngine held;
  Request late = greedy(random_prompt(2, 20), 1000);
  late.deadline = milliseconds(1);
  const RequestId goes_on = *held.engine->submit(request);
  const RequestId cancelled = *held.engine->submit(greedy(random_prompt(3, 20), 1000));
  const RequestId finished = *held.engine->submit(greedy(random_prompt(4, 20), 1000));
  const RequestId expired = *held.engine->submit(late);
  held.wait();
  const RequestId never_ran = *held.engine->submit(greedy(random_prompt(5, 20), 1000));
  for (int i = 0; i < 2; ++i) {
    held.engine->cancel(cancelled);
    held.engine->finish(finished, 0, FinishReason::stop);
    held.engine->cancel(finished);
    held.engine->cancel(never_ran);
  }
  std::this_thread::sleep_for(milliseconds(2));
  held.engine->cancel(expired);
  const auto generated = held.finish();  // collect() fails the test at an event after the last one
  EXPECT_EQ((generated.at({goes_on.value, 0}).tokens), expected);
  EXPECT_EQ((generated.at({cancelled.value, 0}).finished), FinishReason::abort);
  EXPECT_EQ((generated.at({finished.value, 0}).finished), FinishReason::stop);
  EXPECT_TRUE((generated.at({expired.value, 0}).finished));
  EXPECT_EQ((generated.at({never_ran.value, 0}).finished), FinishReason::abort);
  held.engine->stop();
  held.engine->check_invariants();
  EXPECT_EQ(held.engine->metrics().kv_blocks_used.value(), 0);
}

TEST(EngineAsync, stops_when_the_device_has_ended_the_step_it_is_at) {
  HeldEngine held;
  for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(held.engine->submit(greedy(random_prompt(i, 20), 500)));
  held.wait();
  std::thread stopper([&held] { held.engine->stop(); });
  wait_until([&held] { return held.engine->is_draining(); });
  EXPECT_FALSE(held.engine->is_idle()) << "the step is still running";
  held.device->release();
  stopper.join();
  std::map<SequenceKey, Generated> generated;
  collect(held.engine->wait_events(milliseconds(0)), generated);
  ASSERT_EQ(generated.size(), 3u);
  for (const auto& [key, sequence] : generated) EXPECT_EQ(sequence.finished, FinishReason::abort);
  EXPECT_EQ(held.engine->metrics().kv_blocks_used.value(), 0);
  held.engine->check_invariants();
}

TEST(EngineAsync, can_be_destroyed_with_steps_that_never_ran) {
  for (const int n_steps : {0, 1, 2, 3}) {
    const auto engine = make_async_engine({}, kAsyncBlocks, Pace::late);
    ASSERT_TRUE(engine->submit(greedy(random_prompt(1, 40), 50)));
    for (int i = 0; i < n_steps; ++i) ASSERT_TRUE(engine->step());
  }
}

TEST(EngineAsync, is_stuck_while_the_device_is_and_only_then) {
  HeldEngine held({.step_timeout_ms = 5});
  ASSERT_TRUE(held.engine->submit(greedy(random_prompt(1, 20), 2)));
  wait_until([&] { return held.engine->is_stuck(); });
  EXPECT_EQ((held.finish()[{0, 0}].tokens.size()), 2u);
  wait_until([&] { return !held.engine->is_stuck(); });
}

TEST(EngineAsync, says_what_could_not_be_allocated_whichever_call_it_was) {
  const auto make = [](int n_good_calls) {
    EngineOptions options{.max_num_seqs = 4, .max_num_batched_tokens = 16, .kv_dtype = DType::f32};
    options.ranks = testing::fork_async_followers(false, testing::random_model(testing::tiny_spec()));
    auto backend = testing::async_of_rank(options.ranks, false, Pace::late);
    EXPECT_TRUE(backend) << backend.error().message;
    (*backend)->fail_call(n_good_calls);
    return testing::create_tiny_engine(std::move(*backend), options, 130);
  };
  int n_failures = 0;
  for (;; ++n_failures) {
    const auto engine = make(n_failures);
    if (engine) break;
    ASSERT_EQ(engine.error().code, ErrorCode::out_of_memory) << engine.error().message;
    ASSERT_LT(n_failures, 1000);
  }
  EXPECT_GT(n_failures, 30) << "weights, workspace, readbacks, cache and graphs are all asked for";
}

}  // namespace
}  // namespace baton
