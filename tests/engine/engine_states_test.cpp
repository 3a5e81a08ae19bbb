/// Engine with a model that has recurrent layers: states follow their sequences through chunks of prompts, preemption, cancellation
/// and slots that others have left, and what states do not allow is refused.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/engine_device.h"
#include "support/grammar_vocabulary.h"
#include "support/held_engine.h"

namespace baton {
namespace {

using testing::AsyncBackend;
using testing::collect;
using testing::create_tiny_engine;
using testing::expect_same_bits;
using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::make_async_engine;
using testing::make_tiny_engine;
using testing::Pace;
using testing::random_prompt;
using testing::recurrent_spec;
using testing::recurrent_state_bytes;
using testing::run_requests;
using testing::run_to_end;
using testing::SequenceKey;
using testing::tiny_spec;

EngineOptions state_options() {
  return {.batch_invariant = true, .max_num_seqs = 8, .max_num_batched_tokens = 60, .max_model_len = 160};
}

/// Requests that share prompts, stop early, and sample; more than there are slots.
std::vector<Request> state_requests() {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 14; ++i) {
    Request request = greedy(joined(random_prompt(i % 2, 16 * (i % 2)), random_prompt(50 + i, 3 + 7 * (i % 5))), 90);
    if (i % 2 == 1) {
      request.sampling.temperature = 1;
      request.sampling.seed = i;
    }
    if (i % 3 == 0) request.sampling.stop_ids = random_prompt(i, 6);
    if (i % 5 == 0) request.n_sequences = 2;
    requests.push_back(request);
  }
  return requests;
}

/// Each request by itself, on an engine that has room for all of it, its prompt in one step.
std::vector<Generated> one_by_one(const std::vector<Request>& requests) {
  std::vector<Generated> all;
  for (const Request& request : requests) {
    EngineOptions options = state_options();
    options.max_num_batched_tokens = 2048;
    const auto engine = make_tiny_engine(options, 100, recurrent_spec(), 1);
    // Seeds are functions of the request alone.
    for (Generated& generated : run_requests(*engine, {request})) all.push_back(std::move(generated));
  }
  return all;
}

TEST(EngineStates, sequences_have_the_same_bits_alone_and_preempted_in_a_crowd) {
  const std::vector<Request> requests = state_requests();
  const std::vector<Generated> expected = one_by_one(requests);
  const auto cpu = make_tiny_engine(state_options(), 20, recurrent_spec(), 1);
  expect_same_bits(run_requests(*cpu, requests), expected, "cpu");
  EXPECT_GT(cpu->metrics().num_preemptions.value(), 0) << "the load was too light to show anything";
  for (const Pace pace : {Pace::late, Pace::at_once, Pace::random}) {
    AsyncBackend* device = nullptr;
    const auto engine = make_async_engine(state_options(), 20, pace, recurrent_spec(), &device);
    expect_same_bits(run_requests(*engine, requests), expected, "pace " + std::to_string(static_cast<int>(pace)));
    EXPECT_GT(engine->metrics().num_preemptions.value(), 0);
    EXPECT_GT(device->n_replays(), 10u) << "decode steps are replayed";
  }
}

TEST(EngineStates, relayed_and_paged_attention_have_the_same_bits) {
  EngineOptions paged = state_options();
  paged.relay = false;
  expect_same_bits(run_requests(*make_tiny_engine(paged, 60, recurrent_spec(), 1), state_requests()),
                   run_requests(*make_tiny_engine(state_options(), 60, recurrent_spec(), 1), state_requests()));
}

TEST(EngineStates, slots_of_cancelled_sequences_begin_at_zero_for_later_ones) {
  std::vector<Request> kept;
  for (std::uint32_t i = 0; i < 12; ++i) kept.push_back(greedy(random_prompt(80 + i, 5 + 13 * (i % 4)), 20));
  const std::vector<Generated> expected = one_by_one(kept);
  for (const Pace pace : {Pace::late, Pace::random}) {
    AsyncBackend* device = nullptr;
    EngineOptions options = state_options();
    options.max_num_seqs = 3;
    const auto engine = make_async_engine(options, 60, pace, recurrent_spec(), &device);
    std::map<SequenceKey, Generated> generated;
    std::vector<SequenceKey> keys;
    for (const Request& request : kept) {
      const RequestId cancelled = engine->submit(greedy(random_prompt(7, 70), 80)).value();
      keys.push_back({engine->submit(request).value().value, 0});
      for (int i = 0; i < 4; ++i) {
        engine->step();
        engine->check_invariants();
      }
      engine->cancel(cancelled);
    }
    run_to_end(*engine, generated);
    std::vector<Generated> got;
    for (const SequenceKey& key : keys) got.push_back(generated[key]);
    expect_same_bits(got, expected, "pace " + std::to_string(static_cast<int>(pace)));
    EXPECT_EQ(engine->metrics().kv_blocks_used.value(), 0);
  }
}

/// Room for long prompts and many snapshots.
EngineOptions long_options() {
  return {.batch_invariant = true,
          .max_num_seqs = 8,
          .max_num_batched_tokens = 256,
          .max_model_len = 2048,
          .snapshot_bytes = std::int64_t{60} * recurrent_state_bytes(DType::f32)};
}

/// Tokens that the request computes although a cache of keys alone would have given them.
std::int32_t n_replayed(Engine& engine, const Request& request, Generated* answer = nullptr) {
  const Generated generated = run_requests(engine, {request})[0];
  if (answer != nullptr) *answer = generated;
  return generated.stats.replayed_tokens;
}

TEST(EngineStates, the_same_prompt_again_continues_near_its_end) {
  const auto engine = make_tiny_engine(long_options(), 130, recurrent_spec(), 1);
  EXPECT_TRUE(engine->info().enable_prefix_caching);
  EXPECT_EQ(engine->info().state_slot_bytes, recurrent_state_bytes(DType::f32));
  EXPECT_EQ(engine->info().n_state_slots, 8 + 60);
  for (const std::size_t n : {40U, 64U, 65U, 100U, 700U}) {
    const Request request = greedy(random_prompt(static_cast<std::uint32_t>(n), n), 6);
    const std::vector<Generated> first = run_requests(*engine, {request});
    EXPECT_EQ(first[0].stats.cached_tokens, 0);
    const std::vector<Generated> again = run_requests(*engine, {request});
    expect_same_bits(again, first, std::to_string(n));
    EXPECT_EQ(again[0].stats.cached_tokens + again[0].stats.replayed_tokens, (n - 1) / 16 * 16);
    EXPECT_LE(again[0].stats.replayed_tokens, 64) << n;
  }
  EXPECT_GT(engine->metrics().prompt_tokens_replayed.value(), 0);
}

TEST(EngineStates, the_third_request_with_a_shared_beginning_continues_there) {
  for (const std::size_t n_shared : {480U, 1600U}) {
    for (const std::size_t n_own : {40U, 376U}) {
      const auto engine = make_tiny_engine(long_options(), 600, recurrent_spec(), 1);
      const auto request = [&](std::uint32_t i) {
        return greedy(joined(random_prompt(1, n_shared), random_prompt(100 + i, n_own)), 5);
      };
      n_replayed(*engine, request(0));
      EXPECT_GE(n_replayed(*engine, request(1)), 480) << "the first request did not know of the fork";
      for (std::uint32_t i = 2; i < 8; ++i) EXPECT_LE(n_replayed(*engine, request(i)), 64) << i;
    }
  }
}

TEST(EngineStates, requests_that_come_together_replay_a_shared_prompt_once) {
  for (const Pace pace : {Pace::late, Pace::at_once}) {
    const auto engine = make_async_engine(long_options(), 300, pace, recurrent_spec());
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < 16; ++i)
      requests.push_back(greedy(joined(random_prompt(1, 640), random_prompt(100 + i, 20)), 5));
    std::int32_t n_computed = 0;
    for (const Generated& generated : run_requests(*engine, requests)) n_computed += 660 - generated.stats.cached_tokens;
    EXPECT_LT(n_computed, 2 * 640 + 16 * (20 + 64)) << "one computes it and one replays it at most";
  }
}

