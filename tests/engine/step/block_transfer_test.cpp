/// Keys and values that leave an engine's cache and come into another's: the same answers to the bit, nothing leaked
/// (engine/step/block_transfer.h, Engine::export_pin and pin_from).
#include "engine/step/block_transfer.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/engine_device.h"

namespace baton {
namespace {

using testing::expect_same_bits;
using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::random_prompt;
using testing::run_requests;

using Pieces = std::vector<std::vector<std::byte>>;

/// The pieces of a prompt, which is pinned for that.
Pieces exported(Engine& engine, const std::vector<TokenId>& tokens, const CacheScope& scope = {}) {
  Pieces pieces;
  const auto pin = engine.pin(tokens, scope);
  EXPECT_TRUE(pin) << pin.error().message;
  const auto done = engine.export_pin(pin->id, [&pieces](std::span<const std::byte> piece) -> Result<void> {
    pieces.emplace_back(piece.begin(), piece.end());
    return {};
  });
  EXPECT_TRUE(done) << done.error().message;
  engine.unpin(pin->id);
  return pieces;
}

/// Reads pieces, and counts how many were read. Fails at piece `fails_at`.
struct PiecesReader {
  const Pieces& pieces;
  std::size_t fails_at = SIZE_MAX;
  std::size_t n_read = 0;

