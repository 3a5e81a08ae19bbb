/// Every golden checkpoint in the engine, on the CPU: the greedy tokens of Transformers, and with batch_invariant the
/// same bits with a cold and a warm cache, alone and in a batch, relayed and paged.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "model/source/safetensors.h"
#include "support/drawn_golden.h"
#include "support/golden_model.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

using testing::Generated;
using testing::greedy;
using testing::joined;
using testing::random_prompt;
using testing::run_requests;

constexpr std::int32_t kGoldenBlocks = 160;  // of each layer group
constexpr std::int32_t kLength = 384;        // of the longest sequence: more than one chunk of attention

class EngineGoldens : public ::testing::TestWithParam<testing::GoldenCase> {
 protected:
  void SetUp() override {
    const auto split = split_spec(read_model_spec(GetParam().folder).value(), {0, testing::n_test_ranks()});
    if (!split) GTEST_SKIP() << split.error().message;
  }
  /// In float32. `max_model_len` may be longer than the checkpoint's contexts.
  std::unique_ptr<Engine> make_engine(EngineOptions options, std::int32_t max_model_len) const {
    ModelSpec spec = read_model_spec(GetParam().folder).value();
    spec.max_position = std::max(spec.max_position, max_model_len);
    const test::DrawnGolden drawn(GetParam().folder);
    const Checkpoint checkpoint = Checkpoint::open(drawn.folder()).value();
    EXPECT_TRUE(fit_to_checkpoint(spec, checkpoint));
    const auto make_device = testing::cpu_of_rank(options.batch_invariant);
    const auto make_model = testing::checkpoint_model(spec, checkpoint);
    options.ranks = testing::fork_followers(testing::n_test_ranks(), make_device, make_model);
    auto backend = make_device(options.ranks).value();
    auto model = make_model(*backend).value();
    options.kv_dtype = DType::f32;
    options.max_model_len = max_model_len;
    options.max_num_batched_tokens = 2 * kLength;
    options.max_num_seqs = 8;
    for (const KvShape& shape : model->kv_shapes(1, options.block_len, DType::f32))
      options.kv_cache_bytes += kGoldenBlocks * backend->kv_block_bytes(shape);
    auto engine = Engine::create(options, std::move(backend), std::move(model));
    EXPECT_TRUE(engine) << engine.error().message;
    return std::move(*engine);
  }
};

TEST_P(EngineGoldens, give_the_tokens_of_transformers) {
  const testing::Golden golden(GetParam().file);
  const auto prompt = golden.read<std::int32_t>("input_ids");
  const auto expected = golden.read<std::int32_t>("greedy_ids");
  const auto n_tokens = static_cast<std::int32_t>(prompt.size() + expected.size());
  const std::int32_t max_positions =
      golden.contains("max_positions") ? golden.read<std::int32_t>("max_positions")[0] : n_tokens;
  const auto engine = make_engine({}, max_positions);
  const Request request = greedy(prompt, static_cast<std::int32_t>(expected.size()));
  EXPECT_EQ(run_requests(*engine, {request})[0].tokens, expected);
}

// Three prompts after a shared beginning of more than a chunk (256 positions), which relay reads once.
TEST_P(EngineGoldens, answer_with_the_same_bits_relayed_and_paged_cold_and_warm_alone_and_together) {
  const auto shared = random_prompt(1, 290);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 3; ++i) requests.push_back(greedy(joined(shared, random_prompt(10 + i, 3 + 20 * i)), 5));
  const auto relay = make_engine({.relay = true, .batch_invariant = true}, kLength);
  const auto paged = make_engine({.relay = false, .batch_invariant = true}, kLength);
  const std::vector<Generated> expected = run_requests(*paged, {requests[0]});
  const auto expect_bits = [&](const Generated& got, const Generated& as) {
    EXPECT_EQ(got.tokens, as.tokens);
    EXPECT_EQ(got.logprobs, as.logprobs);
  };
  std::vector<Generated> alone = expected;
  for (const std::size_t i : {1U, 2U}) alone.push_back(run_requests(*paged, {requests[i]})[0]);
  const ModelSpec spec = read_model_spec(GetParam().folder).value();
  EXPECT_GT(alone[2].stats.cached_tokens, 0) << "warm";
  for (const char* cache : {"cold", "warm"}) {
    SCOPED_TRACE(cache);
    const auto together = run_requests(*relay, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) expect_bits(together[i], alone[i]);
  }
  const auto again = run_requests(*paged, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) expect_bits(again[i], alone[i]);
  EXPECT_EQ(paged->metrics().kv_bytes_saved.value(), 0);
  // Four heads read a latent key at once: it is so few bytes for them that each request reads it itself.
  const auto sees_all = [](const LayerSpec& layer) {
    return !layer.is_recurrent() && layer.attention.window == 0 && (!layer.attention.latent || layer.attention.n_heads <= 2);
  };
  if (std::ranges::any_of(spec.layers, sees_all)) {
    EXPECT_GT(relay->metrics().kv_bytes_saved.value(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, EngineGoldens, ::testing::ValuesIn(testing::golden_cases()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace baton