TEST(EngineStates, turns_of_a_conversation_continue_where_the_answer_ended) {
  for (const bool is_constrained : {false, true}) {
    for (const Pace pace : {Pace::late, Pace::random}) {
      const auto engine = make_async_engine(long_options(), 200, pace, recurrent_spec());
      std::vector<TokenId> conversation = random_prompt(1, 200);
      for (std::uint32_t turn = 0; turn < 8; ++turn) {
        conversation = joined(conversation, random_prompt(10 + turn, 30));
        Request request = greedy(conversation, 90);
        if (is_constrained) request.constraint = testing::constraint_of(grammar::GrammarKind::regex, "[a-z]*", false);
        Generated answer;
        const std::int32_t n = n_replayed(*engine, request, &answer);
        if (turn > 0) {
          EXPECT_LE(n, 64) << turn;
          EXPECT_GT(answer.stats.cached_tokens, 64 * static_cast<std::int32_t>(turn));
        }
        conversation = joined(conversation, answer.tokens);
      }
      EXPECT_GT(conversation.size(), 500U) << "the answers were too short to show anything";
      engine->check_invariants();
    }
  }
}

TEST(EngineStates, a_registered_prefix_is_continued_by_the_first_request) {
  const auto engine = make_tiny_engine(long_options(), 200, recurrent_spec(), 1);
  for (const std::size_t n : {20U, 200U}) {
    const auto prefix = random_prompt(static_cast<std::uint32_t>(n), n);
    const auto pinned = engine->pin(prefix, {}, {});
    ASSERT_TRUE(pinned) << pinned.error().message;
    const Generated answer = run_requests(*engine, {greedy(joined(prefix, random_prompt(7, 30)), 4)})[0];
    EXPECT_EQ(answer.stats.cached_tokens, pinned->n_pinned_tokens);
    EXPECT_EQ(answer.stats.replayed_tokens, 0);
  }
  EXPECT_EQ(engine->metrics().state_snapshots_pinned.value(), 2);
  // One that others computed already: its end is replayed.
  const auto prompt = random_prompt(5, 300);
  run_requests(*engine, {greedy(prompt, 4)});
  const auto prefix = std::vector<TokenId>(prompt.begin(), prompt.begin() + 170);
  const auto pinned = engine->pin(prefix, {}, {});
  ASSERT_TRUE(pinned) << pinned.error().message;
  EXPECT_EQ(n_replayed(*engine, greedy(joined(prefix, random_prompt(8, 30)), 4)), 0);
  engine->unpin(pinned->id);
  engine->step();
  EXPECT_EQ(engine->metrics().state_snapshots_pinned.value(), 2);
  engine->check_invariants();
  EngineOptions none = long_options();
  none.snapshot_bytes = 0;
  const auto small = make_tiny_engine(none, 200, recurrent_spec(), 1);
  const auto refused = small->pin(prefix, {}, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("raise --state-cache-memory-bytes"), std::string::npos) << refused.error().message;
}

