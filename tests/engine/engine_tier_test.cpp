/// Engine with a host tier: what it loads gives the bits that computing gives, within its size, with every use of the
/// prefix cache.
#include "engine/engine.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/engine_device.h"

namespace baton {
namespace {

using testing::conversations;
using testing::expect_same_bits;
using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::n_test_ranks;
using testing::random_prompt;
using testing::run_requests;

constexpr std::int32_t kTierBlockLen = 16;

class EngineTier : public testing::EngineOnDevice {
 protected:
  void SetUp() override {
    EngineOnDevice::SetUp();
    if (n_test_ranks() > 1) GTEST_SKIP() << "the host tier is refused with several ranks";
  }
  /// Bytes of `n` entries of the tiny model.
  std::int64_t entries(std::int64_t n, const ModelSpec& spec = testing::tiny_spec()) const {
    std::int64_t values = 0;  // keys and values of a token
    for (const LayerSpec& layer : spec.layers)
      values += std::int64_t{2} * layer.attention.n_kv_heads * layer.attention.head_dim;
    return n * values * kTierBlockLen * (is_cuda() ? 2 : 4);
  }
  EngineOptions options(std::int64_t n_entries) const {
    EngineOptions made{.batch_invariant = true, .max_num_seqs = 4, .max_num_batched_tokens = 64, .max_model_len = 320};
    made.host_tier_bytes = entries(n_entries);
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, EngineTier, testing::engine_devices_at_each_pace(), testing::name_of_device);

/// Everything is given back, whatever was loaded.
void expect_nothing_held(const Engine& engine, std::int64_t n_pinned = 0) {
  EXPECT_EQ(engine.metrics().kv_blocks_used.value(), n_pinned);
  EXPECT_LE(engine.metrics().host_tier_blocks.value(), engine.metrics().host_tier_blocks_total.value());
  engine.check_invariants();
}

TEST_P(EngineTier, gives_the_bits_that_computing_gives_while_a_small_cache_evicts) {
  constexpr std::int32_t kBlocks = 30;
  for (const std::int64_t n_entries : {400, 20, 1}) {
    SCOPED_TRACE(n_entries);
    const auto without = make_tiny_engine(options(0), kBlocks);
    const auto with = make_tiny_engine(options(n_entries), kBlocks);
    ASSERT_EQ(with->info().n_tier_slots, n_entries);
    std::int64_t n_cached_with = 0, n_cached_without = 0;
    for (int round = 0; round < 3; ++round) {
      for (const bool together : {true, false}) {
        for (const Request& request : conversations(6, round, 48, 60)) {
          const std::vector<Request> group = together ? conversations(6, round, 48, 60) : std::vector{request};
          const std::vector<Generated> expected = run_requests(*without, group);
          const std::vector<Generated> got = run_requests(*with, group);
          expect_same_bits(got, expected);
          for (const Generated& sequence : got) n_cached_with += sequence.stats.cached_tokens;
          for (const Generated& sequence : expected) n_cached_without += sequence.stats.cached_tokens;
          if (together || HasFailure()) break;
        }
      }
    }
    const EngineMetrics& metrics = with->metrics();
    EXPECT_GT(metrics.kv_offload_saved_bytes.value(), entries(20));
    if (n_entries >= 400) {
      EXPECT_GT(metrics.kv_offload_loaded_bytes.value(), entries(40)) << "the load was too light to show anything";
      EXPECT_GT(n_cached_with, n_cached_without + 40 * kTierBlockLen) << "cached_tokens counts what was loaded";
      EXPECT_GT(metrics.external_prefix_cache_hits.value(), 40 * kTierBlockLen);
    }
    EXPECT_LE(metrics.external_prefix_cache_hits.value(), metrics.external_prefix_cache_queries.value());
    EXPECT_EQ(without->metrics().external_prefix_cache_queries.value(), 0);
    expect_nothing_held(*with);
  }
}

TEST_P(EngineTier, counts_what_the_cache_and_the_tier_each_had) {
  const auto engine = make_tiny_engine(options(100), 24);
  const auto prompt = random_prompt(1, 300);
  const auto ask = [&](const std::vector<TokenId>& tokens) { return run_requests(*engine, {greedy(tokens, 4)})[0].stats; };
  EXPECT_EQ(ask(prompt).cached_tokens, 0);
  EXPECT_EQ(engine->metrics().host_tier_blocks.value(), 0) << "nothing was evicted";
  ask(random_prompt(2, 200));  // 18 + 12 full blocks in 24
  const std::int64_t n_evicted = engine->metrics().host_tier_blocks.value();
  EXPECT_GE(n_evicted, 6);
  const std::int64_t hits = engine->metrics().prefix_cache_hits.value();
  EXPECT_EQ(ask(prompt).cached_tokens, 288);
  const EngineMetrics& metrics = engine->metrics();
  EXPECT_EQ(metrics.prefix_cache_hits.value() - hits, 288 - n_evicted * kTierBlockLen);
  EXPECT_EQ(metrics.external_prefix_cache_hits.value(), n_evicted * kTierBlockLen);
  EXPECT_EQ(metrics.external_prefix_cache_queries.value(), 300 + 200 + 300 - (288 - n_evicted * kTierBlockLen));
  EXPECT_EQ(metrics.kv_offload_loaded_bytes.value(), entries(n_evicted));
  EXPECT_EQ(metrics.host_tier_blocks_total.value(), 100);
  engine->drop_cached_blocks();
  EXPECT_EQ(ask(prompt).cached_tokens, 0) << "a benchmark's cold cache has no tier either";
  expect_nothing_held(*engine);
}

TEST_P(EngineTier, loads_a_long_prompt_in_pieces_beside_a_request_that_decodes) {
  EngineOptions made = options(200);
  made.max_num_batched_tokens = 32;  // two blocks a step
  made.max_prefill_tokens = 16;
  const auto with = make_tiny_engine(made, 40);
  const Request asked = greedy(random_prompt(1, 290), 6);
  const std::vector<Generated> expected = run_requests(*with, {asked});
  for (std::uint32_t i = 0; i < 4; ++i) run_requests(*with, {greedy(random_prompt(10 + i, 300), 2)});
  const std::int64_t n_before = with->metrics().kv_offload_loaded_bytes.value();
  EXPECT_EQ(n_before, 0);
  const std::vector<Generated> got = run_requests(*with, {greedy(random_prompt(50, 3), 40), asked, asked});
  expect_same_bits({got[1]}, expected);
  expect_same_bits({got[2]}, expected);
  EXPECT_EQ(got[1].stats.cached_tokens, 288);
  EXPECT_EQ(got[2].stats.cached_tokens, 288) << "it waits for the pieces instead of computing";
  EXPECT_EQ(with->metrics().kv_offload_loaded_bytes.value(), entries(18)) << "each block is loaded once";
  // Alone, so that steps have no rows while it loads.
  for (std::uint32_t i = 0; i < 4; ++i) run_requests(*with, {greedy(random_prompt(10 + i, 300), 2)});
  const std::vector<Generated> again = run_requests(*with, {asked});
  expect_same_bits(again, expected);
  EXPECT_EQ(again[0].stats.cached_tokens, 288);
  expect_nothing_held(*with);
}

TEST_P(EngineTier, loads_a_prefix_that_is_registered_again_and_pins_it) {
  const auto engine = make_tiny_engine(options(200), 40);
  const auto text = random_prompt(7, 160);
  const auto first = engine->pin(text);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->n_pinned_tokens, 160);
  for (std::uint32_t i = 0; i < 3; ++i) run_requests(*engine, {greedy(random_prompt(10 + i, 300), 2)});
  EXPECT_EQ(engine->metrics().kv_blocks_pinned.value(), 10) << "a pinned block is not evicted";
  const Request asked = greedy(joined(text, random_prompt(8, 9)), 5);
  const std::vector<Generated> expected = run_requests(*engine, {asked});
  engine->unpin(first->id);
  for (std::uint32_t i = 0; i < 4; ++i) run_requests(*engine, {greedy(random_prompt(20 + i, 300), 2)});
  EXPECT_EQ(engine->metrics().kv_blocks_pinned.value(), 0);
  const std::int64_t n_loaded = engine->metrics().kv_offload_loaded_bytes.value();
  const auto second = engine->pin(text);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->n_pinned_tokens, 160);
  EXPECT_EQ(engine->metrics().kv_offload_loaded_bytes.value() - n_loaded, entries(10)) << "all of it, in several pieces";
  const std::vector<Generated> got = run_requests(*engine, {asked});
  expect_same_bits(got, expected);
  EXPECT_EQ(got[0].stats.cached_tokens, 160);
  expect_nothing_held(*engine, 10);
}

/// Stored keys and values that are copied into a full cache take the place of blocks that the tier keeps.
TEST_P(EngineTier, keeps_what_is_evicted_for_a_prefix_that_is_loaded_from_its_caller) {
  const auto engine = make_tiny_engine(options(200), 40);
  const auto text = random_prompt(7, 160);
  const auto seven = engine->pin(text);
  ASSERT_TRUE(seven) << seven.error().message;
  std::vector<std::vector<std::byte>> pieces;
  ASSERT_TRUE(engine->export_pin(seven->id, [&](std::span<const std::byte> piece) -> Result<void> {
    pieces.emplace_back(piece.begin(), piece.end());
    return {};
  }));
  engine->unpin(seven->id);
  engine->drop_cached_blocks();
  std::vector<Request> asked;
  for (std::uint32_t i = 0; i < 2; ++i) asked.push_back(greedy(random_prompt(30 + i, 300), 3));
  const std::vector<Generated> expected = run_requests(*engine, asked);
  const auto other = random_prompt(8, 160);  // its keys and values are those of `text`, which no request asks for
  std::size_t n_read = 0;
  const auto eight = engine->pin_from(other, {}, [&](std::vector<std::byte>& piece) -> Result<void> {
    piece = pieces.at(n_read++);
    return {};
  });
  ASSERT_TRUE(eight) << eight.error().message;
  EXPECT_GE(engine->metrics().host_tier_blocks.value(), 5);
  engine->unpin(eight->id);
  const std::vector<Generated> got = run_requests(*engine, asked);
  expect_same_bits(got, expected);
  EXPECT_EQ(got[0].stats.cached_tokens + got[1].stats.cached_tokens, 576);
  expect_nothing_held(*engine);
}

TEST_P(EngineTier, gives_back_what_a_request_holds_that_is_cancelled_while_it_loads) {
  EngineOptions made = options(200);
  made.max_num_batched_tokens = 16;  // a block a step
  const auto engine = make_tiny_engine(made, 40);
  const Request asked = greedy(random_prompt(1, 290), 6);
  const std::vector<Generated> expected = run_requests(*engine, {asked});
  for (std::uint32_t i = 0; i < 4; ++i) run_requests(*engine, {greedy(random_prompt(10 + i, 300), 2)});
  const auto id = engine->submit(asked);
  ASSERT_TRUE(id);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(engine->step()) << "there is more to load";
    engine->check_invariants();
  }
  const std::int64_t n_loaded = engine->metrics().kv_offload_loaded_bytes.value();
  EXPECT_EQ(n_loaded, entries(5));
  EXPECT_EQ(engine->metrics().num_requests_running.value(), 1);
  engine->cancel(*id);
  std::map<testing::SequenceKey, Generated> generated;
  testing::run_to_end(*engine, generated);
  EXPECT_EQ((generated[{id->value, 0}].finished), FinishReason::abort);
  expect_nothing_held(*engine);
  const std::vector<Generated> got = run_requests(*engine, {asked});
  expect_same_bits(got, expected);
  EXPECT_EQ(got[0].stats.cached_tokens, 288) << "what it had loaded is in the cache";
  EXPECT_EQ(engine->metrics().kv_offload_loaded_bytes.value(), entries(18));
}

