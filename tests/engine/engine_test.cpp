/// Engine: what one caller sees of it, step by step, with a small random model on each device.
#include "engine/engine.h"

#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "support/engine_device.h"

namespace baton {
namespace {

using testing::collect;
using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::random_prompt;
using testing::run_requests;
using testing::run_to_end;
using testing::SequenceKey;

constexpr std::int32_t kBlocks = 400;

class EngineTest : public testing::EngineOnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, EngineTest, testing::engine_devices(), testing::name_of_device);

TEST_P(EngineTest, generates_as_many_tokens_as_asked_for) {
  const auto engine = make_tiny_engine({}, kBlocks);
  const auto results = run_requests(*engine, {greedy(random_prompt(1, 20), 7), greedy(random_prompt(2, 1), 1)});
  EXPECT_EQ(results[0].tokens.size(), 7u);
  EXPECT_EQ(results[0].logprobs.size(), 7u);
  EXPECT_EQ(results[0].finished, FinishReason::length);
  EXPECT_EQ(results[0].stats.prompt_tokens, 20);
  EXPECT_EQ(results[0].stats.completion_tokens, 7);
  EXPECT_EQ(results[1].tokens.size(), 1u);
  EXPECT_EQ(engine->metrics().generation_tokens.value(), 8);
  EXPECT_EQ(engine->metrics().prompt_tokens.value(), 21);
  EXPECT_EQ(engine->metrics().finished_length.value(), 2);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
}

TEST_P(EngineTest, plans_the_next_step_before_it_commits_this_one) {
  const auto engine = make_tiny_engine({}, kBlocks);
  run_requests(*engine, {greedy(random_prompt(1, 20), 5)});
  const std::vector<StepRecord> records = engine->recent_steps();
  const auto place_of = [&](StepRecord::What what, std::int64_t step) {
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (records[i].what == what && records[i].step == step) return static_cast<std::ptrdiff_t>(i);
    }
    return std::ptrdiff_t{-1};
  };
  for (std::int64_t step = 0; step < 5; ++step) {
    ASSERT_GE(place_of(StepRecord::What::commit_begin, step), 0);
    EXPECT_LT(place_of(StepRecord::What::plan_end, step + 1), place_of(StepRecord::What::commit_begin, step));
    EXPECT_LT(place_of(StepRecord::What::plan_end, step + 1), place_of(StepRecord::What::run_begin, step))
        << "a token waited for a step";
    EXPECT_LT(place_of(StepRecord::What::commit_end, step), place_of(StepRecord::What::run_begin, step + 1) < 0
                                                                ? static_cast<std::ptrdiff_t>(records.size())
                                                                : place_of(StepRecord::What::run_begin, step + 1));
  }
}

TEST_P(EngineTest, plans_no_step_ahead_for_several_tenants_on_a_device_that_gains_nothing_by_it) {
  const auto engine = make_tiny_engine({}, kBlocks);
  Request request = greedy(random_prompt(1, 20), 5);
  ASSERT_TRUE(engine->submit(request));
  request.tenant.id = 1;
  ASSERT_TRUE(engine->submit(request));
  for (int i = 0; i < 2; ++i) engine->step();
  request.tenant.id = 2;
  ASSERT_TRUE(engine->submit(request));
  engine->step();
  int n_first_tokens = 0;
  for (const Event& event : engine->wait_events(std::chrono::milliseconds(0)))
    n_first_tokens += event.request.value == 2 ? 1 : 0;
  EXPECT_EQ(n_first_tokens, std::string(GetParam()) == "cpu" ? 1 : 0) << "the step that follows the request has its prompt";
  while (engine->step()) {
  }
  EXPECT_TRUE(engine->is_idle());
}

TEST_P(EngineTest, a_wait_for_events_can_be_ended) {
  const auto engine = make_tiny_engine({}, kBlocks);
  engine->wake_waiter();
  EXPECT_TRUE(engine->wait_events(std::chrono::hours(24)).empty());
}