TEST(EngineStates, answers_have_the_same_bits_with_and_without_snapshots) {
  std::vector<Request> requests = state_requests();
  for (std::uint32_t i = 0; i < 5; ++i)
    requests.push_back(greedy(joined(random_prompt(1, 96), random_prompt(200 + i, 1 + 11 * i)), 12));
  EngineOptions off = state_options();
  off.enable_prefix_caching = false;
  off.snapshot_bytes.reset();
  const auto expected = run_requests(*make_tiny_engine(off, 60, recurrent_spec(), 1), requests);
  for (const std::int64_t n_snapshots : {0, 1, 30}) {
    EngineOptions options = state_options();
    options.snapshot_bytes = n_snapshots * recurrent_state_bytes(DType::f32);
    for (const Pace pace : {Pace::late, Pace::random}) {
      const auto engine = make_async_engine(options, 60, pace, recurrent_spec());
      for (const char* cache : {"cold", "warm"})
        expect_same_bits(run_requests(*engine, requests), expected, cache + std::to_string(n_snapshots));
      EXPECT_GT(engine->metrics().prefix_cache_hits.value(), 0);
    }
  }
}

TEST(EngineStates, an_interval_serves_unannounced_forks_with_the_same_bits) {
  EngineOptions options = long_options();
  options.state_snapshot_interval = 128;
  const Request first = greedy(joined(random_prompt(1, 700), random_prompt(2, 100)), 4);
  const Request fork = greedy(joined(random_prompt(1, 600), random_prompt(3, 60)), 4);
  const Request in_prefix = greedy(joined(random_prompt(5, 300), random_prompt(6, 40)), 4);
  const std::vector<Generated> expected =
      run_requests(*make_tiny_engine(long_options(), 130, recurrent_spec(), 1), {first, fork});
  for (const Pace pace : {Pace::late, Pace::at_once}) {
    const auto engine = make_async_engine(options, 200, pace, recurrent_spec());
    expect_same_bits(run_requests(*engine, {first}), {expected[0]});
    const std::vector<Generated> got = run_requests(*engine, {fork});
    expect_same_bits(got, {expected[1]});
    EXPECT_EQ(got[0].stats.cached_tokens, 512);
    EXPECT_EQ(got[0].stats.replayed_tokens, 592 - 512);
    ASSERT_TRUE(engine->pin(random_prompt(5, 400), {}, {}));
    EXPECT_EQ(n_replayed(*engine, in_prefix), 288 - 256) << "also in registered prefixes";
    engine->check_invariants();
  }
}

