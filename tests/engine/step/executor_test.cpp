/// Executor: it runs a step from its buffer alone, when the results are requested.
#include "engine/step/executor.h"

#include <gtest/gtest.h>

#include "support/engine_device.h"
#include "support/step_builder.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

constexpr std::int32_t kExecutorBlockLen = 16;

/// `ranks`: the group of the backend, or null.
std::unique_ptr<Executor> make_executor(std::unique_ptr<Backend> backend, const std::shared_ptr<RankGroup>& ranks) {
  auto model = testing::random_model(testing::tiny_spec())(*backend).value();
  auto executor =
      Executor::create(std::move(backend), std::move(model),
                       {.max_rows = 64, .max_samples = 8, .max_partials = 256, .max_slots = 8, .max_positions = 64}, ranks);
  EXPECT_TRUE(executor);
  EXPECT_TRUE((*executor)->allocate_cache(std::vector<CacheGroup>{{.n_blocks = 8}}, kExecutorBlockLen, DType::f32));
  return std::move(*executor);
}
std::unique_ptr<Executor> make_executor(int n_ranks = testing::n_test_ranks()) {
  const auto make_device = testing::cpu_of_rank(false);
  const auto ranks = testing::fork_followers(n_ranks, make_device, testing::random_model(testing::tiny_spec()));
  return make_executor(make_device(ranks).value(), ranks);
}

/// A step of one sequence in slot 3: `tokens` are the last of its kv_len positions.
StepInput step_of(const Executor& executor, std::span<const BlockId> blocks, std::vector<TokenId> tokens, std::int32_t kv_len,
                  bool resets) {
  testing::StepSequence sequence;
  sequence.rows = {SlotId{3}, blocks, kv_len, static_cast<std::int32_t>(tokens.size())};
  sequence.tokens = std::move(tokens);
  sequence.sampling.max_tokens = 3;
  return testing::pack_step(std::span(&sequence, 1), executor.model().attention_shapes(kExecutorBlockLen, DType::f32)[0], {},
                            resets ? std::vector<std::int32_t>{3} : std::vector<std::int32_t>{});
}

void submit(Executor& executor, StepInput step) {
  executor.forward(std::move(step));
  executor.sample();
}

TEST(Executor, runs_steps_in_order_when_their_results_are_asked_for) {
  const auto executor = make_executor();
  for (KvStorage* storage : executor->storages()) storage->fill_bytes(0xff);
  const std::vector<BlockId> blocks{BlockId{4}, BlockId{1}};
  submit(*executor, step_of(*executor, blocks, testing::random_prompt(1, 15), 15, true));
  submit(*executor, step_of(*executor, blocks, {kLastTokenOfSlot}, 16, false));
  submit(*executor, step_of(*executor, blocks, {kLastTokenOfSlot}, 17, false));
  submit(*executor, step_of(*executor, blocks, {kLastTokenOfSlot}, 18, false));
  EXPECT_EQ(executor->n_in_flight(), 4u);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 3; ++i) {
    const auto results = executor->wait();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].was_finished, 0);
    EXPECT_EQ(results[0].finished, i == 2 ? FinishedBy::length : FinishedBy::not_finished);
    tokens.push_back(results[0].token);
  }
  EXPECT_EQ(executor->wait()[0].was_finished, 1) << "the row after the last token is dead";

  // The same tokens, computed from known tokens.
  auto prompt = testing::random_prompt(1, 15);
  for (std::size_t i = 0; i < 3; ++i) {
    submit(*executor, step_of(*executor, blocks, prompt, static_cast<std::int32_t>(prompt.size()), true));
    EXPECT_EQ(executor->wait()[0].token, tokens[i]);
    prompt.push_back(tokens[i]);
  }
}

/// What only sampling needs may come after the forward has run: it delays only the sampling. With and without graphs.
TEST(Executor, runs_a_forward_while_its_sampling_waits_for_the_host) {
  for (const bool captures : {false, true}) {
    SCOPED_TRACE(captures);
    const std::vector<BlockId> blocks{BlockId{4}, BlockId{1}};
    const auto reference = make_executor();
    const auto ranks = testing::fork_async_followers(false, testing::random_model(testing::tiny_spec()));
    auto made = testing::async_of_rank(ranks, false, testing::Pace::late);
    ASSERT_TRUE(made);
    testing::AsyncBackend& device = **made;
    const auto executor = make_executor(std::move(*made), ranks);
    if (captures) {
      ASSERT_TRUE(executor->capture_steps(4));
    }
    std::uint64_t n_replays = device.n_replays();
    for (std::int32_t step = 0; step < 3; ++step) {
      const auto input = [&] {
        return step == 0 ? step_of(*executor, blocks, testing::random_prompt(1, 15), 15, true)
                         : step_of(*executor, blocks, {kLastTokenOfSlot}, 15 + step, false);
      };
      executor->forward(input());
      device.synchronize();  // the forward ends; sampling has not been requested yet
      const std::uint64_t n_run = device.n_run();
      EXPECT_EQ(device.n_enqueued(), n_run);
      executor->sample();
      EXPECT_EQ(device.n_run(), n_run) << "nothing waits for the sampling";
      EXPECT_EQ(device.n_enqueued(), n_run + 2) << "the sampling, in one operation or graph, and the readback";
      submit(*reference, input());
      EXPECT_EQ(executor->wait()[0].token, reference->wait()[0].token);
      const std::uint64_t n_graphs = !captures ? 0 : step == 0 ? 1 : 2;  // the forward of a prompt has no graph
      EXPECT_EQ(device.n_replays() - n_replays, n_graphs);
      n_replays = device.n_replays();
    }
  }
}

