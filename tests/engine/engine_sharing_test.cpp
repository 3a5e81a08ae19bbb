/// Answers do not depend on how prompts are shared: cold or warm, relay or paged, alone or in a batch, in chunks,
/// after a preemption.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include "support/engine_device.h"

namespace baton {
namespace {

using testing::expect_same_bits;
using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::random_prompt;
using testing::run_requests;

class EngineSharing : public testing::EngineOnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, EngineSharing, testing::engine_devices(), testing::name_of_device);

/// Prompt a with two nested levels below it, prompts b and c, and four prompts that share nothing.
std::vector<Request> catalogue_load(std::int32_t max_tokens) {
  const auto a = random_prompt(1, 512), b = random_prompt(2, 272), c = random_prompt(3, 300);
  const auto a_tenant = joined(a, random_prompt(4, 256)), a_conversation = joined(a_tenant, random_prompt(5, 256));
  std::vector<Request> requests;
  std::uint32_t seed = 100;
  const auto ask = [&](const std::vector<TokenId>& prompt, std::size_t own) {
    requests.push_back(greedy(joined(prompt, random_prompt(++seed, own)), max_tokens));
  };
  for (int i = 0; i < 2; ++i) {
    ask(a, 5);
    ask(a_tenant, 9);
    ask(a_conversation, 3);
    ask(a_conversation, 30);
    ask(b, 7);
    ask(b, 2);
    ask(c, 40);
  }
  for (const std::size_t len : {1U, 17U, 90U, 333U}) ask({}, len);
  return requests;
}

TEST_P(EngineSharing, relays_every_shared_node_of_a_step_with_nested_levels_and_strangers) {
  if (is_cuda()) GTEST_SKIP() << kOtherCosts;
  const auto engine = make_tiny_engine({.max_num_batched_tokens = 4096}, 1200);
  ASSERT_TRUE(engine->pin(random_prompt(1, 512)));
  ASSERT_TRUE(engine->pin(joined(random_prompt(1, 512), random_prompt(4, 256))));
  std::map<testing::SequenceKey, Generated> generated;
  const auto requests = catalogue_load(12);
  for (const Request& request : requests) ASSERT_TRUE(engine->submit(request));
  // After three steps all sequences decode: the ones that waited for a prefix prefill were admitted in the second step.
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(engine->step());
    engine->check_invariants();
    collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
  }
  const EngineMetrics& metrics = engine->metrics();
  EXPECT_EQ(metrics.num_requests_running.value(), 18);
  EXPECT_EQ(metrics.relay_groups.value(), 5) << "a, its tenant, its conversation, b and c";
  const std::int64_t requested = metrics.kv_bytes_requested.value(), saved = metrics.kv_bytes_saved.value();
  ASSERT_TRUE(engine->step());
  collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
  EXPECT_EQ(metrics.relay_groups.value(), 5);
  // The bytes of one decode step: keys and values of 2 layers of a rank's part of 4 heads of 64 floats. Nodes have full blocks: a 512
  // tokens for 8, tenant 256 for 6, conversation 256 for 4, b 272 for 4, c 288 for 2.
  const std::int64_t token_bytes = 2 * 2 * (4 / engine->info().backend.world_size) * 64 * 4;
  EXPECT_EQ(metrics.kv_bytes_saved.value() - saved, token_bytes * (7 * 512 + 5 * 256 + 3 * 256 + 3 * 272 + 1 * 288));
  EXPECT_GT(metrics.kv_bytes_requested.value() - requested, token_bytes * (512 + 256 + 256 + 272 + 288));
  run_to_end(*engine, generated);

  const Generated& conversation = generated[{2, 0}];
  EXPECT_EQ(conversation.stats.largest_group, 8);
  EXPECT_GE(conversation.stats.relayed_tokens, 10 * (512 + 256 + 256));
  EXPECT_GT(conversation.stats.kv_bytes_saved, conversation.stats.kv_bytes_requested);
  const Generated& stranger = generated[{16, 0}];
  EXPECT_EQ(stranger.stats.largest_group, 1);
  EXPECT_EQ(stranger.stats.relayed_tokens, 0);
  EXPECT_EQ(stranger.stats.kv_bytes_saved, 0);
}

TEST_P(EngineSharing, saves_nothing_and_answers_the_same_with_paged_attention) {
  const auto relay = make_tiny_engine({}, 1200);
  const auto paged = make_tiny_engine({.relay = false}, 1200);
  const auto requests = catalogue_load(8);
  const auto with = run_requests(*relay, requests), without = run_requests(*paged, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) expect_same_tokens(with[i], without[i]);
  EXPECT_TRUE(is_cuda() || relay->metrics().kv_bytes_saved.value() > 0) << kOtherCosts;
  EXPECT_EQ(paged->metrics().kv_bytes_saved.value(), 0);
  EXPECT_EQ(paged->metrics().relay_groups.value(), 0);
  EXPECT_EQ(paged->info().attention, "paged");
}

