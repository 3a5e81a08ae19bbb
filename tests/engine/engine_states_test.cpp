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
using testing::run_requests;
using testing::run_to_end;
using testing::SequenceKey;

/// Three recurrent layers and one with attention.
ModelSpec recurrent_spec() {
  auto spec = parse_model_spec(R"({"architectures": ["Qwen3_5ForCausalLM"], "num_hidden_layers": 4, "hidden_size": 48,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 80, "vocab_size": 160,
      "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
      "max_position_embeddings": 2048, "eos_token_id": 2})",
                               "the recurrent model");
  EXPECT_TRUE(spec) << spec.error().message;
  return std::move(*spec);
}

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

TEST(EngineStates, nothing_is_found_in_a_cache) {
  const auto engine = make_tiny_engine(state_options(), 60, recurrent_spec(), 1);
  EXPECT_FALSE(engine->info().enable_prefix_caching);
  EXPECT_EQ(engine->info().state_slot_bytes, 3 * 4 * (3 * 128 + 2 * 32 * 32));
  const Request request = greedy(random_prompt(1, 64), 4);
  const std::vector<Generated> first = run_requests(*engine, {request});
  const std::vector<Generated> again = run_requests(*engine, {request});
  expect_same_bits(again, first);
  EXPECT_EQ(again[0].stats.cached_tokens, 0);
  const auto pinned = engine->pin(random_prompt(1, 64), {}, {});
  ASSERT_FALSE(pinned);
  EXPECT_NE(pinned.error().message.find("recurrent layers"), std::string::npos) << pinned.error().message;
}

TEST(EngineStates, a_step_waits_for_its_masks_and_drafts_nothing) {
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

TEST(EngineStates, refuses_what_states_do_not_allow) {
  const auto refusal = [](const EngineOptions& options) {
    auto backend = make_backend("cpu", {});
    auto engine = create_tiny_engine(std::move(*backend), options, 20, recurrent_spec());
    return engine ? std::string() : engine.error().message;
  };
  EngineOptions drafting = state_options();
  drafting.speculation.n_tokens = 3;
  EXPECT_EQ(refusal(drafting), "--speculative-config: it is not offered for Qwen3_5ForCausalLM, which has recurrent layers");
  EngineOptions tiered = state_options();
  tiered.host_tier_bytes = 1 << 20;
  EXPECT_EQ(refusal(tiered), "--kv-offloading-size: it is not offered for Qwen3_5ForCausalLM, which has recurrent layers");
  const auto engine = make_tiny_engine(state_options(), 20, recurrent_spec(), 1);
  Request request = greedy(random_prompt(1, 5), 5);
  request.speculation = SpeculationOptions{.n_tokens = 2};
  const auto submitted = engine->submit(request);
  ASSERT_FALSE(submitted);
  EXPECT_EQ(submitted.error().message,
            "num_speculative_tokens must be 0, not 2: this model has recurrent layers, whose states take no drafts");
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
  const StateShape shape = state_shape(spec, 4096);
  EXPECT_EQ(shape.slot_bytes(), 3 * 4 * (3 * (2LL * 256 + 512 * 256) + 512LL * 256 * 256));
  auto engine = create_tiny_engine(std::move(make_backend("cpu", {}).value()), options, 20, spec);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(engine.error().message.find("lower --max-num-seqs"), std::string::npos) << engine.error().message;
}

}  // namespace
}  // namespace baton