TEST(EngineStates, an_interval_that_cuts_chunks_or_blocks_or_that_prompts_do_not_reach_is_refused) {
  std::int32_t max_model_len = 160;
  const auto refusal_of = [&](std::int32_t interval, std::int32_t block_len, const ModelSpec& spec, bool has_cache) {
    EngineOptions options = long_options();
    options.state_snapshot_interval = interval;
    options.block_len = block_len;
    options.enable_prefix_caching = has_cache;
    options.max_model_len = max_model_len;
    options.snapshot_bytes.reset();
    const auto engine = create_tiny_engine(make_backend("cpu", {}).value(), options, 20, spec);
    return engine ? std::string("none") : engine.error().message;
  };
  EXPECT_EQ(refusal_of(128, 16, recurrent_spec(), true), "none");
  for (const std::int32_t interval : {-64, 16, 100})
    EXPECT_EQ(
        refusal_of(interval, 16, recurrent_spec(), true),
        "--state-snapshot-interval " + std::to_string(interval) +
            ": it must be 0 (off) or a multiple of 64, the positions of a chunk in which recurrent layers compute prompts");
  EXPECT_EQ(refusal_of(192, 128, recurrent_spec(), true),
            "--state-snapshot-interval 192: it must be 0 (off) or a multiple of 128, the tokens of a block (--block-size)");
  EXPECT_NE(refusal_of(64, 16, recurrent_spec(), false).find("the prefix cache, which is off"), std::string::npos);
  EXPECT_NE(refusal_of(64, 16, tiny_spec(), true).find("has no recurrent layers"), std::string::npos);
  EXPECT_EQ(refusal_of(192, 16, recurrent_spec(), true),
            "--state-snapshot-interval 192: prompts have fewer than 160 tokens (--max-model-len), so none would have a "
            "snapshot at an "
            "interval");
  max_model_len = 128;
  EXPECT_NE(refusal_of(128, 16, recurrent_spec(), true).find("fewer than 128 tokens"), std::string::npos);
  max_model_len = 0;
  EXPECT_NE(refusal_of(2048, 16, recurrent_spec(), true).find("fewer than 2048 tokens (the model's limit)"), std::string::npos);
}

