/// Engine with a model that has recurrent layers: states go to the host tier and to stored prefixes and come back, and answers have
/// the bits that computing gives.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
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
using testing::recurrent_spec;
using testing::recurrent_state_bytes;
using testing::run_requests;

using StatePieces = std::vector<std::vector<std::byte>>;

class EngineStateTier : public testing::EngineOnDevice {
 protected:
  void SetUp() override {
    EngineOnDevice::SetUp();
    if (n_test_ranks() > 1) GTEST_SKIP() << "states are refused with several ranks";
  }
  /// Of one attention layer with one KV head of 64.
  std::int64_t block_bytes() const { return std::int64_t{16} * 64 * 2 * (is_cuda() ? 2 : 4); }
  /// A tier of `n` states, and twice their bytes for blocks.
  EngineOptions options(std::int64_t n_states, std::int64_t n_snapshots = 2) const {
    EngineOptions made{.batch_invariant = true, .max_num_seqs = 3, .max_num_batched_tokens = 128, .max_model_len = 480};
    made.host_tier_bytes = 3 * n_states * recurrent_state_bytes(DType::f32);
    made.snapshot_bytes = n_snapshots * recurrent_state_bytes(DType::f32);
    return made;
  }
  std::unique_ptr<Engine> make_engine(const EngineOptions& options, std::int32_t n_blocks) const {
    return make_tiny_engine(options, n_blocks, recurrent_spec());
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, EngineStateTier, testing::engine_devices_at_each_pace(), testing::name_of_device);

void expect_no_state_held(const Engine& engine, std::int64_t n_pinned = 0) {
  EXPECT_EQ(engine.metrics().kv_blocks_used.value(), n_pinned);
  EXPECT_LE(engine.metrics().host_tier_states.value(), engine.metrics().host_tier_states_total.value());
  engine.check_invariants();
}

TEST_P(EngineStateTier, gives_the_bits_that_computing_gives_while_small_pools_evict) {
  constexpr std::int32_t kBlocks = 34;
  EngineOptions off = options(0);
  off.enable_prefix_caching = false;
  off.snapshot_bytes.reset();
  const auto without = make_engine(off, kBlocks);
  for (const std::int64_t n_states : {40, 3, 1}) {
    for (const std::int64_t n_snapshots : {0, 3}) {
      SCOPED_TRACE(::testing::Message() << n_states << " states, " << n_snapshots << " snapshots");
      const auto with = make_engine(options(n_states, n_snapshots), kBlocks);
      ASSERT_EQ(with->info().n_tier_states, n_states);
      ASSERT_EQ(with->info().n_tier_slots, 2 * n_states * recurrent_state_bytes(DType::f32) / block_bytes());
      for (int round = 0; round < 2; ++round) {
        for (const bool together : {true, false}) {
          for (const Request& request : conversations(6, round, 64, 90)) {
            const std::vector<Request> group = together ? conversations(6, round, 64, 90) : std::vector{request};
            expect_same_bits(run_requests(*with, group), run_requests(*without, group));
            if (together || HasFailure()) break;
          }
        }
      }
      const EngineMetrics& metrics = with->metrics();
      EXPECT_GT(metrics.kv_offload_saved_bytes.value(), 3 * recurrent_state_bytes(DType::f32));
      if (n_states >= 40) {
        EXPECT_GT(metrics.kv_offload_loaded_bytes.value(), 6 * recurrent_state_bytes(DType::f32))
            << "the load was too light to show anything";
        EXPECT_GT(metrics.external_prefix_cache_hits.value(), 600);
      }
      EXPECT_LE(metrics.external_prefix_cache_hits.value(), metrics.external_prefix_cache_queries.value());
      expect_no_state_held(*with);
      with->drop_cached_blocks();
      with->check_invariants();
    }
  }
}

TEST_P(EngineStateTier, states_in_bfloat16_take_fewer_bytes_and_come_back_with_the_same_bits) {
  constexpr std::int32_t kBlocks = 34;
  EngineOptions with_tier = options(20, 3);
  with_tier.state_dtype = DType::bf16;
  EngineOptions off = with_tier;
  off.host_tier_bytes = 0;
  off.enable_prefix_caching = false;
  off.snapshot_bytes.reset();
  const auto without = make_engine(off, kBlocks);
  const auto with = make_engine(with_tier, kBlocks);
  const std::int64_t bytes = recurrent_state_bytes(DType::bf16);
  EXPECT_LT(bytes, 2 * recurrent_state_bytes(DType::f32) / 3);
  EXPECT_EQ(with->info().state_slot_bytes, bytes);
  EXPECT_EQ(with->info().n_tier_states, 20 * recurrent_state_bytes(DType::f32) / bytes);
  EXPECT_EQ(with->prefix_layout().states.matrix_dtype, DType::bf16);
  EXPECT_NE(with->prefix_layout().text(), make_engine(options(20, 3), kBlocks)->prefix_layout().text());
  for (int round = 0; round < 2; ++round)
    for (const Request& request : conversations(6, round, 64, 90))
      expect_same_bits(run_requests(*with, {request}), run_requests(*without, {request}));
  EXPECT_GT(with->metrics().kv_offload_loaded_bytes.value(), 3 * bytes) << "the load was too light to show anything";
  expect_no_state_held(*with);
}

TEST_P(EngineStateTier, sequences_that_are_preempted_have_the_same_bits) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 9; ++i) requests.push_back(greedy(random_prompt(i % 5, 20 + 13 * (i % 5)), 90));
  EngineOptions off = options(0);
  off.enable_prefix_caching = false;
  off.snapshot_bytes.reset();
  const auto expected = run_requests(*make_engine(off, 60), requests);
  EngineOptions made = options(12);
  made.max_model_len = 200;
  const auto engine = make_engine(made, 14);
  for (int round = 0; round < 2; ++round) expect_same_bits(run_requests(*engine, requests), expected);
  EXPECT_GT(engine->metrics().num_preemptions.value(), 0) << "the load was too light to show anything";
  expect_no_state_held(*engine);
}