  Engine::PieceReader reader() {
    return [this](std::vector<std::byte>& piece) -> Result<void> {
      if (n_read == fails_at) return fail(ErrorCode::invalid_data, "damaged");
      piece = pieces.at(n_read++);
      return {};
    };
  }
};

ModelSpec spec_with_windows(std::int32_t even, std::int32_t odd) {
  ModelSpec spec = testing::tiny_spec();
  spec.layers.resize(4, spec.layers[0]);
  for (const std::size_t layer : {0U, 2U}) spec.layers[layer].attention.window = even;
  for (const std::size_t layer : {1U, 3U}) spec.layers[layer].attention.window = odd;
  group_layers(spec);
  return spec;
}

/// For prefixes of three pieces on any device.
ModelSpec spec_of_long_contexts() {
  ModelSpec spec = testing::tiny_spec();
  spec.max_position = 4096;
  return spec;
}

class BlockTransferOnDevice : public testing::EngineOnDevice {
 protected:
  void SetUp() override {
    EngineOnDevice::SetUp();
    if (testing::n_test_ranks() > 1) GTEST_SKIP() << "keys and values are not stored where several ranks share a model";
  }
  std::unique_ptr<Engine> make_engine(const EngineOptions& options = {}, std::int32_t n_blocks = 400,
                                      const ModelSpec& spec = testing::tiny_spec()) const {
    return make_tiny_engine(options, n_blocks, spec);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, BlockTransferOnDevice, testing::engine_devices(), testing::name_of_device);

/// They also found as much in the cache.
void expect_same_answers(const std::vector<Generated>& got, const std::vector<Generated>& expected) {
  expect_same_bits(got, expected);
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i)
    EXPECT_EQ(got[i].stats.cached_tokens, expected[i].stats.cached_tokens) << "request " << i;
}

std::vector<Request> questions(const std::vector<TokenId>& prefix, const CacheScope& scope = {}) {
  std::vector<Request> requests;
  for (const std::uint32_t own : {1U, 5U, 40U}) {
    requests.push_back(greedy(joined(prefix, random_prompt(1000 + own, own)), 12));
    requests.back().scope = scope;
  }
  return requests;
}

std::vector<std::int32_t> n_free(const Engine& engine) {
  std::vector<std::int32_t> free;
  for (std::size_t g = 0; g < engine.info().cache_groups.size(); ++g)
    free.push_back(static_cast<std::int32_t>(engine.free_blocks(static_cast<int>(g)).size()));
  return free;
}

/// As many tokens as the blocks of the first `n_pieces` pieces have: half as many in f32 as in 16 bits.
std::size_t n_tokens_of(const Engine& engine, std::size_t n_pieces) {
  std::int32_t n_entries = 1;
  while (engine.prefix_layout().piece_bytes(n_entries + 1).size() <= n_pieces) ++n_entries;
  return static_cast<std::size_t>(n_entries) * 16;
}

/// Registers a prefix in one engine and loads what it exports into another, which answers the same.
void expect_equal_after_loading(Engine& first, Engine& second, std::size_t n_tokens, const CacheScope& scope = {}) {
  const auto tokens = random_prompt(7, n_tokens);
  const auto registered = first.pin(tokens, scope);
  ASSERT_TRUE(registered) << registered.error().message;
  const Pieces pieces = exported(first, tokens, scope);
  first.check_invariants();
  std::vector<std::uint32_t> sizes;
  for (const auto& piece : pieces) sizes.push_back(static_cast<std::uint32_t>(piece.size()));
  EXPECT_EQ(sizes, first.prefix_layout().piece_bytes(static_cast<std::int32_t>(n_tokens / 16)));

  PiecesReader read{pieces};
  const std::int64_t n_steps = second.metrics().steps.value();
  const auto loaded = second.pin_from(tokens, scope, read.reader());
  ASSERT_TRUE(loaded) << loaded.error().message;
  second.check_invariants();
  EXPECT_EQ(read.n_read, pieces.size());
  EXPECT_EQ(loaded->n_pinned_tokens, registered->n_pinned_tokens);
  EXPECT_EQ(second.metrics().steps.value(), n_steps) << "nothing is computed";
  EXPECT_EQ(second.metrics().kv_blocks_pinned.value(), first.metrics().kv_blocks_pinned.value());
  EXPECT_EQ(exported(second, tokens, scope), pieces);
  const auto requests = questions(tokens, scope);
  const auto expected = run_requests(first, requests);
  EXPECT_EQ(expected[1].stats.cached_tokens, static_cast<std::int32_t>(n_tokens / 16 * 16));
  expect_same_answers(run_requests(second, requests), expected);
  first.unpin(registered->id);
  second.unpin(loaded->id);
  while (second.step()) {
  }
  second.check_invariants();
  EXPECT_EQ(second.metrics().kv_blocks_pinned.value(), 0);
}

TEST_P(BlockTransferOnDevice, answers_are_equal_to_the_bit_after_loading) {
  for (const std::size_t n_tokens : {16U, 33U, 1333U}) {
    SCOPED_TRACE(n_tokens);
    expect_equal_after_loading(*make_engine(), *make_engine(), n_tokens);
  }
}

TEST_P(BlockTransferOnDevice, answers_are_equal_to_the_bit_with_windows) {
  for (const auto& [even, odd] : {std::pair{0, 40}, {70, 40}, {70, 16}, {16, 16}}) {
    SCOPED_TRACE(std::to_string(even) + " and " + std::to_string(odd));
    const ModelSpec spec = spec_with_windows(even, odd);
    EngineOptions options{.max_num_batched_tokens = 64};
    for (const std::size_t n_tokens : {16U, 333U})
      expect_equal_after_loading(*make_engine(options, 150, spec), *make_engine(options, 150, spec), n_tokens);
  }
}

TEST_P(BlockTransferOnDevice, keeps_to_the_scope) {
  const CacheScope salted{.adapter = {}, .salt = "tenant", .salt_from = 0};
  const auto first = make_engine(), second = make_engine();
  expect_equal_after_loading(*first, *second, 200, salted);
  const auto tokens = random_prompt(7, 200);
  ASSERT_TRUE(first->pin(tokens, salted));
  const Pieces pieces = exported(*first, tokens, salted);
  const auto third = make_engine();
  PiecesReader read{pieces};
  ASSERT_TRUE(third->pin_from(tokens, salted, read.reader()));
  EXPECT_EQ(run_requests(*third, questions(tokens))[0].stats.cached_tokens, 0) << "others do not find it";
  third->unpin(third->pins()[0].id);
  const auto none = third->export_pin(PinId{0}, [](std::span<const std::byte>) -> Result<void> { return {}; });
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::not_found);
}

TEST_P(BlockTransferOnDevice, a_prefix_without_a_full_block_needs_no_pieces) {
  const auto engine = make_engine();
  PiecesReader read{{}};
  const auto loaded = engine->pin_from(random_prompt(7, 15), {}, read.reader());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->n_pinned_tokens, 0);
  EXPECT_TRUE(exported(*engine, random_prompt(7, 15)).empty());
}

TEST_P(BlockTransferOnDevice, a_reader_that_fails_leaves_nothing_at_any_piece) {
  for (const ModelSpec& spec : {testing::tiny_spec(), spec_with_windows(0, 40), spec_with_windows(70, 40)}) {
    const auto tokens = random_prompt(7, 1800);
    const auto first = make_engine({}, 400, spec);
    const auto registered = first->pin(tokens);
    ASSERT_TRUE(registered) << registered.error().message;
    const Pieces pieces = exported(*first, tokens);
    const auto engine = make_engine({}, 400, spec);
    const auto free = n_free(*engine);
    for (std::size_t at = 0; at < pieces.size(); ++at) {
      PiecesReader broken{pieces, at};
      const auto failed = engine->pin_from(tokens, {}, broken.reader());
      ASSERT_FALSE(failed);
      EXPECT_EQ(failed.error().message, "damaged");
      engine->check_invariants();
      EXPECT_EQ(n_free(*engine), free);
      EXPECT_TRUE(engine->pins().empty());
    }
    Pieces short_piece = pieces;
    short_piece.back().pop_back();
    PiecesReader cut{short_piece};
    EXPECT_EQ(engine->pin_from(tokens, {}, cut.reader()).error().code, ErrorCode::invalid_data);
    EXPECT_EQ(n_free(*engine), free);
    PiecesReader whole{pieces};
    ASSERT_TRUE(engine->pin_from(tokens, {}, whole.reader()));
    expect_same_answers(run_requests(*engine, questions(tokens)), run_requests(*first, questions(tokens)));
  }
}