TEST_P(EngineTest, publishes_each_token_in_the_step_that_makes_it) {
  const auto engine = make_tiny_engine({}, kBlocks);
  ASSERT_TRUE(engine->submit(greedy(random_prompt(1, 20), 3)));
  EXPECT_TRUE(engine->step());  // plans and submits the prompt
  EXPECT_TRUE(engine->wait_events(std::chrono::milliseconds(0)).empty());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(engine->step());
    const auto events = engine->wait_events(std::chrono::milliseconds(0));
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].tokens.size(), 1u);
    EXPECT_EQ(events[0].finished.has_value(), i == 2);
  }
  EXPECT_FALSE(engine->step());
}

TEST_P(EngineTest, gives_the_same_ids_alone_and_in_a_batch) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 9; ++i) requests.push_back(greedy(random_prompt(i, 3 + 13 * i), 12));
  const auto together_engine = make_tiny_engine({}, kBlocks);
  const auto together = run_requests(*together_engine, requests);
  const auto alone_engine = make_tiny_engine({}, kBlocks);
  for (std::size_t i = 0; i < requests.size(); ++i)
    expect_same_tokens(run_requests(*alone_engine, {requests[i]})[0], together[i]);
}

TEST_P(EngineTest, gives_the_same_ids_with_a_cold_and_a_warm_cache) {
  const auto engine = make_tiny_engine({}, kBlocks);
  const Request request = greedy(random_prompt(5, 100), 20);
  const Generated cold = run_requests(*engine, {request})[0];
  const Generated warm = run_requests(*engine, {request})[0];
  EXPECT_EQ(cold.stats.cached_tokens, 0);
  EXPECT_EQ(warm.stats.cached_tokens, 96);
  expect_same_tokens(warm, cold);
  EXPECT_EQ(engine->metrics().prefix_cache_queries.value(), 200);
  EXPECT_EQ(engine->metrics().prefix_cache_hits.value(), 96);
}

TEST_P(EngineTest, finds_the_tokens_it_generated_in_the_cache) {
  const auto engine = make_tiny_engine({}, kBlocks);
  const Generated first = run_requests(*engine, {greedy(random_prompt(5, 20), 30)})[0];
  const auto conversation = joined(joined(random_prompt(5, 20), first.tokens), random_prompt(6, 8));
  EXPECT_EQ(run_requests(*engine, {greedy(conversation, 2)})[0].stats.cached_tokens,
            48);  // 49 stored: the last token's keys are not
}

TEST_P(EngineTest, without_prefix_caching_computes_everything) {
  const auto engine = make_tiny_engine({.enable_prefix_caching = false}, kBlocks);
  const auto with = make_tiny_engine({}, kBlocks);
  const Request request = greedy(random_prompt(5, 100), 8);
  run_requests(*engine, {request});
  const Generated again = run_requests(*engine, {request})[0];
  EXPECT_EQ(again.stats.cached_tokens, 0);
  expect_same_tokens(again, run_requests(*with, {request})[0]);
  EXPECT_FALSE(engine->pin(random_prompt(1, 40)));
}

TEST_P(EngineTest, gives_n_sequences_that_share_a_prompt_their_own_seeds) {
  const auto engine = make_tiny_engine({}, kBlocks);
  Request request = greedy(random_prompt(5, 70), 16);
  request.sampling.temperature = 1;
  request.sampling.seed = 40;
  request.n_sequences = 4;
  const auto results = run_requests(*engine, {request});
  for (std::int32_t i = 0; i < 4; ++i) {
    Request single = request;
    single.n_sequences = 1;
    single.sampling.seed = 40 + static_cast<std::uint64_t>(i);
    expect_same_draws(run_requests(*engine, {single})[0], results[static_cast<std::size_t>(i)]);
    EXPECT_EQ(results[static_cast<std::size_t>(i)].stats.cached_tokens, i == 0 ? 0 : 64) << "one fills, the others wait for it";
  }
  EXPECT_NE(results[0].tokens, results[1].tokens);
}