TEST(EngineStates, an_interval_that_the_chosen_length_of_contexts_does_not_reach_is_logged) {
  const auto logged_with = [](std::int32_t interval) {
    EngineOptions options = long_options();
    options.max_model_len = kFittingLength;
    options.state_snapshot_interval = interval;
    ::testing::internal::CaptureStderr();
    const auto engine = make_tiny_engine(options, 20, recurrent_spec(), 1);
    EXPECT_EQ(engine->info().max_model_len, 20 * 16);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string logged = logged_with(320);
  EXPECT_NE(logged.find("event=no_interval_snapshots state_snapshot_interval=320 max_model_len=320 "), std::string::npos)
      << logged;
  EXPECT_NE(logged.find(" snapshots=60 snapshot_interval=320 "), std::string::npos) << logged;
  EXPECT_EQ(logged_with(256).find("event=no_interval_snapshots"), std::string::npos);
}

// Rounded after each row, they are the same numbers wherever steps end.
TEST(EngineStates, in_bfloat16_give_the_same_bits_relayed_and_paged_and_with_and_without_snapshots_and_drafts) {
  std::vector<Request> requests = state_requests();
  for (std::uint32_t i = 0; i < 5; ++i)
    requests.push_back(greedy(joined(random_prompt(1, 96), random_prompt(200 + i, 1 + 11 * i)), 12));
  EngineOptions off = state_options();
  off.state_dtype = DType::bf16;
  off.enable_prefix_caching = false;
  const auto without = make_tiny_engine(off, 60, recurrent_spec(), 1);
  EXPECT_EQ(without->info().state_dtype, DType::bf16);
  EXPECT_EQ(without->info().state_slot_bytes, recurrent_state_bytes(DType::bf16));
  const auto expected = run_requests(*without, requests);
  EngineOptions in_f32 = off;
  in_f32.state_dtype = DType::f32;
  EXPECT_NE(run_requests(*make_tiny_engine(in_f32, 60, recurrent_spec(), 1), requests)[0].logprobs, expected[0].logprobs);
  EngineOptions paged = off;
  paged.relay = false;
  expect_same_bits(run_requests(*make_tiny_engine(paged, 60, recurrent_spec(), 1), requests), expected, "paged");
  for (const std::int64_t n_snapshots : {0, 1, 30}) {
    for (const std::int32_t n_drafts : {0, 3}) {
      EngineOptions options = state_options();
      options.state_dtype = DType::bf16;
      options.snapshot_bytes = n_snapshots * recurrent_state_bytes(DType::bf16);
      options.speculation.n_tokens = n_drafts;
      const auto engine = make_async_engine(options, 60, Pace::random, recurrent_spec());
      EXPECT_EQ(engine->info().n_state_slots, 8 + n_snapshots);
      for (const char* cache : {"cold", "warm"})
        expect_same_bits(run_requests(*engine, requests), expected, cache + std::to_string(n_snapshots));
      EXPECT_GT(engine->metrics().prefix_cache_hits.value(), 0);
    }
  }
}

TEST(EngineStates, a_model_with_windows_beside_recurrent_layers_has_no_prefix_cache) {
  ModelSpec spec = recurrent_spec();
  for (LayerSpec& layer : spec.layers)
    if (!layer.is_recurrent()) layer.attention.window = 32;
  EngineOptions options = state_options();
  options.snapshot_bytes.reset();
  EXPECT_FALSE(make_tiny_engine(options, 60, spec, 1)->info().enable_prefix_caching);
}

TEST(EngineStates, a_step_waits_for_its_masks) {
  EngineOptions options = state_options();
  options.mask_budget = {.time = std::chrono::microseconds(1), .steps = 16, .steps_of_turn = 16};
  const auto engine = make_tiny_engine(options, 60, recurrent_spec(), 1);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 4; ++i) {
    Request request = greedy(random_prompt(i, 13), 30);
    request.constraint = testing::constraint_of(grammar::GrammarKind::regex, "([a-c]|ab|[ab]{2,5}x){3,40}y?", i % 2 == 0);
    request.sampling.ignore_eos = false;
    requests.push_back(request);
  }
  const std::vector<Generated> together = run_requests(*engine, requests);
  EXPECT_EQ(engine->metrics().mask_deferrals.value(), 0);
  expect_same_bits(together, one_by_one(requests));
}