TEST_P(BlockTransferOnDevice, a_writer_that_fails_leaves_no_pin) {
  const auto engine = make_engine({}, 600, spec_of_long_contexts());
  const auto tokens = random_prompt(7, n_tokens_of(*engine, 3));
  const auto registered = engine->pin(tokens);
  ASSERT_TRUE(registered) << registered.error().message;
  const std::size_t n_pieces = exported(*engine, tokens).size();
  ASSERT_EQ(n_pieces, 3U);
  for (std::size_t at = 0; at < n_pieces; ++at) {
    std::size_t n_written = 0;
    const auto failed = engine->export_pin(registered->id, [&](std::span<const std::byte>) -> Result<void> {
      if (n_written++ == at) return fail(ErrorCode::io, "no space left");
      return {};
    });
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message, "no space left");
  }
  engine->unpin(registered->id);
  while (engine->step()) {
  }
  engine->check_invariants();
  EXPECT_EQ(engine->metrics().kv_blocks_pinned.value(), 0);
}

// A GPU may compute other bits for a prompt in other chunks, so each engine is compared with one that did the same.
TEST_P(BlockTransferOnDevice, what_the_cache_has_is_not_read_again_or_only_in_part) {
  const auto first = make_engine({}, 600, spec_of_long_contexts());
  const auto tokens = random_prompt(7, n_tokens_of(*first, 3));
  const auto registered = first->pin(tokens);
  ASSERT_TRUE(registered) << registered.error().message;
  const Pieces pieces = exported(*first, tokens);
  Pieces wrong = pieces;
  for (auto& piece : wrong) std::ranges::fill(piece, std::byte{0x41});
  Pieces mixed = pieces;
  mixed.front() = wrong.front();
  const auto answers = [&](std::size_t n_cached, const Pieces* loaded) {
    const auto engine = make_engine({}, 600, spec_of_long_contexts());
    run_requests(*engine, {greedy({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n_cached)}, 1)});
    if (loaded != nullptr) {
      PiecesReader read{*loaded};
      const auto done = engine->pin_from(tokens, {}, read.reader());
      EXPECT_TRUE(done);
    }
    engine->check_invariants();
    return run_requests(*engine, questions(tokens));
  };
  expect_same_answers(answers(tokens.size(), &wrong), answers(tokens.size(), nullptr));
  // The cache has the first piece and a part of the second, from a request; the rest is loaded.
  const std::size_t n_cached = n_tokens_of(*first, 1) + 160;
  expect_same_answers(answers(n_cached, &mixed), answers(n_cached, &pieces));
}

TEST_P(BlockTransferOnDevice, refuses_what_could_not_be_pinned) {
  const auto tokens = random_prompt(7, 800);
  const auto first = make_engine();
  const auto registered = first->pin(tokens);
  ASSERT_TRUE(registered) << registered.error().message;
  const Pieces pieces = exported(*first, tokens);
  EngineOptions capped;
  capped.max_pinned_blocks = 40;
  EngineOptions short_contexts;
  short_contexts.max_model_len = 1000;
  for (const auto& engine : {make_engine(capped), make_engine(short_contexts, 100)}) {
    const auto free = n_free(*engine);
    PiecesReader read{pieces};
    const auto refused = engine->pin_from(tokens, {}, read.reader());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
    EXPECT_EQ(n_free(*engine), free);
    engine->check_invariants();
  }
  first->check_invariants();
}