TEST_P(EngineTest, draws_other_tokens_for_each_request_without_a_seed) {
  const auto engine = make_tiny_engine({.seed = 3}, kBlocks);
  const auto twin = make_tiny_engine({.seed = 3}, kBlocks);
  Request request = greedy(random_prompt(5, 10), 16);
  request.sampling.temperature = 1;
  const auto results = run_requests(*engine, {request, request});
  EXPECT_NE(results[0].tokens, results[1].tokens);
  EXPECT_EQ(run_requests(*twin, {request, request})[1].tokens, results[1].tokens);
}

TEST_P(EngineTest, ends_at_a_stop_id_and_gives_it_out_beside_the_tokens_with_its_log_probabilities) {
  const auto engine = make_tiny_engine({}, kBlocks);
  Request request = greedy(random_prompt(7, 30), 24);
  request.sampling.n_top_logprobs = 2;
  const Generated whole = run_requests(*engine, {request})[0];
  const TokenId stop = whole.tokens[9];
  const auto first = static_cast<std::size_t>(std::ranges::find(whole.tokens, stop) - whole.tokens.begin());
  request.sampling.stop_ids = {stop};
  const Generated stopped = run_requests(*engine, {request})[0];
  EXPECT_EQ(stopped.finished, FinishReason::stop);
  EXPECT_EQ(stopped.stop_id, stop);
  ASSERT_TRUE(stopped.stop_logprob);
  EXPECT_NEAR(*stopped.stop_logprob, whole.logprobs[first], logprob_tolerance());
  ASSERT_EQ(stopped.stop_top.size(), 2u);
  EXPECT_EQ(stopped.stop_top[0].token, stop) << "greedy takes the most likely";
  EXPECT_EQ(stopped.tokens, std::vector(whole.tokens.begin(), whole.tokens.begin() + static_cast<std::ptrdiff_t>(first)));
  EXPECT_EQ(stopped.stats.completion_tokens, static_cast<std::int32_t>(first) + 1);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);

  request.sampling.min_tokens = 24;
  EXPECT_EQ(run_requests(*engine, {request})[0].tokens.size(), 24u);
}

TEST_P(EngineTest, ends_at_the_models_end_of_sequence_unless_told_not_to) {
  ModelSpec spec = testing::tiny_spec();
  const auto plain = make_tiny_engine({}, kBlocks, spec);
  Request request = greedy(random_prompt(7, 30), 10);
  const Generated whole = run_requests(*plain, {request})[0];
  spec.eos_token_ids = {whole.tokens[0]};
  const auto engine = make_tiny_engine({.eos_token_ids = {whole.tokens[0], 3}}, kBlocks, spec);
  expect_same_tokens(run_requests(*engine, {request})[0], whole);
  request.sampling.ignore_eos = false;
  const Generated stopped = run_requests(*engine, {request})[0];
  EXPECT_EQ(stopped.finished, FinishReason::stop);
  EXPECT_TRUE(stopped.tokens.empty());
}

TEST_P(EngineTest, says_which_end_of_sequence_ids_the_vocabulary_does_not_have) {
  const ModelSpec spec = testing::tiny_spec();
  ::testing::internal::CaptureStderr();
  make_tiny_engine({.eos_token_ids = {3, spec.n_vocab}}, kBlocks, spec);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("event=eos_token_ignored id=" + std::to_string(spec.n_vocab) + " "), std::string::npos) << log;
  EXPECT_EQ(log.find("event=eos_token_ignored id=3 "), std::string::npos) << log;
}

TEST_P(EngineTest, fills_the_context_when_no_length_is_asked_for) {
  ModelSpec spec = testing::tiny_spec();
  spec.max_position = 40;
  const auto engine = make_tiny_engine({}, 3, spec);
  Request request = greedy(random_prompt(1, 30), 1);
  request.sampling.max_tokens.reset();
  EXPECT_EQ(run_requests(*engine, {request})[0].tokens.size(), 10u);
}

