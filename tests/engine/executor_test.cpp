/// Executor: a step buffer is all it needs, and it runs when its results are asked for.
#include "engine/executor.h"

#include <gtest/gtest.h>

#include "support/step_builder.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

constexpr std::int32_t kBlockLen = 16;

std::unique_ptr<Executor> make_executor() {
  auto backend = make_backend("cpu", {.n_threads = 1});
  const ModelConfig config = testing::tiny_config();
  auto weights = random_weights(config, **backend, DType::f32, 11);
  auto executor = Executor::create(std::move(*backend), std::make_unique<Model>(config, std::move(*weights)), {64, 8, 256, 8});
  EXPECT_TRUE(executor);
  EXPECT_TRUE((*executor)->allocate_cache(8, kBlockLen, DType::f32));
  return std::move(*executor);
}

/// A step of one sequence in slot 3: `tokens` at the end of kv_len positions.
StepInput step_of(const Executor& executor, std::span<const BlockId> blocks, std::vector<TokenId> tokens, std::int32_t kv_len,
                  bool resets) {
  testing::StepSequence sequence;
  sequence.rows = {SlotId{3}, blocks, kv_len, static_cast<std::int32_t>(tokens.size())};
  sequence.tokens = std::move(tokens);
  sequence.sampling.max_tokens = 3;
  return testing::pack_step(std::span(&sequence, 1), executor.model().attention_shapes(kBlockLen, DType::f32)[0], {},
                            resets ? std::vector<std::int32_t>{3} : std::vector<std::int32_t>{});
}

TEST(Executor, runs_steps_in_order_when_their_results_are_asked_for) {
  const auto executor = make_executor();
  for (KvStorage* storage : executor->storages()) storage->fill_bytes(0xff);
  const std::vector<BlockId> blocks{BlockId{4}, BlockId{1}};
  executor->submit(step_of(*executor, blocks, testing::random_prompt(1, 15), 15, true));
  executor->submit(step_of(*executor, blocks, {kLastTokenOfSlot}, 16, false));
  executor->submit(step_of(*executor, blocks, {kLastTokenOfSlot}, 17, false));
  executor->submit(step_of(*executor, blocks, {kLastTokenOfSlot}, 18, false));
  EXPECT_EQ(executor->n_submitted(), 4u);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 3; ++i) {
    const auto results = executor->wait();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].was_finished, 0);
    EXPECT_EQ(results[0].finished, i == 2 ? FinishedBy::length : FinishedBy::not_finished);
    tokens.push_back(results[0].token);
  }
  EXPECT_EQ(executor->wait()[0].was_finished, 1) << "the row after the last token is dead";

  // The same tokens, computed from what is known.
  auto prompt = testing::random_prompt(1, 15);
  for (std::size_t i = 0; i < 3; ++i) {
    executor->submit(step_of(*executor, blocks, prompt, static_cast<std::int32_t>(prompt.size()), true));
    EXPECT_EQ(executor->wait()[0].token, tokens[i]);
    prompt.push_back(tokens[i]);
  }
}

TEST(ExecutorDeathTest, aborts_on_a_step_over_its_limits_and_on_a_wait_for_nothing) {
  const auto executor = make_executor();
  EXPECT_DEATH(executor->wait(), "without a submitted step");
  const std::vector<BlockId> blocks{BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}, BlockId{4}};
  EXPECT_DEATH(executor->submit(step_of(*executor, blocks, testing::random_prompt(1, 65), 65, true)),
               "the step has 65 token ids, over its bound of 64");
}

}  // namespace
}  // namespace baton