TEST(EngineTierOptions, are_refused_by_name_where_there_can_be_no_tier) {
  const auto refused = [](EngineOptions options, const ModelSpec& spec = testing::tiny_spec()) {
    const auto engine = testing::create_tiny_engine(*make_backend("cpu", {.n_threads = 1}), options, 40, spec);
    return engine ? std::string("accepted") : engine.error().param + ": " + engine.error().message;
  };
  EngineOptions options{.max_model_len = 320};
  options.kv_dtype = DType::f32;
  options.host_tier_bytes = std::int64_t{1} << 20;
  EXPECT_EQ(refused(options), "accepted");
  EngineOptions uncached = options;
  uncached.enable_prefix_caching = false;
  EXPECT_EQ(refused(uncached),
            "kv_offloading_size: --kv-offloading-size 0.000976562: it keeps what the prefix cache evicts, "
            "and prefix caching is off");
  EngineOptions tiny = options;
  tiny.host_tier_bytes = 1000;
  EXPECT_EQ(
      refused(tiny),
      "kv_offloading_size: --kv-offloading-size 9.31323e-07: a block of 16 tokens takes 65536 bytes; the smallest size is "
      "6.11e-05");
  tiny.host_tier_bytes = static_cast<std::int64_t>(6.11e-05 * 0x1p30);
  EXPECT_EQ(refused(tiny), "accepted");
  EngineOptions negative = options;
  negative.host_tier_bytes = -1;
  EXPECT_NE(refused(negative).find("it must be 0 (off) or more"), std::string::npos);
  EngineOptions huge = options;
  huge.host_tier_bytes = std::int64_t{1} << 50;
  EXPECT_NE(
      refused(huge).find("--kv-offloading-size 1.04858e+06: 1125899906842624 bytes are asked for, and this process may take"),
      std::string::npos)
      << refused(huge);
  ModelSpec windowed = testing::tiny_spec();
  windowed.layers[0].attention.window = 32;
  group_layers(windowed);
  EXPECT_NE(refused(options, windowed).find("it is not offered for models with sliding windows"), std::string::npos)
      << refused(options, windowed);
}

}  // namespace
}  // namespace baton