TEST_P(EngineTest, frees_the_blocks_of_what_is_cancelled_or_finished_from_outside) {
  const auto engine = make_tiny_engine({}, kBlocks);
  const RequestId cancelled = *engine->submit(greedy(random_prompt(1, 40), 500));
  Request two = greedy(random_prompt(2, 40), 60);
  two.n_sequences = 2;
  const RequestId stopped = *engine->submit(two);
  std::map<SequenceKey, Generated> generated;
  for (int i = 0; i < 12; ++i) {
    engine->step();
    collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
  }
  EXPECT_GT(engine->metrics().kv_blocks_used.value(), 0);
  engine->cancel(cancelled);
  engine->finish(stopped, 1, FinishReason::stop);
  engine->cancel(RequestId{99});
  run_to_end(*engine, generated);
  engine->cancel(cancelled);
  EXPECT_TRUE(engine->step());
  EXPECT_FALSE(engine->step());
  EXPECT_EQ((generated[{cancelled.value, 0}].finished), FinishReason::abort);
  EXPECT_EQ((generated[{stopped.value, 1}].finished), FinishReason::stop);
  EXPECT_LT((generated[{stopped.value, 1}].tokens.size()), 60u);
  EXPECT_EQ((generated[{stopped.value, 0}].tokens.size()), 60u);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
  EXPECT_EQ(engine->metrics().finished_abort.value(), 1);
}

TEST_P(EngineTest, pins_a_registered_prefix_in_whole_blocks) {
  const auto engine = make_tiny_engine({.max_num_batched_tokens = 64, .max_model_len = 400}, 60);
  const auto prefix = engine->pin(random_prompt(1, 150));
  ASSERT_TRUE(prefix) << prefix.error().message;
  EXPECT_EQ(prefix->n_tokens, 150);
  EXPECT_EQ(prefix->n_pinned_tokens, 144);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 9);
  EXPECT_EQ(engine->metrics().prompt_tokens.value(), 0);
  ASSERT_EQ(engine->pins().size(), 1u);
  std::vector<Request> strangers;
  for (std::uint32_t i = 10; i < 20; ++i) strangers.push_back(greedy(random_prompt(i, 300), 4));
  run_requests(*engine, strangers);  // more than the cache holds
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 9);
  EXPECT_EQ(run_requests(*engine, {greedy(joined(random_prompt(1, 150), random_prompt(3, 9)), 3)})[0].stats.cached_tokens, 144);
  EXPECT_TRUE(engine->wait_events(std::chrono::milliseconds(0)).empty());
}

TEST_P(EngineTest, refuses_a_prefix_that_leaves_no_room) {
  const auto engine = make_tiny_engine({.max_model_len = 400}, 30);
  const auto too_much = engine->pin(random_prompt(1, 120));
  ASSERT_FALSE(too_much);
  EXPECT_EQ(too_much.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(too_much.error().message.find("120 tokens"), std::string::npos) << too_much.error().message;
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
  ASSERT_TRUE(engine->pin(random_prompt(1, 80)));
  EXPECT_FALSE(engine->pin(random_prompt(2, 400)));
  EXPECT_FALSE(engine->pin({}));
  EXPECT_FALSE(engine->pin({1, 2, 999}));
  const auto same = engine->pin(random_prompt(1, 80));
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->n_pinned_tokens, 80);
  const auto tiny = engine->pin(random_prompt(3, 5));
  ASSERT_TRUE(tiny);
  EXPECT_EQ(tiny->n_pinned_tokens, 0);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 5);
  engine->check_invariants();
}

