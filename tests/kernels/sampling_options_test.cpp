/// Sampling options other than temperature, top_k, top_p and stop ids: min_p, penalties, lists, scored tokens.
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "support/sampling_run.h"

namespace baton {
namespace {

using testing::AskedSample;
using testing::exact_distribution;
using testing::expect_drawn;
using testing::kMinusInfinity;
using testing::normal_logits;
using testing::Sampler;
using testing::TestBackend;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingMetadata with_temperature(float temperature) {
  SamplingMetadata sampling;
  sampling.temperature = temperature;
  return sampling;
}

TEST(SamplingOptions, min_p_keeps_what_is_likely_enough) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    AskedSample asked{.sampling = with_temperature(2)};
    asked.sampling.min_p = 0.25f;
    const std::vector<float> logits{2, 0, -0.5f, -1, 4, kMinusInfinity};  // p / p_max: .37 .14 .11 .08 1 0
    const std::vector<double> expected = exact_distribution(logits, asked, 0, 0);
    EXPECT_GT(expected[0], 0);
    EXPECT_EQ(expected[1], 0);
    expect_drawn(on.backend, logits, asked, expected);
    asked.sampling.min_p = 1;
    EXPECT_EQ(Sampler(on.backend, 1).run_one(logits, asked).token, 4);
  }
}

TEST(SamplingOptions, penalties_are_of_listed_tokens_and_of_the_one_in_flight) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    const std::vector<float> logits{1, -1, 2, 1.5f, 0.5f, 1, 0};
    AskedSample asked{.sampling = with_temperature(1), .counts = {{1, 0}, {2, 3}, {3, 1}}};
    asked.sampling.repetition_penalty = 1.3f;
    asked.sampling.presence_penalty = 0.4f;
    asked.sampling.frequency_penalty = 0.2f;
    for (const TokenId last : {3, 5}) {  // in the list, and not in it
      for (const std::int32_t counts_last : {0, 1}) {
        asked.sampling.counts_last_token = counts_last;
        const SlotState slot{.last_token = last, .n_generated = 4};
        expect_drawn(on.backend, logits, asked, exact_distribution(logits, asked, last, 4), slot);
      }
    }
  }
}

TEST(SamplingOptions, negative_penalties_ask_for_repetition) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    AskedSample asked{.counts = {{2, 1}}};
    asked.sampling.frequency_penalty = -2;
    EXPECT_EQ(Sampler(on.backend, 1).run_one({1, 0, -0.5f}, asked).token, 2);
  }
}

TEST(SamplingOptions, greedy_hears_every_list) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    const std::vector<float> logits{1, 5, 4, 3, 5};
    const auto choose = [&](const AskedSample& asked, TokenId last_token = 0) {
      Sampler sampler(on.backend, 1);
      sampler.slot(0) = {.last_token = last_token, .n_generated = 1};
      return sampler.run_one(logits, asked).token;
    };
    EXPECT_EQ(choose({.biases = {{1, -3}, {4, -1.5f}}}), 2);
    EXPECT_EQ(choose({.biases = {{0, 100}}}), 0);
    EXPECT_EQ(choose({.biases = {{1, kMinusInfinity}}}), 4);
    EXPECT_EQ(choose({.bans = {{7, 1}, {8, 4}}}, 7), 4);
    EXPECT_EQ(choose({.bans = {{7, 1}, {7, 4}, {6, 2}}}, 7), 2);
    EXPECT_EQ(choose({.bans = {{-1, 1}, {-1, 1}, {8, 4}}}, 8), 2);
    EXPECT_EQ(choose({.allowed = {0, 3}}), 3);
    EXPECT_EQ(choose({.biases = {{0, 100}, {3, -2.5f}}, .allowed = {2, 3}}), 2);
    AskedSample asked{.counts = {{1, 0}, {4, 0}}};
    asked.sampling.repetition_penalty = 1.5f;
    EXPECT_EQ(choose(asked), 2);
    asked.counts = {};
    asked.sampling.counts_last_token = 1;
    EXPECT_EQ(choose(asked, 1), 4);
  }
}

TEST(SamplingOptions, ties_after_a_penalty_go_to_the_smaller_id) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    AskedSample asked{.counts = {{3, 2}}};
    asked.sampling.frequency_penalty = 0.5f;
    EXPECT_EQ(Sampler(on.backend, 1).run_one({0, 2, 1, 3}, asked).token, 1);
  }
}