TEST_P(EngineStateTier, counts_what_the_cache_and_the_tier_each_had) {
  const auto engine = make_engine(options(20), 31);
  const auto ask = [&](const std::vector<TokenId>& tokens) { return run_requests(*engine, {greedy(tokens, 4)})[0].stats; };
  const auto prompt = random_prompt(1, 400);
  EXPECT_EQ(ask(prompt).cached_tokens, 0);
  EXPECT_EQ(engine->metrics().host_tier_states.value(), 0) << "nothing was evicted";
  ask(random_prompt(2, 470));  // takes nearly all blocks
  EXPECT_GE(engine->metrics().host_tier_states.value(), 1);
  const std::int64_t n_before = engine->metrics().kv_offload_loaded_bytes.value();
  EXPECT_EQ(n_before, 0);
  const std::int64_t hits = engine->metrics().prefix_cache_hits.value();
  const SequenceStats stats = ask(prompt);
  EXPECT_EQ(stats.cached_tokens, 368) << "up to the snapshot near the prompt's end";
  EXPECT_EQ(stats.replayed_tokens, 0) << "keys after it were not loaded";
  const EngineMetrics& metrics = engine->metrics();
  EXPECT_EQ(metrics.prefix_cache_hits.value() - hits + metrics.external_prefix_cache_hits.value(), 368);
  EXPECT_GE(metrics.external_prefix_cache_hits.value(), 300);
  EXPECT_GE(metrics.kv_offload_loaded_bytes.value(), recurrent_state_bytes(DType::f32) + 20 * block_bytes());
  EXPECT_EQ(metrics.host_tier_states_total.value(), 20);
  EXPECT_GE(ask(prompt).cached_tokens, 368) << "the state is a snapshot of the cache again";
  EXPECT_LT(metrics.external_prefix_cache_hits.value(), 400) << "it was loaded once";
  engine->drop_cached_blocks();
  EXPECT_EQ(ask(prompt).cached_tokens, 0) << "a benchmark's cold cache has no tier either";
  expect_no_state_held(*engine);
}

TEST_P(EngineStateTier, gives_back_what_a_request_holds_that_is_cancelled_while_it_loads) {
  EngineOptions made = options(20);
  made.max_num_batched_tokens = 16;  // a block a step
  const auto engine = make_engine(made, 31);
  const Request asked = greedy(random_prompt(1, 400), 6);
  const std::vector<Generated> expected = run_requests(*engine, {asked});
  for (std::uint32_t i = 0; i < 2; ++i) run_requests(*engine, {greedy(random_prompt(10 + i, 470), 2)});
  for (int n_steps = 1; n_steps < 28; n_steps += 4) {
    const auto id = engine->submit(asked);
    ASSERT_TRUE(id);
    for (int i = 0; i < n_steps; ++i) {
      engine->step();
      engine->check_invariants();
    }
    engine->cancel(*id);
    std::map<testing::SequenceKey, Generated> generated;
    testing::run_to_end(*engine, generated);
    expect_no_state_held(*engine);
  }
  const std::vector<Generated> got = run_requests(*engine, {asked});
  expect_same_bits(got, expected);
  EXPECT_GE(got[0].stats.cached_tokens, 368);
  EXPECT_GE(engine->metrics().kv_offload_loaded_bytes.value(), recurrent_state_bytes(DType::f32));
}

/// The pieces of a prompt, pinned for that.
StatePieces exported_with_state(Engine& engine, const std::vector<TokenId>& tokens) {
  StatePieces pieces;
  const auto pin = engine.pin(tokens);
  EXPECT_TRUE(pin) << pin.error().message;
  const auto done = engine.export_pin(pin->id, [&pieces](std::span<const std::byte> piece) -> Result<void> {
    pieces.emplace_back(piece.begin(), piece.end());
    return {};
  });
  EXPECT_TRUE(done) << done.error().message;
  engine.unpin(pin->id);
  return pieces;
}