TEST_P(EngineSharing, batch_invariant_gives_the_same_bits_however_the_work_is_shared) {
  const auto requests = catalogue_load(8);
  EngineOptions options;
  options.batch_invariant = true;
  const auto reference_engine = make_tiny_engine(options, 1200);
  const auto reference = run_requests(*reference_engine, requests);
  ASSERT_FALSE(::testing::Test::HasFailure());
  expect_same_bits(run_requests(*reference_engine, requests), reference, "warm");

  std::vector<Generated> alone;
  EngineOptions unshared = options;
  unshared.relay = false;
  unshared.enable_prefix_caching = false;
  const auto alone_engine = make_tiny_engine(unshared, 1200);
  for (const Request& request : requests) alone.push_back(run_requests(*alone_engine, {request})[0]);
  expect_same_bits(alone, reference, "alone, unshared");

  EngineOptions paged = options;
  paged.relay = false;
  expect_same_bits(run_requests(*make_tiny_engine(paged, 1200), requests), reference, "paged");

  EngineOptions chunked = options;
  chunked.max_num_batched_tokens = 77;
  expect_same_bits(run_requests(*make_tiny_engine(chunked, 1200), requests), reference, "in chunks of 77 rows");

  EngineOptions wide = options;
  wide.block_len = 64;
  expect_same_bits(run_requests(*make_tiny_engine(wide, 300), requests), reference, "in blocks of 64");

  EngineOptions tight = options;
  tight.max_model_len = 1200;
  const auto tight_engine = make_tiny_engine(tight, 100);
  expect_same_bits(run_requests(*tight_engine, requests), reference, "in a cache that holds two");
}

TEST_P(EngineSharing, a_preempted_sequence_continues_with_the_same_random_numbers) {
  EngineOptions options;
  options.batch_invariant = true;
  options.max_model_len = 320;
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 6; ++i) {
    requests.push_back(greedy(random_prompt(i, 30), 100));
    requests.back().sampling.temperature = 0.8F;
    requests.back().sampling.top_p = 0.95F;
    requests.back().sampling.seed = 1000 + i;
    requests.back().sampling.n_top_logprobs = 3;
  }
  const auto roomy = make_tiny_engine(options, 400);
  const auto tight = make_tiny_engine(options, 22);
  const auto expected = run_requests(*roomy, requests), got = run_requests(*tight, requests);
  EXPECT_EQ(roomy->metrics().num_preemptions.value(), 0);
  EXPECT_GT(tight->metrics().num_preemptions.value(), 0);
  expect_same_bits(got, expected, "preempted");
  for (const Generated& sequence : got) {
    EXPECT_EQ(sequence.tokens.size(), 100u);
    EXPECT_EQ(sequence.top[0].size(), 3u);
  }
  EXPECT_EQ(tight->metrics().prompt_tokens.value(), 180) << "a second admission is no new prompt";
  EXPECT_EQ(tight->metrics().prefix_cache_queries.value(), 180);
}

TEST_P(EngineSharing, salted_prompts_share_nothing_after_the_salt_and_answer_the_same) {
  const auto engine = make_tiny_engine({}, 400);
  const auto prompt = random_prompt(9, 200);
  Request request = greedy(prompt, 6);
  const Generated plain = run_requests(*engine, {request})[0];
  for (const char* salt : {"one", "two"}) {
    request.scope = {.adapter = "", .salt = salt, .salt_from = 100};
    const Generated first = run_requests(*engine, {request})[0], second = run_requests(*engine, {request})[0];
    EXPECT_EQ(first.stats.cached_tokens, 96);
    EXPECT_EQ(second.stats.cached_tokens, 192);
    expect_same_tokens(first, plain);
    expect_same_tokens(second, plain);
  }
}

TEST_P(EngineSharing, prefixes_of_a_salt_are_kept_for_that_salt_alone) {
  const auto engine = make_tiny_engine({}, 160);
  const auto prompt = random_prompt(9, 200);
  const CacheScope one{.adapter = "", .salt = "one", .salt_from = 0};
  const auto ones = engine->pin(prompt, one);
  ASSERT_TRUE(ones) << ones.error().message;
  EXPECT_EQ(engine->metrics().kv_blocks_pinned.value(), 12);
  // More prompts than the cache holds: what is not pinned goes.
  for (int i = 0; i < 12; ++i) run_requests(*engine, {greedy(random_prompt(20 + i, 300), 2)});
  const auto n_cached = [&](const CacheScope& scope) {
    Request request = greedy(prompt, 2);
    request.scope = scope;
    return run_requests(*engine, {request})[0].stats.cached_tokens;
  };
  EXPECT_EQ(n_cached({.adapter = "", .salt = "two", .salt_from = 0}), 0);
  EXPECT_EQ(n_cached({}), 0);
  EXPECT_EQ(n_cached(one), 192);
  engine->unpin(ones->id);
  engine->check_invariants();
}

}  // namespace
}  // namespace baton