TEST(SamplingOptions, everything_at_once_draws_the_exact_distribution) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    for (std::uint32_t round = 0; round < 6; ++round) {
      SCOPED_TRACE(round);
      const std::vector<float> logits = normal_logits(100 + round, 300);
      AskedSample asked{.sampling = with_temperature(0.6f + 0.3f * static_cast<float>(round))};
      asked.sampling.repetition_penalty = round % 2 == 0 ? 1.2f : 0.9f;
      asked.sampling.presence_penalty = 0.3f;
      asked.sampling.frequency_penalty = round < 3 ? 0.15f : -0.1f;
      asked.sampling.counts_last_token = 1;
      asked.sampling.min_p = round % 3 == 1 ? 0.02f : 0;
      asked.sampling.top_k = round % 3 == 2 ? 40 : 0;
      asked.sampling.top_p = round == 0 ? 1 : 0.9f;
      asked.sampling.min_tokens = 9;
      asked.sampling.n_stop_ids = 2;
      asked.sampling.stop_ids[0] = 7;
      asked.sampling.stop_ids[1] = 250;
      std::mt19937 random(round);
      for (TokenId id = 0; id < 300; id += 1 + static_cast<TokenId>(random() % 4)) {
        asked.counts.push_back({id, static_cast<std::int32_t>(random() % 4)});
        if (random() % 3 == 0) asked.biases.push_back({id, static_cast<float>(random() % 5) - 2});
        if (random() % 5 == 0) asked.bans.push_back({static_cast<TokenId>(random() % 2) + 10, id});
        if (round >= 4 && random() % 2 == 0) asked.allowed.push_back(id);
      }
      const SlotState slot{.last_token = 10, .n_generated = 5};
      expect_drawn(on.backend, logits, asked, exact_distribution(logits, asked, 10, 5), slot);
    }
  }
}

TEST(SamplingOptions, a_large_vocabulary_is_cut_at_the_same_tokens) {
  constexpr std::size_t kVocab = 128'256;
  const std::vector<float> logits = normal_logits(5, kVocab, 3);
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    for (const int kind : {0, 1, 2, 3}) {
      AskedSample asked{.sampling = with_temperature(0.8f)};
      if (kind == 0) asked.sampling.top_k = 3;
      if (kind == 1) asked.sampling.top_p = 0.5f;
      if (kind == 2) asked.sampling.min_p = 0.1f;
      if (kind == 3) asked.sampling.top_p = 0.9f;  // thousands
      const std::vector<double> expected = exact_distribution(logits, asked, 0, 0);
      Sampler sampler(on.backend, 8);
      std::set<TokenId> seen;
      for (int draw = 0; draw < 10; ++draw) {
        std::vector<AskedSample> all(8, asked);
        for (std::int32_t i = 0; i < 8; ++i) {
          all[static_cast<std::size_t>(i)].sampling.slot = i;
          all[static_cast<std::size_t>(i)].sampling.seed = static_cast<std::uint64_t>(i);
        }
        for (const SampleResult& result : sampler.run(std::vector<std::vector<float>>(8, logits), all)) {
          EXPECT_GT(expected[static_cast<std::size_t>(result.token)], 0) << kind;
          seen.insert(result.token);
        }
      }
      EXPECT_GT(seen.size(), 1u) << kind;
    }
  }
}

TEST(SamplingOptions, the_same_seed_gives_the_same_token_in_any_company) {
  const std::vector<float> logits = normal_logits(8, 700);
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    AskedSample mine{.sampling = with_temperature(1), .counts = {{3, 1}, {9, 2}}, .biases = {{5, 1}}, .bans = {{4, 6}}};
    mine.sampling.seed = 77;
    mine.sampling.min_p = 0.001f;
    mine.sampling.presence_penalty = 0.5f;
    mine.sampling.n_top_logprobs = 0;
    Sampler alone(on.backend, 1);
    std::vector<SampleResult> expected;
    for (int i = 0; i < 5; ++i) expected.push_back(alone.run_one(logits, mine));
    Sampler batch(on.backend, 30);
    for (int i = 0; i < 5; ++i) {
      std::vector<std::vector<float>> rows;
      std::vector<AskedSample> all;
      for (std::int32_t s = 0; s < 30; ++s) {
        AskedSample other{.sampling = with_temperature(0.5f), .counts = {{s, s}}, .allowed = {1, 2, 3 + s}};
        other.sampling.frequency_penalty = 1;
        rows.push_back(s == 17 ? logits : normal_logits(static_cast<std::uint32_t>(i * 100 + s), 700));
        all.push_back(s == 17 ? mine : other);
        all.back().sampling.slot = s;
      }
      const SampleResult got = batch.run(rows, all)[17];
      EXPECT_EQ(got.token, expected[static_cast<std::size_t>(i)].token);
      EXPECT_EQ(got.logprob, expected[static_cast<std::size_t>(i)].logprob);
    }
  }
}

