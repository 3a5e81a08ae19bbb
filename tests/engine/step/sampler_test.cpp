/// Sampling metadata and results.
#include "engine/step/sampler.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/sequence_editor.h"

namespace baton {
namespace {

Sequence running_sequence() {
  SequenceTask task;
  task.id = SequenceId{3};
  task.sampling.seed = 9;
  task.sampling.temperature = 0.5F;
  task.sampling.top_k = 4;
  task.sampling.top_p = 0.7F;
  task.sampling.n_top_logprobs = 2;
  task.sampling.min_tokens = 1;
  task.stop_ids = {11, 12};
  task.prompt_len = 3;
  task.max_len = 13;
  Sequence sequence(std::move(task), {1, 2, 3, 4});
  SequenceEditor::schedule(sequence).slot = SlotId{5};
  SequenceEditor::schedule(sequence).n_before_slot = 1;
  return sequence;
}

void count_tokens(Sequence& sequence) { count_tokens(sequence, SequenceEditor::sampling(sequence).counts); }

TEST(Sampler, orders_what_the_sequence_asks_for) {
  SamplingLists lists;
  Sequence sequence = running_sequence();
  SamplingParams& asked = SequenceEditor::task(sequence).sampling;
  asked.min_p = 0.1F;
  asked.repetition_penalty = 1.25F;
  asked.presence_penalty = 0.5F;
  asked.frequency_penalty = -0.5F;
  asked.logit_bias = {{7, 1}};
  asked.allowed_ids = {4, 5};
  const SamplingMetadata sampling = make_sampling(sequence, 17, lists);
  EXPECT_EQ(sampling.row, 17);
  EXPECT_EQ(sampling.slot, 5);
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_k, 4);
  EXPECT_EQ(sampling.top_p, 0.7F);
  EXPECT_EQ(sampling.min_p, 0.1F);
  EXPECT_EQ(sampling.repetition_penalty, 1.25F);
  EXPECT_EQ(sampling.presence_penalty, 0.5F);
  EXPECT_EQ(sampling.frequency_penalty, -0.5F);
  EXPECT_EQ(sampling.biases.count, 1);
  EXPECT_EQ(lists.biases[0].id, 7);
  EXPECT_EQ(sampling.allowed.count, 2);
  EXPECT_EQ(lists.allowed_ids, (std::vector<TokenId>{4, 5}));
  EXPECT_EQ(sampling.scored, -1);
  EXPECT_EQ(sampling.n_top_logprobs, 2);
  EXPECT_EQ(sampling.seed, 9u);
  EXPECT_EQ(sampling.min_tokens, 1);
  EXPECT_EQ(sampling.max_tokens, 10) << "of the whole sequence, not of its slot";
  EXPECT_EQ(sampling.n_generated_before, 1);
  ASSERT_EQ(sampling.n_stop_ids, 2);
  EXPECT_EQ(sampling.stop_ids[1], 12);
}

TEST(Sampler, counts_the_answer_and_lists_the_prompt_for_repetition_only) {
  Sequence sequence = running_sequence();
  SequenceEditor::schedule(sequence).tokens = SequenceTokens({1, 2, 1, 4, 2, 4});  // the answer is 4 2 4
  SequenceEditor::task(sequence).sampling.presence_penalty = 0.5F;
  count_tokens(sequence);
  SamplingLists lists;
  lists.counts.push_back({99, 9});  // another sequence's
  SamplingMetadata sampling = make_sampling(sequence, 0, lists);
  EXPECT_EQ(sampling.counts.first, 1);
  EXPECT_EQ(sampling.counts.count, 2);
  EXPECT_EQ(lists.counts, (std::vector<TokenCount>{{99, 9}, {4, 2}, {2, 1}}));
  EXPECT_EQ(sampling.counts_last_token, 0);
  SequenceEditor::schedule(sequence).tokens.push_back(7);
  SequenceEditor::schedule(sequence).n_samples_in_flight = 2;  // this sample's, and one whose token is not known
  count_tokens(sequence);
  lists = {};
  sampling = make_sampling(sequence, 0, lists);
  EXPECT_EQ(lists.counts, (std::vector<TokenCount>{{4, 2}, {2, 1}, {7, 1}}));
  EXPECT_EQ(sampling.counts_last_token, 1);

  Sequence repeating = running_sequence();
  SequenceEditor::schedule(repeating).tokens =
      SequenceTokens(std::vector<TokenId>(sequence.schedule->tokens.begin(), sequence.schedule->tokens.end()));
  SequenceEditor::task(repeating).sampling.repetition_penalty = 1.1F;
  count_tokens(repeating);
  lists = {};
  make_sampling(repeating, 0, lists);
  EXPECT_EQ(lists.counts, (std::vector<TokenCount>{{1, 0}, {2, 1}, {4, 2}, {7, 1}}));

  Sequence plain = running_sequence();
  count_tokens(plain);
  lists = {};
  make_sampling(plain, 0, lists);
  EXPECT_TRUE(lists.counts.empty());
}

TEST(Sampler, bans_the_ends_of_bad_words_as_far_as_they_are_known) {
  Sequence sequence = running_sequence();
  SequenceEditor::schedule(sequence).tokens = SequenceTokens({1, 2, 3, 4, 5});  // the answer is 4 5
  SequenceEditor::task(sequence).sampling.bad_words = {{8}, {5, 9}, {4, 5, 6}, {3, 4, 5, 7}, {5, 6, 7}, {6, 7}};
  SamplingLists lists;
  SamplingMetadata sampling = make_sampling(sequence, 0, lists);
  EXPECT_EQ(lists.bans, (std::vector<TokenBan>{{-1, 8}, {-1, 9}, {-1, 6}})) << "the prompt is not part of the answer";
  EXPECT_EQ(sampling.bans.count, 3);
  SequenceEditor::schedule(sequence).n_samples_in_flight = 2;
  lists = {};
  sampling = make_sampling(sequence, 0, lists);
  EXPECT_EQ(lists.bans, (std::vector<TokenBan>{{-1, 8}, {5, 9}, {6, 7}, {6, 7}})) << "5 ? and 4 5 ?, ? being on its way";
}

TEST(SamplerDeathTest, aborts_on_a_sequence_that_was_not_checked) {
  SamplingLists lists;
  Sequence unseeded = running_sequence();
  SequenceEditor::task(unseeded).sampling.seed.reset();
  EXPECT_DEATH(make_sampling(unseeded, 0, lists), "seed");
  Sequence listing = running_sequence();
  SequenceEditor::task(listing).stop_ids = std::vector<TokenId>(kMaxStopIds + 1);
  EXPECT_DEATH(make_sampling(listing, 0, lists), "stop ids");
  Sequence ahead = running_sequence();
  SequenceEditor::schedule(ahead).n_samples_in_flight = 3;
  EXPECT_DEATH(make_sampling(ahead, 0, lists), "unknown");
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
  const auto outcome = read_result(running_sequence(), result);
  ASSERT_TRUE(outcome);
  ASSERT_EQ(outcome->tokens.size(), 1u);
  EXPECT_EQ(outcome->tokens[0].token, 6);
  EXPECT_EQ(outcome->tokens[0].logprob, -1.5F);
  ASSERT_EQ(outcome->tokens[0].top_logprobs.size(), 2u);
  EXPECT_EQ(outcome->tokens[0].top_logprobs[0].token, 4);
  EXPECT_FALSE(outcome->finished);
  EXPECT_EQ(outcome->id, SequenceId{3});
  Sequence plain = running_sequence();
  SequenceEditor::task(plain).sampling.n_top_logprobs = -1;
  EXPECT_FALSE(read_result(plain, result)->tokens[0].logprob);
}

TEST(Sampler, orders_and_reads_scores_of_the_prompt) {
  Sequence sequence = running_sequence();
  SequenceEditor::task(sequence).sampling.n_top_logprobs = -1;
  SequenceEditor::task(sequence).sampling.n_prompt_logprobs = 1;
  const SamplingMetadata sampling = make_scoring(sequence, 9, 1);
  EXPECT_EQ(sampling.row, 9);
  EXPECT_EQ(sampling.scored, 3) << "the token after position 1";
  EXPECT_EQ(sampling.n_top_logprobs, 1);
  SampleResult result;
  result.token = 3;
  result.rank = 7;
  result.logprob = -2;
  auto outcome = read_result(sequence, result);
  ASSERT_TRUE(outcome && outcome->tokens.empty());
  ASSERT_EQ(outcome->prompt_scores.size(), 1u);
  EXPECT_EQ(outcome->prompt_scores[0].rank, 7);
  EXPECT_EQ(outcome->prompt_scores[0].logprob, -2.0F);
  result.rank = 0;
  result.finished = FinishedBy::length;
  join(*outcome, *read_result(sequence, result), {});
  EXPECT_EQ(outcome->prompt_scores.size(), 1u);
  EXPECT_EQ(outcome->tokens.size(), 1u);
  EXPECT_EQ(outcome->finished, FinishReason::length);
  result.finished = FinishedBy::not_a_number;
  StepOutcome broken = *read_result(sequence, result);
  join(broken, *outcome, {});
  EXPECT_EQ(broken.finished, FinishReason::error);
  EXPECT_TRUE(broken.tokens.empty());
}

TEST(Sampler, orders_of_drafts_see_those_before_them_as_generated) {
  Sequence sequence = running_sequence();  // its answer so far is 4
  SequenceEditor::task(sequence).sampling.repetition_penalty = 1.25F;
  SequenceEditor::task(sequence).sampling.bad_words = {{4, 8}, {4, 6, 6}, {4, 6, 6, 7}, {9}};
  SequenceEditor::schedule(sequence).n_samples_in_flight = 3;
  SequenceEditor::schedule(sequence).n_drafts_in_flight = 2;
  count_tokens(sequence);
  SamplingLists lists;
  const std::vector<TokenId> drafts{6, 6};
  const SamplingMetadata first = make_sampling(sequence, 0, lists);
  EXPECT_EQ(first.counts_last_token, 0) << "all tokens before it are known";
  EXPECT_EQ(first.slot, 5);
  const SamplingMetadata second = make_draft_sampling(sequence, std::span(drafts).first(1), SlotId{40}, 1, lists);
  EXPECT_EQ(second.slot, 40);
  EXPECT_EQ(second.row, 1);
  EXPECT_EQ(second.n_generated_before, 2);
  EXPECT_EQ(second.max_tokens, first.max_tokens);
  EXPECT_EQ(second.seed, first.seed);
  const SamplingMetadata third = make_draft_sampling(sequence, drafts, SlotId{41}, 2, lists);
  EXPECT_EQ(third.n_generated_before, 3);
  const auto counts_of = [&](const SamplingMetadata& sampling) {
    const auto begin = lists.counts.begin() + sampling.counts.first;
    return std::vector<TokenCount>(begin, begin + sampling.counts.count);
  };
  EXPECT_EQ(counts_of(first), (std::vector<TokenCount>{{1, 0}, {2, 0}, {3, 0}, {4, 1}}));
  EXPECT_EQ(counts_of(second), (std::vector<TokenCount>{{1, 0}, {2, 0}, {3, 0}, {4, 1}, {6, 1}}));
  EXPECT_EQ(counts_of(third), (std::vector<TokenCount>{{1, 0}, {2, 0}, {3, 0}, {4, 1}, {6, 2}}));
  const auto bans_of = [&](const SamplingMetadata& sampling) {
    const auto begin = lists.bans.begin() + sampling.bans.first;
    return std::vector<TokenBan>(begin, begin + sampling.bans.count);
  };
  EXPECT_EQ(bans_of(first), (std::vector<TokenBan>{{-1, 8}, {-1, 9}}));
  EXPECT_EQ(bans_of(second), (std::vector<TokenBan>{{-1, 6}, {-1, 9}}));
  EXPECT_EQ(bans_of(third), (std::vector<TokenBan>{{-1, 7}, {-1, 9}}));
}

TEST(Sampler, takes_what_drafts_gave_up_to_the_first_that_differs) {
  const Sequence sequence = running_sequence();
  const std::vector<TokenId> drafts{6, 7, 6};
  const auto joined = [&](const std::vector<TokenId>& sampled, std::size_t ends_at = 99) {
    StepOutcome outcome;
    for (std::size_t i = 0; i < sampled.size(); ++i) {
      SampleResult result;
      result.token = sampled[i];
      if (i == ends_at) result.finished = FinishedBy::stop_id;
      if (i == 0)
        outcome = *read_result(sequence, result);
      else
        join(outcome, *read_result(sequence, result), std::span(drafts).first(i));
    }
    EXPECT_EQ(outcome.n_drafts, 3);
    return outcome;
  };
  EXPECT_EQ(joined({6, 7, 6, 1}).n_accepted, 3);
  EXPECT_EQ(joined({6, 7, 6, 1}).tokens.size(), 4u);
  EXPECT_EQ(joined({6, 6, 6, 6}).n_accepted, 1) << "what follows a rejected draft means nothing, whatever it equals";
  EXPECT_EQ(joined({6, 6, 6, 6}).tokens.size(), 2u);
  EXPECT_EQ(joined({5, 7, 6, 1}).tokens.size(), 1u);
  const StepOutcome stopped = joined({6, 7, 6, 1}, 1);
  EXPECT_EQ(stopped.tokens.size(), 1u);
  EXPECT_EQ(stopped.n_accepted, 1);
  EXPECT_EQ(stopped.stop_token->token, 7);
  EXPECT_FALSE(joined({5, 7, 6, 1}, 1).finished) << "an end after a rejected draft is none";
}

TEST(Sampler, reads_each_way_to_end) {
  const Sequence plain = running_sequence();
  SampleResult result;
  result.token = 6;
  result.logprob = -0.25F;
  result.n_top = 1;
  result.top_ids[0] = 8;
  result.finished = FinishedBy::stop_id;
  const auto stopped = read_result(plain, result);
  EXPECT_TRUE(stopped->tokens.empty());
  EXPECT_EQ(stopped->stop_token->token, 6);
  EXPECT_EQ(stopped->stop_token->logprob, -0.25F);
  ASSERT_EQ(stopped->stop_token->top_logprobs.size(), 1u);
  EXPECT_EQ(stopped->stop_token->top_logprobs[0].token, 8);
  EXPECT_EQ(stopped->finished, FinishReason::stop);
  result.finished = FinishedBy::nothing_allowed;
  EXPECT_TRUE(read_result(plain, result)->tokens.empty());
  EXPECT_EQ(read_result(plain, result)->finished, FinishReason::stop);
  EXPECT_FALSE(read_result(plain, result)->stop_token);
  result.finished = FinishedBy::length;
  EXPECT_EQ(read_result(plain, result)->tokens.size(), 1u);
  EXPECT_EQ(read_result(plain, result)->finished, FinishReason::length);
  result.finished = FinishedBy::not_a_number;
  EXPECT_TRUE(read_result(plain, result)->tokens.empty());
  EXPECT_EQ(read_result(plain, result)->finished, FinishReason::error);
  result.was_finished = 1;
  EXPECT_FALSE(read_result(plain, result));
}

}  // namespace
}  // namespace baton
