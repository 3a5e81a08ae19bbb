/// Sampling orders and results.
#include "engine/sampler.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

Sequence running_sequence() {
  Sequence sequence;
  sequence.id = SequenceId{3};
  sequence.slot = SlotId{5};
  sequence.sampling.seed = 9;
  sequence.sampling.temperature = 0.5F;
  sequence.sampling.top_k = 4;
  sequence.sampling.top_p = 0.7F;
  sequence.sampling.n_top_logprobs = 2;
  sequence.sampling.min_tokens = 1;
  sequence.stop_ids = {11, 12};
  sequence.tokens = {1, 2, 3, 4};
  sequence.prompt_len = 3;
  sequence.max_len = 13;
  sequence.n_before_slot = 1;
  return sequence;
}

TEST(Sampler, orders_what_the_sequence_asks_for) {
  const SampleOrder order = make_order(running_sequence(), 17);
  EXPECT_EQ(order.row, 17);
  EXPECT_EQ(order.slot, 5);
  EXPECT_EQ(order.temperature, 0.5F);
  EXPECT_EQ(order.top_k, 4);
  EXPECT_EQ(order.top_p, 0.7F);
  EXPECT_EQ(order.n_top_logprobs, 2);
  EXPECT_EQ(order.seed, 9u);
  EXPECT_EQ(order.min_tokens, 1);
  EXPECT_EQ(order.max_tokens, 10) << "of the whole sequence, not of its slot";
  EXPECT_EQ(order.n_generated_before, 1);
  ASSERT_EQ(order.n_stop_ids, 2);
  EXPECT_EQ(order.stop_ids[1], 12);
}

TEST(SamplerDeathTest, aborts_on_a_sequence_that_was_not_checked) {
  Sequence sequence = running_sequence();
  sequence.sampling.seed.reset();
  EXPECT_DEATH(make_order(sequence, 0), "seed");
  sequence = running_sequence();
  sequence.stop_ids.resize(kMaxStopIds + 1);
  EXPECT_DEATH(make_order(sequence, 0), "stop ids");
}

TEST(Sampler, reads_a_token_with_its_log_probabilities) {
  SampleResult result;
  result.token = 6;
  result.logprob = -1.5F;
  result.n_top = 2;
  result.top_ids[0] = 4;
  result.top_logprobs[0] = -0.5F;
  result.top_ids[1] = 6;
  result.top_logprobs[1] = -1.5F;
  const auto outcome = read_result(SequenceId{3}, 2, result);
  ASSERT_TRUE(outcome);
  ASSERT_EQ(outcome->tokens.size(), 1u);
  EXPECT_EQ(outcome->tokens[0].token, 6);
  EXPECT_EQ(outcome->tokens[0].logprob, -1.5F);
  ASSERT_EQ(outcome->tokens[0].top_logprobs.size(), 2u);
  EXPECT_EQ(outcome->tokens[0].top_logprobs[0].token, 4);
  EXPECT_FALSE(outcome->finished);
  EXPECT_FALSE(read_result(SequenceId{3}, -1, result)->tokens[0].logprob);
}

TEST(Sampler, reads_each_way_to_end) {
  SampleResult result;
  result.token = 6;
  result.finished = FinishedBy::stop_id;
  const auto stopped = read_result(SequenceId{3}, -1, result);
  EXPECT_TRUE(stopped->tokens.empty());
  EXPECT_EQ(stopped->stop_id, 6);
  EXPECT_EQ(stopped->finished, FinishReason::stop);
  result.finished = FinishedBy::length;
  EXPECT_EQ(read_result(SequenceId{3}, -1, result)->tokens.size(), 1u);
  EXPECT_EQ(read_result(SequenceId{3}, -1, result)->finished, FinishReason::length);
  result.finished = FinishedBy::not_a_number;
  EXPECT_TRUE(read_result(SequenceId{3}, -1, result)->tokens.empty());
  EXPECT_EQ(read_result(SequenceId{3}, -1, result)->finished, FinishReason::error);
  result.was_finished = 1;
  EXPECT_FALSE(read_result(SequenceId{3}, -1, result));
}

}  // namespace
}  // namespace baton