TEST(SamplingOptions, log_probabilities_are_of_the_logits_as_they_came) {
  const std::vector<float> logits{1, 3, 2};
  const double total = std::exp(1.0) + std::exp(3.0) + std::exp(2.0);
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    AskedSample asked{.counts = {{1, 1}}, .biases = {{1, -3}, {2, -0.25f}}};
    asked.sampling.presence_penalty = 1;
    asked.sampling.n_top_logprobs = 2;
    const SampleResult result = Sampler(on.backend, 1).run_one(logits, asked);
    EXPECT_EQ(result.token, 2);
    EXPECT_NEAR(result.logprob, 2 - std::log(total), 1e-5);
    EXPECT_EQ(result.top_ids[0], 1);
    EXPECT_NEAR(result.top_logprobs[0], 3 - std::log(total), 1e-5);
  }
}

TEST(SamplingOptions, a_scored_token_is_reported_and_leaves_the_slot_alone) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    const std::vector<float> logits = normal_logits(9, 1000);
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit));
    AskedSample asked;
    asked.sampling.scored = 123;
    asked.sampling.n_top_logprobs = 4;
    Sampler sampler(on.backend, 1);
    sampler.slot(0) = {.last_token = 5, .n_generated = 2, .finished = 1};
    const SampleResult result = sampler.run_one(logits, asked);
    EXPECT_EQ(result.token, 123);
    EXPECT_EQ(result.was_finished, 0);
    EXPECT_EQ(result.finished, FinishedBy::not_finished);
    EXPECT_NEAR(result.logprob, logits[123] - std::log(total), 1e-5);
    EXPECT_EQ(result.rank, 1 + std::ranges::count_if(logits, [&](float logit) { return logit > logits[123]; }));
    ASSERT_EQ(result.n_top, 4);
    EXPECT_GE(result.top_logprobs[0], result.top_logprobs[3]);
    EXPECT_EQ(sampler.slot(0).last_token, 5);
    EXPECT_EQ(sampler.slot(0).n_generated, 2);
    std::vector<float> broken = logits;
    broken[999] = kNan;
    EXPECT_EQ(sampler.run_one(broken, asked).finished, FinishedBy::not_a_number);
    EXPECT_EQ(sampler.slot(0).n_generated, 2);
  }
}

TEST(SamplingOptions, a_sequence_ends_where_nothing_is_allowed) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    for (const float temperature : {0.0f, 1.0f}) {
      AskedSample asked{.sampling = with_temperature(temperature), .biases = {{0, kMinusInfinity}, {2, kMinusInfinity}}};
      asked.allowed = {0, 2};
      Sampler sampler(on.backend, 1);
      EXPECT_EQ(sampler.run_one({1, 2, 3}, asked).finished, FinishedBy::nothing_allowed);
      EXPECT_EQ(sampler.slot(0).finished, 1);
      EXPECT_EQ(sampler.slot(0).n_generated, 0);
      asked.allowed = {};
      asked.biases.push_back({1, kMinusInfinity});
      sampler.slot(0) = {};
      EXPECT_EQ(sampler.run_one({1, 2, 3}, asked).finished, FinishedBy::nothing_allowed);
    }
  }
}

TEST(SamplingOptions, a_nan_ends_the_sequence_whatever_is_asked) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    AskedSample asked{.sampling = with_temperature(1), .biases = {{1, kMinusInfinity}}, .allowed = {0}};
    asked.sampling.min_p = 0.1f;
    EXPECT_EQ(Sampler(on.backend, 1).run_one({1, kNan, 3}, asked).finished, FinishedBy::not_a_number);
  }
}

}  // namespace
}  // namespace baton
