/// Random loads in tiny caches: every request ends with exactly the tokens that it gets when it runs alone.
#include "engine/engine.h"

#include <random>

#include <gtest/gtest.h>

#include "support/engine_device.h"

namespace baton {
namespace {

using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::random_prompt;
using testing::run_requests;
using testing::SequenceKey;

struct Load {
  EngineOptions options;
  std::int32_t n_blocks = 0;
  std::uint32_t seed = 0;
  std::uint32_t n_tenants = 1;
  bool is_recurrent = false;
};

Request random_load(std::mt19937& rng) {
  std::vector<TokenId> prompt = random_prompt(rng() % 2, 16 * (rng() % 5));
  prompt = joined(prompt, random_prompt(1000 + rng() % 7, 1 + rng() % 40));
  Request request = greedy(prompt, 1 + static_cast<std::int32_t>(rng() % 50));
  if (rng() % 2 == 0) {
    request.sampling.temperature = 1;
    request.sampling.seed = rng() % 5;
  }
  if (rng() % 3 == 0)
    request.sampling.stop_ids = {static_cast<TokenId>(3 + rng() % 157), static_cast<TokenId>(3 + rng() % 157)};
  if (rng() % 6 == 0) request.n_sequences = 2 + static_cast<std::int32_t>(rng() % 3);
  if (rng() % 4 == 0) request.priority = static_cast<std::int32_t>(rng() % 3) - 1;
  if (rng() % 4 == 0) request.scope = {.adapter = "", .salt = "tenant", .salt_from = 32};
  return request;
}

/// A cancelled sequence has the first of the tokens that it would have got.
void expect_as_alone(Engine& engine, const std::map<std::int64_t, Request>& requests,
                     const std::map<SequenceKey, Generated>& generated) {
  for (const auto& [key, sequence] : generated) {
    Request single = requests.at(key.first);
    single.n_sequences = 1;
    if (single.sampling.seed) single.sampling.seed = *single.sampling.seed + static_cast<std::uint64_t>(key.second);
    const Generated alone = run_requests(engine, {single})[0];
    if (sequence.finished == FinishReason::abort) {
      ASSERT_LE(sequence.tokens.size(), alone.tokens.size());
      EXPECT_TRUE(std::ranges::equal(sequence.tokens, std::span(alone.tokens).first(sequence.tokens.size())));
    } else {
      EXPECT_EQ(sequence.tokens, alone.tokens) << "request " << key.first << ", sequence " << key.second;
      EXPECT_EQ(sequence.finished, alone.finished);
      EXPECT_EQ(sequence.stop_id, alone.stop_id);
    }
  }
}

class EngineLoad : public testing::EngineOnDevice {
 protected:
  void run_load(Load load, int n_requests, std::int64_t* n_preempted) const;
};
INSTANTIATE_TEST_SUITE_P(Devices, EngineLoad, testing::engine_devices_at_each_pace(), testing::name_of_device);

void EngineLoad::run_load(Load load, int n_requests, std::int64_t* n_preempted) const {
  load.options.batch_invariant = true;
  std::mt19937 rng(load.seed);
  const ModelSpec spec = load.is_recurrent ? testing::recurrent_spec() : testing::tiny_spec();
  const auto engine = make_tiny_engine(load.options, load.n_blocks, spec);
  std::int32_t n_pinned = 0;
  if (load.options.enable_prefix_caching) {
    const auto prefix = engine->pin(random_prompt(0, 50));
    ASSERT_TRUE(prefix) << prefix.error().message;
    n_pinned = prefix->n_pinned_tokens / load.options.block_len;
  }
  std::map<std::int64_t, Request> requests;
  std::map<SequenceKey, Generated> generated;
  while (static_cast<int>(requests.size()) < n_requests || !engine->is_idle()) {
    if (static_cast<int>(requests.size()) < n_requests && rng() % 2 == 0) {
      Request request = random_load(rng);
      if (load.n_tenants > 1)
        request.tenant = {static_cast<std::int32_t>(rng() % load.n_tenants), 1 + static_cast<std::int32_t>(rng() % 3)};
      const auto id = engine->submit(request);
      ASSERT_TRUE(id) << id.error().message;
      requests[id->value] = request;
      for (std::int32_t i = 0; i < request.n_sequences; ++i) generated[{id->value, i}];
    }
    if (rng() % 15 == 0 && !requests.empty()) engine->cancel(RequestId{static_cast<std::int64_t>(rng() % requests.size())});
    engine->step();
    engine->check_invariants();
    collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  while (engine->step()) engine->check_invariants();
  EXPECT_EQ(engine->metrics().kv_blocks_used.value(), n_pinned);
  if (load.options.host_tier_bytes > 0) {
    EXPECT_GT(engine->metrics().kv_offload_loaded_bytes.value(), 0) << "nothing was loaded";
    EXPECT_LE(engine->metrics().host_tier_blocks.value(), engine->metrics().host_tier_blocks_total.value());
  }
  EXPECT_EQ(engine->metrics().num_requests_running.value() + engine->metrics().num_requests_waiting.value(), 0);
  *n_preempted += engine->metrics().num_preemptions.value();
  if (load.options.speculation.n_tokens > 0) {
    EXPECT_GT(engine->metrics().spec_decode_num_draft_tokens.value(), 20);
  }
  for (const auto& [key, sequence] : generated) ASSERT_TRUE(sequence.finished) << "request " << key.first << " never ended";
  EngineOptions alone;
  alone.has_priorities = true;
  alone.batch_invariant = load.options.batch_invariant;
  if (load.is_recurrent && load.options.enable_prefix_caching) {
    EXPECT_GT(engine->metrics().prefix_cache_hits.value(), 100);
    EXPECT_GT(engine->metrics().prompt_tokens_replayed.value(), 100);
    EXPECT_EQ(engine->metrics().state_snapshots_pinned.value(), 1);
    EXPECT_LE(engine->metrics().state_snapshots.value(), engine->metrics().state_slots_total.value());
  }
  const auto reference = make_tiny_engine(alone, 400, spec);
  expect_as_alone(*reference, requests, generated);
}

/// Few rows a step, so that prompts are computed in pieces and sequences make way for one another.
EngineOptions small_steps() {
  EngineOptions options;
  options.has_priorities = true;
  options.max_model_len = 160;
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 50;
  options.max_prefill_tokens = 20;
  return options;
}

TEST_P(EngineLoad, ends_every_request_with_the_tokens_it_gets_alone) {
  std::int64_t n_preempted = 0;
  EngineOptions options = small_steps();
  run_load({options, 14, 1}, 60, &n_preempted);
  options.relay = false;
  options.max_num_seqs = 12;
  options.max_num_batched_tokens = 200;
  run_load({options, 24, 2}, 60, &n_preempted);
  options.relay = true;
  options.enable_prefix_caching = false;
  options.max_num_batched_tokens = 7;
  run_load({options, 20, 3}, 30, &n_preempted);
  // On CUDA other tokens are sampled: some sequences end sooner and fewer are preempted (5 on an H200).
  EXPECT_GT(n_preempted, is_cuda() ? 2 : 5) << "the load was too light to show anything";
}

TEST_P(EngineLoad, ends_every_request_with_the_tokens_it_gets_alone_while_it_loads_from_the_host_tier) {
  if (testing::n_test_ranks() > 1) GTEST_SKIP() << "the host tier is refused with several ranks";
  std::int64_t n_preempted = 0;
  EngineOptions options = small_steps();
  constexpr std::int64_t kEntryBytes = 65536;  // of the tiny model, and half of it on CUDA
  options.host_tier_bytes = 200 * kEntryBytes;
  run_load({options, 14, 11}, 60, &n_preempted);
  options.relay = false;
  options.max_num_batched_tokens = 17;
  options.host_tier_bytes = 9 * kEntryBytes;
  run_load({options, 14, 12}, 60, &n_preempted);
  options.relay = true;
  options.host_tier_bytes = 60 * kEntryBytes;
  options.max_num_batched_tokens = 50;
  options.speculation = {.n_tokens = 5, .lookup_max = 3, .lookup_min = 1};
  run_load({options, 14, 13}, 60, &n_preempted);
  options.speculation = {};
  options.max_num_seqs = 4;
  run_load({options, 16, 14, 3}, 60, &n_preempted);
  EXPECT_GT(n_preempted, is_cuda() ? 2 : 5) << "the load was too light to show anything";
}

TEST_P(EngineLoad, ends_every_request_with_the_tokens_it_gets_alone_while_drafting) {
  std::int64_t n_preempted = 0;
  EngineOptions options = small_steps();
  options.speculation = {.n_tokens = 5, .lookup_max = 3, .lookup_min = 1};
  run_load({options, 14, 4}, 60, &n_preempted);
  options.relay = false;
  options.max_num_seqs = 12;
  options.enable_prefix_caching = false;
  options.max_num_batched_tokens = 14;
  // The cache is so small that sequences are preempted even on a busy machine, where fewer drafts are made.
  run_load({options, 14, 5}, 120, &n_preempted);
  // On CUDA other tokens are sampled: some sequences end sooner and fewer are preempted (5 on an H200).
  // How many drafts there are, and so how full the cache is, depends on the time that steps take.
  EXPECT_GT(n_preempted, 2) << "the load was too light to show anything";
}

TEST_P(EngineLoad, ends_every_request_with_the_tokens_it_gets_alone_from_snapshots_of_states) {
  if (testing::n_test_ranks() > 1) GTEST_SKIP() << "recurrent layers are refused with several ranks";
  if (is_cuda() && !make_backend("cuda", {}).value()->capabilities().has_recurrent_layers)
    GTEST_SKIP() << "this device has no recurrent layers";
  std::int64_t n_preempted = 0;
  EngineOptions options = small_steps();
  options.snapshot_bytes = 2 * testing::recurrent_state_bytes(DType::f32);
  run_load({options, 24, 21, 1, true}, 80, &n_preempted);
  options.relay = false;
  options.max_num_seqs = 12;
  options.max_num_batched_tokens = 200;
  options.snapshot_bytes = 40 * testing::recurrent_state_bytes(DType::f32);
  run_load({options, 34, 22, 3, true}, 80, &n_preempted);
  options.enable_prefix_caching = false;
  options.snapshot_bytes.reset();
  options.max_num_batched_tokens = 14;
  run_load({options, 20, 23, 1, true}, 40, &n_preempted);
  EXPECT_GT(n_preempted, is_cuda() ? 2 : 5) << "the load was too light to show anything";
}

TEST_P(EngineLoad, ends_every_request_of_several_tenants_with_the_tokens_it_gets_alone) {
  std::int64_t n_preempted = 0;
  EngineOptions options = small_steps();
  options.max_num_seqs = 4;
  run_load({options, 100, 6, 3}, 80, &n_preempted);
  EXPECT_GT(n_preempted, 5) << "no tenant made way for another";
  options.max_num_seqs = 8;
  run_load({options, 16, 7, 2}, 60, &n_preempted);
  options.speculation = {.n_tokens = 5, .lookup_max = 3, .lookup_min = 1};
  run_load({options, 20, 8, 4}, 60, &n_preempted);
}

}  // namespace
}  // namespace baton