Engine::PieceReader reader_of(const StatePieces& pieces, std::size_t fails_at = SIZE_MAX) {
  return [&pieces, fails_at, n = std::size_t{0}](std::vector<std::byte>& piece) mutable -> Result<void> {
    if (n == fails_at) return fail(ErrorCode::invalid_data, "damaged");
    piece = pieces.at(n++);
    return {};
  };
}

TEST_P(EngineStateTier, a_stored_prefix_has_its_state_in_another_engine) {
  EngineOptions made = options(0, 4);
  const auto first = make_engine(made, 80);
  const auto prefix = random_prompt(7, 330);
  const Request asked = greedy(joined(prefix, random_prompt(8, 40)), 12);
  const StatePieces pieces = exported_with_state(*first, prefix);
  ASSERT_FALSE(pieces.empty());
  std::size_t n_bytes = 0;
  for (const auto& piece : pieces) n_bytes += piece.size();
  EXPECT_EQ(static_cast<std::int64_t>(n_bytes), 20 * block_bytes() + recurrent_state_bytes(DType::f32));
  const std::vector<Generated> expected = run_requests(*first, {asked});

  const auto second = make_engine(made, 80);
  const auto loaded = second->pin_from(prefix, {}, reader_of(pieces));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->n_pinned_tokens, 320);
  EXPECT_EQ(second->metrics().state_snapshots_pinned.value(), 1);
  const std::vector<Generated> got = run_requests(*second, {asked});
  expect_same_bits(got, expected);
  EXPECT_EQ(got[0].stats.cached_tokens, 320);
  EXPECT_EQ(got[0].stats.replayed_tokens, 0);
  EXPECT_EQ(exported_with_state(*second, prefix), pieces) << "what came in goes out again";
  // A second copy of it finds all of it.
  const auto again = second->pin_from(prefix, {}, reader_of(pieces));
  ASSERT_TRUE(again) << again.error().message;
  second->unpin(again->id);
  second->unpin(loaded->id);
  second->step();
  EXPECT_EQ(second->metrics().state_snapshots_pinned.value(), 0);
  expect_no_state_held(*second);
}

TEST_P(EngineStateTier, a_stored_state_comes_to_keys_that_are_there) {
  const auto first = make_engine(options(0, 4), 80);
  const auto prefix = random_prompt(7, 320);
  const StatePieces pieces = exported_with_state(*first, prefix);
  const auto second = make_engine(options(0, 4), 80);
  run_requests(*second, {greedy(joined(prefix, random_prompt(9, 90)), 2)});
  const auto loaded = second->pin_from(prefix, {}, reader_of(pieces));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->n_pinned_tokens, 320);
  const Request asked = greedy(joined(prefix, random_prompt(8, 40)), 12);
  const std::vector<Generated> got = run_requests(*second, {asked});
  EXPECT_EQ(got[0].stats.replayed_tokens, 0);
  EXPECT_EQ(got[0].stats.cached_tokens, 320);
  expect_same_bits(got, run_requests(*first, {asked}));
}

TEST_P(EngineStateTier, a_copy_that_ends_early_or_finds_no_room_leaves_nothing) {
  const auto first = make_engine(options(0, 4), 80);
  const auto prefix = random_prompt(7, 320);
  const StatePieces pieces = exported_with_state(*first, prefix);
  for (const std::int64_t n_states : {0, 5}) {
    const auto engine = make_engine(options(n_states, 1), 80);
    for (std::size_t at = 0; at < pieces.size(); ++at) {
      EXPECT_EQ(engine->pin_from(prefix, {}, reader_of(pieces, at)).error().code, ErrorCode::invalid_data);
      engine->step();
      expect_no_state_held(*engine);
    }
    const auto loaded = engine->pin_from(prefix, {}, reader_of(pieces));
    ASSERT_TRUE(loaded) << loaded.error().message;
    const auto other = engine->pin_from(random_prompt(8, 320), {}, reader_of(pieces));
    ASSERT_FALSE(other) << "there is one snapshot beside the sequences' slots";
    EXPECT_EQ(other.error().code, ErrorCode::out_of_memory);
    EXPECT_EQ(run_requests(*engine, {greedy(joined(prefix, random_prompt(8, 40)), 4)})[0].stats.cached_tokens, 320);
    engine->unpin(loaded->id);
    engine->step();
    expect_no_state_held(*engine);
  }
}

TEST(EngineStateTierOptions, a_tier_without_room_for_a_state_is_refused) {
  EngineOptions options{.max_num_seqs = 2, .max_model_len = 320};
  options.kv_dtype = DType::f32;
  options.host_tier_bytes = 80'000;
  const auto made = [&] {
    return testing::create_tiny_engine(*make_backend("cpu", {.n_threads = 1}), options, 40, recurrent_spec());
  };
  const auto refused = made();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "--kv-offloading-size 7.45058e-05: a third of it is for states of recurrent layers, and one takes 29184 bytes; the "
            "smallest size is 8.16e-05");
  options.host_tier_bytes = static_cast<std::int64_t>(8.16e-05 * 0x1p30);
  EXPECT_EQ(made().value()->info().n_tier_states, 1);
}

}  // namespace
}  // namespace baton