/// A save reads what the steps before it wrote, and a load comes before the next step, whether or not these steps have
/// run when the copies are asked for.
TEST(Executor, carries_out_copies_of_the_host_tier_between_the_steps_that_they_stand_between) {
  const auto contents = [](const Executor& executor, std::int32_t block) {
    const KvStorage& storage = *executor.storages()[0];
    std::vector<std::byte> bytes(static_cast<std::size_t>(storage.shape().block_bytes()));
    storage.export_block(BlockId{block}, {bytes.data(), DType::u8, {storage.shape().block_bytes()}});
    return bytes;
  };
  using enum TierCopy::Kind;
  for (const bool is_asynchronous : {false, true}) {
    SCOPED_TRACE(is_asynchronous);
    const auto executor =
        is_asynchronous ? make_executor(std::move(*testing::AsyncBackend::make({.n_threads = 1}, testing::Pace::late)), nullptr)
                        : make_executor(/*n_ranks=*/1);
    ASSERT_TRUE(executor->allocate_tier(2, 0));
    const std::vector<BlockId> first{BlockId{4}};
    const std::vector<BlockId> second{BlockId{5}};
    submit(*executor, step_of(*executor, first, testing::random_prompt(1, 16), 16, true));
    executor->copy({{save, 0, BlockId{4}, 1}});
    executor->copy({{load, 0, BlockId{6}, 1}, {load, 0, BlockId{5}, 1}});
    submit(*executor, step_of(*executor, first, testing::random_prompt(2, 16), 16, true));
    executor->wait();
    executor->copy({{save, 0, BlockId{4}, 0}});  // no step follows
    executor->wait();
    executor->copy({{load, 0, BlockId{7}, 0}});  // no step is in flight
    const std::vector<std::byte> after = contents(*executor, 4);
    EXPECT_EQ(contents(*executor, 7), after);
    const std::vector<std::byte> before = contents(*executor, 6);
    EXPECT_EQ(contents(*executor, 5), before);
    EXPECT_NE(before, after);
    submit(*executor, step_of(*executor, second, testing::random_prompt(1, 16), 16, true));
    executor->wait();
    EXPECT_EQ(contents(*executor, 5), before) << "it is what the first step computes";
  }
}

TEST(ExecutorDeathTest, aborts_on_copies_without_a_host_tier) {
  const auto executor = make_executor(/*n_ranks=*/1);
  EXPECT_DEATH(executor->copy({{TierCopy::Kind::save, 0, BlockId{0}, 0}}), "a copy without a host tier");
}

TEST(ExecutorDeathTest, aborts_on_a_forward_before_the_sample_of_the_step_before) {
  const auto executor = make_executor(/*n_ranks=*/1);
  const std::vector<BlockId> blocks{BlockId{0}};
  EXPECT_DEATH(executor->sample(), "a sample without a forward");
  executor->forward(step_of(*executor, blocks, testing::random_prompt(1, 5), 5, true));
  EXPECT_DEATH(executor->wait(), "wait without a step that was sampled");
  EXPECT_DEATH(executor->forward(step_of(*executor, blocks, {kLastTokenOfSlot}, 6, false)), "before the sample");
}

TEST(ExecutorDeathTest, aborts_on_a_step_over_its_limits_and_on_a_wait_for_nothing) {
  const auto executor = make_executor(/*n_ranks=*/1);
  EXPECT_DEATH(executor->wait(), "wait without a step that was sampled");
  const std::vector<BlockId> blocks{BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}, BlockId{4}};
  EXPECT_DEATH(executor->forward(step_of(*executor, blocks, testing::random_prompt(1, 65), 65, true)),
               "the step has 65 token ids, over its bound of 64");
}

}  // namespace
}  // namespace baton