TEST(EngineStates, memory_for_snapshots_is_refused_where_there_are_none) {
  const auto refusal_of = [](const EngineOptions& options, const ModelSpec& spec) {
    const auto engine = create_tiny_engine(make_backend("cpu", {}).value(), options, 20, spec);
    return engine ? std::string("none") : engine.error().message;
  };
  EngineOptions options = state_options();
  options.snapshot_bytes = 4 * recurrent_state_bytes(DType::f32);
  EXPECT_EQ(refusal_of(options, recurrent_spec()), "none");
  EXPECT_NE(refusal_of(options, tiny_spec()).find("has no recurrent layers"), std::string::npos);
  options.enable_prefix_caching = false;
  EXPECT_NE(refusal_of(options, recurrent_spec()).find("the prefix cache, which is off"), std::string::npos);
}

TEST(EngineStates, memory_for_less_than_a_snapshot_is_named) {
  const auto logged_with = [](std::int64_t bytes, std::int32_t interval = 0) {
    EngineOptions options = state_options();
    options.snapshot_bytes = bytes;
    options.state_snapshot_interval = interval;
    ::testing::internal::CaptureStderr();
    const auto engine = make_tiny_engine(options, 20, recurrent_spec(), 1);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string logged = logged_with(recurrent_state_bytes(DType::f32) - 1);
  EXPECT_NE(logged.find("event=no_snapshots state_cache_memory_bytes=29183 state_bytes=29184 "), std::string::npos) << logged;
  for (const std::int64_t bytes : {std::int64_t{0}, recurrent_state_bytes(DType::f32)})
    EXPECT_EQ(logged_with(bytes).find("event=no_snapshots"), std::string::npos) << bytes;
  const std::string with_interval = logged_with(0, 64);
  EXPECT_NE(with_interval.find("state_cache_memory_bytes=0 state_bytes=29184 state_snapshot_interval=64 effect="),
            std::string::npos)
      << with_interval;
  EXPECT_EQ(logged_with(recurrent_state_bytes(DType::f32), 64).find("event=no_snapshots"), std::string::npos);
}

TEST(EngineStates, states_that_do_not_fit_are_refused_with_their_sizes) {
  ModelSpec spec = recurrent_spec();
  for (LayerSpec& layer : spec.layers)
    if (layer.delta) {
      layer.delta->n_heads = 512;
      layer.delta->key_dim = layer.delta->value_dim = 256;
    }
  EngineOptions options = state_options();
  options.max_num_seqs = 4096;
  const StateShape shape = state_shape(spec, 4096, DType::f32);
  EXPECT_EQ(shape.slot_bytes(), 3 * 4 * (3 * (2LL * 256 + 512 * 256) + 512LL * 256 * 256));
  auto engine = create_tiny_engine(std::move(make_backend("cpu", {}).value()), options, 20, spec);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(engine.error().message.find("lower --max-num-seqs"), std::string::npos) << engine.error().message;
}

}  // namespace
}  // namespace baton