TEST(EngineCache, fits_its_memory_with_the_padding_of_heads) {
  ModelSpec spec = testing::tiny_spec();
  for (LayerSpec& layer : spec.layers) layer.attention.head_dim = 72;
  auto backend = make_backend("cpu", {.n_threads = 1}).value();
  auto model = std::make_unique<Model>(spec, random_weights(spec, *backend, DType::f32, 11, 1).value());
  const KvShape shape = model->kv_shapes(1, 16, DType::f32).at(0);
  const std::int64_t padded = backend->kv_block_bytes(shape);
  ASSERT_GT(padded, shape.block_bytes());
  const EngineOptions options{.max_model_len = 512, .kv_cache_bytes = 100 * shape.block_bytes(), .kv_dtype = DType::f32};
  const auto engine = Engine::create(options, std::move(backend), std::move(model)).value();
  EXPECT_EQ(engine->info().n_blocks, 100 * shape.block_bytes() / padded);
  EXPECT_LE(engine->info().kv_cache_bytes, options.kv_cache_bytes);
}

TEST_P(EngineTest, pins_no_more_blocks_than_it_may) {
  const auto engine = make_tiny_engine({.max_model_len = 400, .max_pinned_blocks = 6}, kBlocks);
  ASSERT_TRUE(engine->pin(random_prompt(1, 64)));
  const auto refused = engine->pin(random_prompt(2, 50));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(refused.error().message,
            "a prefix of 50 tokens cannot be pinned: 7 blocks of 16 tokens would be, and --max-pinned-blocks is 6; delete a "
            "prefix or raise the limit");
  EXPECT_TRUE(engine->pin(joined(random_prompt(1, 64), random_prompt(2, 32)))) << "shared blocks count once";
  EXPECT_EQ(engine->metrics().kv_blocks_pinned.value(), 6);
  engine->check_invariants();
}

TEST_P(EngineTest, removes_a_prefix_that_a_running_sequence_continues_using) {
  const auto engine = make_tiny_engine({.max_model_len = 400, .max_pinned_blocks = 4}, 60);
  const auto shop = engine->pin(random_prompt(1, 64));
  ASSERT_TRUE(shop) << shop.error().message;
  const Request request = greedy(joined(random_prompt(1, 64), random_prompt(2, 9)), 20);
  const Generated expected = run_requests(*engine, {request})[0];

  const RequestId id = *engine->submit(request);
  ASSERT_TRUE(engine->step());
  engine->unpin(shop->id);
  EXPECT_TRUE(engine->pins().empty());
  ASSERT_TRUE(engine->step());
  EXPECT_EQ(engine->metrics().kv_blocks_pinned.value(), 0);
  EXPECT_GE(engine->metrics().kv_blocks_used.value(), 5);
  std::map<SequenceKey, Generated> generated;
  run_to_end(*engine, generated);
  expect_same_tokens(generated[{id.value, 0}], expected);
  EXPECT_EQ((generated[{id.value, 0}].stats.cached_tokens), 64);
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);

  std::vector<Request> strangers;
  for (std::uint32_t i = 10; i < 20; ++i) strangers.push_back(greedy(random_prompt(i, 300), 4));
  run_requests(*engine, strangers);  // more than the cache holds
  EXPECT_EQ(run_requests(*engine, {request})[0].stats.cached_tokens, 0) << "what is not pinned is evicted";
  ASSERT_TRUE(engine->pin(random_prompt(3, 64))) << "the blocks are free again";
  const auto tiny = engine->pin(random_prompt(4, 5));
  ASSERT_TRUE(tiny) << tiny.error().message;
  engine->unpin(tiny->id);
  EXPECT_FALSE(engine->pin(random_prompt(5, 20)));
  engine->check_invariants();
}

