/// CapturedSteps: which graphs exist, and that replayed steps give the same results as launched ones, on every
/// backend.
#include "engine/step/captured_steps.h"

#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/step/executor.h"
#include "support/engine_device.h"
#include "support/step_builder.h"
#include "support/test_backends.h"

namespace baton {
namespace {

constexpr std::int32_t kCapturedBlockLen = 16;
constexpr std::int32_t kBlocksEach = 4;
constexpr std::int32_t kCapturedPromptLen = kCapturedBlockLen + 1;
constexpr std::int32_t kMaxRows = 8 * kCapturedPromptLen;
constexpr std::int32_t kMaxSamples = 8;
constexpr std::int32_t kCapturedRows = 6;
constexpr std::int32_t kDecodes = 12;

TEST(CapturedSteps, stand_as_close_as_the_algorithms_of_matmuls) {
  EXPECT_EQ(CapturedSteps::sizes(0), std::vector<std::int32_t>{});
  EXPECT_EQ(CapturedSteps::sizes(1), std::vector<std::int32_t>{1});
  EXPECT_EQ(CapturedSteps::sizes(6), (std::vector<std::int32_t>{1, 2, 4, 6}));
  EXPECT_EQ(CapturedSteps::sizes(96), (std::vector<std::int32_t>{1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96}));
}

/// A device for each rank of an executor.
struct Devices {
  testing::MakeRankBackend make;
  DType kv_dtype = DType::f32;
  int n_ranks = testing::n_test_ranks();
};

/// The tiny model, one in whose second layer each row passes through two of five experts, one with a shared expert and a router
/// of another kind beside them, and one whose experts weigh what they read.
std::vector<ModelSpec> specs() {
  std::vector<ModelSpec> specs(4, testing::tiny_spec());
  specs[1].layers[1].feed_forward = {.d_ff = 64, .n_experts = 5, .n_experts_per_row = 2, .routing = {.renormalises = true}};
  specs[2].layers[1].feed_forward = {
      .d_ff = 64,
      .n_experts = 6,
      .n_experts_per_row = 2,
      .routing = {.score = RoutingRule::Score::sigmoid, .n_groups = 3, .n_groups_per_row = 2, .renormalises = true},
      .has_choice_bias = true,
      .d_ff_shared = 32,
      .has_shared_gate = true};
  specs[3].layers[1].feed_forward = {.d_ff = 64,
                                     .n_experts = 4,
                                     .n_experts_per_row = 1,
                                     .routing = {.score = RoutingRule::Score::sigmoid},
                                     .weighs_inputs = true,
                                     .d_ff_shared = 32};
  return specs;
}

std::unique_ptr<Executor> make_executor(const Devices& devices, const ModelSpec& spec, bool captures) {
  const auto ranks = testing::fork_followers(devices.n_ranks, devices.make, testing::random_model(spec));
  auto backend = devices.make(ranks);
  EXPECT_TRUE(backend) << backend.error().message;
  auto model = testing::random_model(spec)(**backend);
  EXPECT_TRUE(model) << model.error().message;
  auto executor = Executor::create(std::move(*backend), std::move(*model),
                                   {.max_rows = kMaxRows,
                                    .max_samples = kMaxSamples,
                                    .max_partials = 256,
                                    .max_slots = kMaxSamples,
                                    .max_positions = kBlocksEach * kCapturedBlockLen},
                                   ranks);
  EXPECT_TRUE(executor) << executor.error().message;
  EXPECT_TRUE((*executor)->allocate_cache(std::vector<CacheGroup>{{.n_blocks = kMaxSamples * kBlocksEach}}, kCapturedBlockLen,
                                          devices.kv_dtype));
  if (captures) {
    const auto n_graphs = (*executor)->capture_steps(kCapturedRows);
    EXPECT_TRUE(n_graphs) << n_graphs.error().message;
    EXPECT_EQ(*n_graphs, 3 * CapturedSteps::sizes(kCapturedRows).size());
  }
  return std::move(*executor);
}

/// A step in which each of `n` sequences has `tokens` as the last of kv_len positions. With `shares` all have the same
/// first block, which is read once, so there are partial states.
StepInput step_of(const Executor& executor, DType kv_dtype, std::int32_t n, const std::vector<TokenId>& tokens,
                  std::int32_t kv_len, bool shares) {
  std::vector<std::vector<BlockId>> blocks(static_cast<std::size_t>(n));
  std::vector<testing::StepSequence> sequences(static_cast<std::size_t>(n));
  std::vector<std::int32_t> resets;
  for (std::int32_t s = 0; s < n; ++s) {
    auto& table = blocks[static_cast<std::size_t>(s)];
    auto& sequence = sequences[static_cast<std::size_t>(s)];
    for (std::int32_t b = 0; b < kBlocksEach; ++b) table.push_back(BlockId{b * kMaxSamples + (shares && b == 0 ? 0 : s)});
    sequence.rows = {SlotId{s}, table, kv_len, static_cast<std::int32_t>(tokens.size())};
    sequence.tokens = tokens;
    sequence.sampling.max_tokens = 1000;
    sequence.sampling.n_top_logprobs = 0;
    if (tokens[0] == kLastTokenOfSlot) continue;
    sequence.tokens[0] = 3 + s;
    resets.push_back(s);
  }
  AttentionPlanOptions options;
  options.costs = executor.backend().tuning().attention_costs;
  options.deals_pairs = executor.backend().capabilities().deals_pairs;
  options.costs.item_us = options.costs.merge_us = options.costs.relay_us = 0;
  options.costs.memory_bytes_per_us = options.costs.cache_bytes_per_us = 1;  // a second read always costs more
  StepInput step = testing::pack_step(sequences, executor.model().attention_shapes(kCapturedBlockLen, kv_dtype)[0], options,
                                      std::move(resets));
  EXPECT_EQ(step.group(0).n_partials > 0, shares && n > 1);
  return step;
}

void submit_captured(Executor& executor, StepInput step) {
  executor.forward(std::move(step));
  executor.sample();
}

/// Prefills `n` prompts, then decodes. One more step is always submitted than waited for.
std::vector<TokenId> tokens_of(Executor& executor, DType kv_dtype, std::int32_t n) {
  std::vector<TokenId> tokens;
  const auto take = [&] {
    for (const SampleResult& result : executor.wait()) {
      EXPECT_EQ(result.finished, FinishedBy::not_finished);
      EXPECT_EQ(result.was_finished, 0);
      tokens.push_back(result.token);
    }
    EXPECT_GT(executor.last_step_seconds(), 0);
  };
  submit_captured(executor,
                  step_of(executor, kv_dtype, n, testing::random_prompt(1, kCapturedPromptLen), kCapturedPromptLen, false));
  for (std::int32_t i = 0; i < kDecodes; ++i) {
    submit_captured(executor,
                    step_of(executor, kv_dtype, n, {kLastTokenOfSlot}, kCapturedPromptLen + 1 + i, /*shares=*/i % 3 != 0));
    take();
  }
  take();
  return tokens;
}

void expect_tokens_of_launched_steps(const Devices& devices, const ModelSpec& spec) {
  SCOPED_TRACE(spec.layers.back().feed_forward.has_experts() ? "experts" : "one block");
  const auto launched = make_executor(devices, spec, false);
  const auto captured = make_executor(devices, spec, true);
  // As many rows as captured, fewer, and more.
  for (const std::int32_t n : {1, 6, 3, 5, 8, 2}) {
    SCOPED_TRACE(n);
    const auto expected = tokens_of(*launched, devices.kv_dtype, n);
    EXPECT_EQ(expected.size(), static_cast<std::size_t>(n * (kDecodes + 1)));
    EXPECT_EQ(tokens_of(*captured, devices.kv_dtype, n), expected);
  }
}

TEST(CapturedSteps, give_the_tokens_of_steps_that_are_launched) {
  for (const testing::TestBackend& test : testing::test_backends()) {
    SCOPED_TRACE(test.name);
    Devices devices{[&](const auto& ranks) { return test.make({.n_threads = 1, .ranks = ranks}); }};
    if (test.is_cuda()) devices = {devices.make, DType::bf16, 1};
    for (const ModelSpec& spec : specs()) expect_tokens_of_launched_steps(devices, spec);
    if (!test.is_cuda()) continue;
    devices.kv_dtype = DType::f8_e4m3;
    for (const ModelSpec& spec : specs()) expect_tokens_of_launched_steps(devices, spec);
  }
}

TEST(CapturedSteps, give_them_on_an_asynchronous_device_at_each_pace) {
  for (const testing::Pace pace : {testing::Pace::late, testing::Pace::at_once, testing::Pace::random}) {
    SCOPED_TRACE(static_cast<int>(pace));
    const Devices devices{
        [&](const auto& ranks) -> Result<std::unique_ptr<Backend>> { return testing::async_of_rank(ranks, false, pace); }};
    for (const ModelSpec& spec : specs()) expect_tokens_of_launched_steps(devices, spec);
  }
}

}  // namespace
}  // namespace baton