/// Loads and exports beside requests on the engine's own thread, which all get the answers that they get alone.
TEST_P(BlockTransferOnDevice, requests_continue_meanwhile) {
  const auto first = make_engine({}, 600, spec_of_long_contexts());
  const auto tokens = random_prompt(7, n_tokens_of(*first, 3));
  const auto registered = first->pin(tokens);
  ASSERT_TRUE(registered) << registered.error().message;
  const Pieces pieces = exported(*first, tokens);
  ASSERT_GE(pieces.size(), 3U);

  // Without a thread a step copies one piece, and every running request gets its token in each step.
  const auto engine = make_engine({}, 600, spec_of_long_contexts());
  ASSERT_TRUE(engine->submit(greedy(random_prompt(3, 20), 60)));
  ASSERT_TRUE(engine->submit(greedy(random_prompt(4, 40), 60)));
  std::map<testing::SequenceKey, Generated> generated;
  std::vector<std::size_t> n_tokens_at_piece;
  const auto count = [&] {
    collect(engine->wait_events(std::chrono::milliseconds(0)), generated);
    n_tokens_at_piece.push_back(generated.empty() ? 0 : generated.begin()->second.tokens.size());
    engine->check_invariants();
  };
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine->step());
  PiecesReader read{pieces};
  const auto reader = read.reader();
  const auto loaded = engine->pin_from(tokens, {}, [&](std::vector<std::byte>& piece) {
    count();
    return reader(piece);
  });
  ASSERT_TRUE(loaded);
  ASSERT_TRUE(engine->export_pin(loaded->id, [&](std::span<const std::byte>) -> Result<void> {
    count();
    return {};
  }));
  for (std::size_t i = 2; i < n_tokens_at_piece.size(); ++i)
    EXPECT_LE(n_tokens_at_piece[i - 1], n_tokens_at_piece[i]) << "piece " << i;
  EXPECT_GE(n_tokens_at_piece.back(), n_tokens_at_piece.front() + 2 * pieces.size() - 3) << "a token for each piece";
  testing::run_to_end(*engine, generated);
  const auto alone = make_engine({}, 600, spec_of_long_contexts());
  const auto expected = run_requests(*alone, {greedy(random_prompt(3, 20), 60), greedy(random_prompt(4, 40), 60)});
  EXPECT_EQ(generated.at({0, 0}).tokens, expected[0].tokens);
  EXPECT_EQ(generated.at({1, 0}).tokens, expected[1].tokens);
}

TEST_P(BlockTransferOnDevice, callers_wait_for_the_engines_thread) {
  const auto tokens = random_prompt(7, 1800);
  const auto first = make_engine();
  const auto registered = first->pin(tokens);
  ASSERT_TRUE(registered) << registered.error().message;
  const Pieces pieces = exported(*first, tokens);
  const auto expected = run_requests(*first, questions(tokens));

  const auto engine = make_engine();
  engine->start();
  std::atomic<bool> is_done = false;
  std::jthread asks([&] {
    for (std::uint32_t i = 0; !is_done; ++i) {
      EXPECT_TRUE(engine->submit(greedy(random_prompt(100 + i, 30), 4)));
      engine->wait_events(std::chrono::milliseconds(50));
    }
  });
  for (int round = 0; round < 5; ++round) {
    PiecesReader read{pieces};
    const auto loaded = engine->pin_from(tokens, {}, read.reader());
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(exported(*engine, tokens), pieces);
    engine->unpin(loaded->id);
  }
  is_done = true;
  asks.join();
  PiecesReader read{pieces};
  const auto last = engine->pin_from(tokens, {}, read.reader());
  ASSERT_TRUE(last);
  engine->stop();
  EXPECT_EQ(engine->export_pin(last->id, [](std::span<const std::byte>) -> Result<void> { return {}; }).error().code,
            ErrorCode::unavailable);
  EXPECT_EQ(engine->pin_from(tokens, {}, read.reader()).error().code, ErrorCode::unavailable);
}

TEST(BlockTransfer, answers_are_equal_to_the_bit_in_every_cache_dtype) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    SCOPED_TRACE(to_string(dtype));
    const auto make = [dtype] {
      auto backend = make_backend("cpu", {.n_threads = 1});
      EXPECT_TRUE(backend);
      EngineOptions options;
      options.kv_dtype = dtype;
      auto engine = testing::create_tiny_engine(std::move(*backend), options, 200);
      EXPECT_TRUE(engine) << engine.error().message;
      return std::move(*engine);
    };
    expect_equal_after_loading(*make(), *make(), 300);
  }
}

TEST(BlockTransfer, several_ranks_are_refused) {
  const auto engine = testing::make_tiny_engine({}, 200, testing::tiny_spec(), 2);
  const auto tokens = random_prompt(7, 100);
  const auto registered = engine->pin(tokens);
  ASSERT_TRUE(registered) << registered.error().message;
  EXPECT_EQ(engine->export_pin(registered->id, [](std::span<const std::byte>) -> Result<void> { return {}; }).error().code,
            ErrorCode::unsupported);
  EXPECT_EQ(engine->pin_from(tokens, {}, PiecesReader{{}}.reader()).error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace baton