TEST_P(EngineTest, refuses_more_requests_than_may_wait) {
  const auto engine = make_tiny_engine({.max_num_seqs = 1, .max_num_queued_reqs = 2}, kBlocks);
  const Request request = greedy(random_prompt(1, 20), 4);
  ASSERT_TRUE(engine->submit(request));
  engine->step();  // it runs now
  ASSERT_TRUE(engine->submit(request));
  const auto second = engine->submit(request);
  ASSERT_TRUE(second);
  const auto refused = engine->submit(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  engine->cancel(*second);
  engine->step();
  EXPECT_TRUE(engine->submit(request)) << "a cancelled request waits no longer";
  std::map<SequenceKey, Generated> generated;
  run_to_end(*engine, generated);
  EXPECT_TRUE(engine->submit(request));
}

TEST_P(EngineTest, refuses_new_requests_while_it_drains_and_ends_those_it_has) {
  const auto engine = make_tiny_engine({}, kBlocks);
  const RequestId id = *engine->submit(greedy(random_prompt(1, 20), 4));
  engine->begin_drain();
  EXPECT_TRUE(engine->is_draining());
  EXPECT_FALSE(engine->is_idle());
  EXPECT_EQ(engine->submit(greedy(random_prompt(1, 20), 4)).error().code, ErrorCode::unavailable);
  std::map<SequenceKey, Generated> generated;
  run_to_end(*engine, generated);
  EXPECT_EQ((generated[{id.value, 0}].finished), FinishReason::length);
}

TEST_P(EngineTest, refuses_what_the_model_or_the_cache_cannot_hold) {
  const auto engine = make_tiny_engine({.max_model_len = 64}, kBlocks);
  const auto error = engine->submit(greedy(random_prompt(1, 60), 10)).error();
  EXPECT_EQ(error.code, ErrorCode::invalid_request);
  EXPECT_NE(error.message.find("maximum context length is 64 tokens"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("70 tokens"), std::string::npos) << error.message;
  EXPECT_TRUE(engine->is_idle());
}

TEST_P(EngineTest, serves_many_threads_from_its_own) {
  const auto engine = make_tiny_engine({.max_num_seqs = 8}, kBlocks);
  engine->start();
  ASSERT_TRUE(engine->pin(random_prompt(1, 64)));
  constexpr int kThreads = 4, kEach = 6;
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&engine, t] {
      for (int i = 0; i < kEach; ++i) {
        Request request = greedy(joined(random_prompt(1, 64), random_prompt(static_cast<std::uint32_t>(100 * t + i), 5)), 6);
        const auto id = engine->submit(request);
        ASSERT_TRUE(id);
        if (i % 3 == 2) engine->cancel(*id);
      }
    });
  }
  std::map<SequenceKey, Generated> generated;
  std::size_t n_finished = 0;
  while (n_finished < kThreads * kEach) {
    collect(engine->wait_events(std::chrono::milliseconds(1000)), generated);
    n_finished = static_cast<std::size_t>(
        std::ranges::count_if(generated, [](const auto& entry) { return entry.second.finished.has_value(); }));
  }
  for (std::thread& client : clients) client.join();
  for (const auto& [key, sequence] : generated) {
    if (sequence.finished == FinishReason::length) {
      EXPECT_EQ(sequence.tokens.size(), 6u);
      EXPECT_EQ(sequence.stats.cached_tokens, 64);
    } else {
      EXPECT_EQ(sequence.finished, FinishReason::abort);
    }
  }
  engine->stop();
  engine->check_invariants();
}

TEST_P(EngineTest, aborts_what_still_runs_when_it_is_stopped) {
  const auto engine = make_tiny_engine({.max_num_seqs = 2}, kBlocks);
  for (std::uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(engine->submit(greedy(random_prompt(i, 20), 1500)));
  std::map<SequenceKey, Generated> generated;
  for (int i = 0; i < 5; ++i) engine->step();
  collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
  EXPECT_EQ(generated.size(), 2u);
  engine->stop();
  engine->stop();
  collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
  ASSERT_EQ(generated.size(), 4u);
  for (const auto& [key, sequence] : generated) EXPECT_EQ(sequence.finished, FinishReason::abort);
  EXPECT_TRUE(engine->is_idle());
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
  EXPECT_EQ(engine->submit(greedy(random_prompt(1, 20), 4)).error().code, ErrorCode::unavailable);
  EXPECT_FALSE(engine->pin(random_prompt(1, 20)));
  engine->check_invariants();
}

}  // namespace
}  // namespace baton
