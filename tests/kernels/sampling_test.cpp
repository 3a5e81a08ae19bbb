/// Sampling options that every backend supports (kernels/ops.h). Others: sampling_options_test.cpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "kernels/formulas.h"
#include "support/sampling_run.h"

namespace baton {
namespace {

using testing::exact_distribution;
using testing::expect_drawn;
using testing::kMinusInfinity;
using testing::one_of_each_device;
using testing::Sampler;
using testing::TestBackend;

TEST(Sampling, greedy_takes_the_smaller_id_on_a_tie) {
  for (const TestBackend& on : one_of_each_device()) {
    SCOPED_TRACE(on.name);
    Sampler sampler(on.backend, 1);
    EXPECT_EQ(sampler.run_one({0, 3, 1, 3}, SamplingMetadata{}).token, 1);
    EXPECT_EQ(sampler.slot(0).last_token, 1);
    EXPECT_EQ(sampler.slot(0).n_generated, 1);
  }
}

TEST(Sampling, log_probabilities_are_those_of_the_softmax_before_temperature) {
  for (const TestBackend& on : one_of_each_device()) {
    SCOPED_TRACE(on.name);
    Sampler sampler(on.backend, 1);
    std::mt19937 random(1);
    std::vector<float> logits(1000);
    std::normal_distribution<float> normal(0, 3);
    double sum = 0;
    for (float& logit : logits) sum += std::exp(static_cast<double>(logit = normal(random)));
    SamplingMetadata sampling;
    sampling.n_top_logprobs = 5;
    sampling.temperature = 0.5f;
    sampling.seed = 3;
    const SampleResult result = sampler.run_one(logits, sampling);
    EXPECT_NEAR(result.logprob, logits[static_cast<std::size_t>(result.token)] - std::log(sum), 1e-5);
    ASSERT_EQ(result.n_top, 5);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(result.top_logprobs[i], logits[static_cast<std::size_t>(result.top_ids[i])] - std::log(sum), 1e-5);
      if (i > 0) {
        EXPECT_GE(result.top_logprobs[i - 1], result.top_logprobs[i]);
      }
    }
  }
}

TEST(Sampling, the_most_likely_are_found_wherever_they_stand) {
  std::mt19937 random(5);
  for (const TestBackend& on : one_of_each_device()) {
    SCOPED_TRACE(on.name);
    Sampler sampler(on.backend, 1);
    for (const std::size_t n : {1, 3, 15, 17, 63, 64, 65, 130, 700, 4100, 20001, 50000}) {
      SCOPED_TRACE(n);
      std::vector<float> logits(n);
      for (float& logit : logits) logit = static_cast<float>(random() % 40) * 0.25f;  // many ties
      for (std::size_t i = 0; i < n; ++i)
        if (random() % 3 == 0 || i % 64 == 5) logits[i] = kMinusInfinity;
      logits[n / 2] = 3;
      std::vector<TokenId> expected(n);
      std::iota(expected.begin(), expected.end(), 0);
      std::ranges::stable_sort(expected, std::ranges::greater(),
                               [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; });
      SamplingMetadata sampling;
      sampling.n_top_logprobs = kMaxTopLogprobs;
      const SampleResult result = sampler.run_one(logits, sampling);
      EXPECT_EQ(result.token, expected[0]);
      ASSERT_EQ(result.n_top, std::min<std::int32_t>(kMaxTopLogprobs, static_cast<std::int32_t>(n)));
      for (std::size_t i = 0; i < static_cast<std::size_t>(result.n_top); ++i) EXPECT_EQ(result.top_ids[i], expected[i]) << i;
      sampler.slot(0) = {};
      logits[n - 1] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(sampler.run_one(logits, sampling).finished, FinishedBy::not_a_number);
      sampler.slot(0) = {};
    }
  }
}

TEST(Sampling, draws_the_softmax_distribution) {
  for (const TestBackend& on : one_of_each_device()) {
    SCOPED_TRACE(on.name);
    const std::vector<float> logits{1, 0, 2, -1, 0.5f, 2, kMinusInfinity};
    for (const float temperature : {0.7f, 1.0f, 2.0f}) {
      std::vector<double> expected;
      double total = 0;
      for (const float logit : logits) total += expected.emplace_back(std::exp(static_cast<double>(logit) / temperature));
      for (double& p : expected) p /= total;
      SamplingMetadata sampling;
      sampling.temperature = temperature;
      expect_drawn(on.backend, logits, {.sampling = sampling}, expected);
    }
  }
}

TEST(Sampling, draws_the_maximum_of_log_p_and_noise_at_every_length_of_a_row) {
  std::mt19937 random(4);
  for (const TestBackend& on : one_of_each_device()) {
    SCOPED_TRACE(on.name);
    Sampler sampler(on.backend, 1);
    for (std::size_t n = 1; n <= 260; ++n) {
      std::vector<float> logits(n);
      std::normal_distribution<float> normal(0, 1.5f);
      for (float& logit : logits) logit = n > 2 && random() % 9 == 0 ? kMinusInfinity : normal(random);
      logits[0] = 0;
      SamplingMetadata sampling;
      sampling.temperature = 0.5f + static_cast<float>(n % 7) * 0.25f;
      sampling.seed = (std::uint64_t{random()} << 32) | random();
      sampling.max_tokens = 1 << 30;
      const auto n_generated = static_cast<std::int32_t>(random() % 5000);
      sampler.slot(0) = {.last_token = 0, .n_generated = n_generated};
      const float max = *std::ranges::max_element(logits);
      const float scale = 1.0f / sampling.temperature;
      TokenId best = -1;
      float best_score = 0;
      for (TokenId id = 0; id < static_cast<TokenId>(n); ++id) {
        const float score = (logits[static_cast<std::size_t>(id)] - max) * scale + gumbel_noise(sampling.seed, n_generated, id);
        if (best >= 0 && !(score > best_score)) continue;
        best = id;
        best_score = score;
      }
      ASSERT_EQ(sampler.run_one(logits, sampling).token, best) << n << " tokens";
    }
  }
}

TEST(Sampling, top_k_and_top_p_cut_with_ties_by_smaller_id) {
  for (const TestBackend& on : one_of_each_device()) {
    SCOPED_TRACE(on.name);
    const std::vector<float> logits{1, 3, 3, 3, 0, 2};
    SamplingMetadata sampling;
    sampling.temperature = 1;
    sampling.top_k = 2;
    expect_drawn(on.backend, logits, {.sampling = sampling}, {0, 0.5, 0.5, 0, 0, 0});
    sampling.top_k = 0;
    const double total = std::exp(1.0) + 3 * std::exp(3.0) + 1 + std::exp(2.0);
    sampling.top_p = static_cast<float>(1.5 * std::exp(3.0) / total);  // ends at the second of the three ties
    expect_drawn(on.backend, logits, {.sampling = sampling}, {0, 0.5, 0.5, 0, 0, 0});
    sampling.top_p = 1e-6f;
    expect_drawn(on.backend, logits, {.sampling = sampling}, {0, 1, 0, 0, 0, 0});
  }
}

TEST(Sampling, the_same_seed_gives_the_same_token_at_any_place_of_a_batch) {
  for (const TestBackend& on : one_of_each_device()) {
    SCOPED_TRACE(on.name);
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> logits(500);
    for (float& logit : logits) logit = normal(random);
    SamplingMetadata sampling;
    sampling.temperature = 1;
    sampling.seed = 99;
    sampling.max_tokens = 1 << 30;
    Sampler alone(on.backend, 1);
    const TokenId expected = alone.run_one(logits, sampling).token;
    Sampler batch(on.backend, 40);
    std::vector<std::vector<float>> rows;
    std::vector<SamplingMetadata> samples;
    for (std::int32_t i = 0; i < 40; ++i) {
      SamplingMetadata other = sampling;
      other.slot = i;
      if (i != 23) other.seed = static_cast<std::uint64_t>(i);
      samples.push_back(other);
      std::vector<float> row = logits;
      if (i != 23) std::shuffle(row.begin(), row.end(), random);
      rows.push_back(row);
    }
    EXPECT_EQ(batch.run(rows, samples)[23].token, expected);
  }
}

TEST(Sampling, ends_a_sequence_by_stop_id_length_and_nan) {
  for (const TestBackend& on : one_of_each_device()) {
    SCOPED_TRACE(on.name);
    SamplingMetadata sampling;
    sampling.max_tokens = 2;
    sampling.n_stop_ids = 1;
    sampling.stop_ids[0] = 2;
    Sampler sampler(on.backend, 1);
    EXPECT_EQ(sampler.run_one({0, 0, 5}, sampling).finished, FinishedBy::stop_id);
    EXPECT_EQ(sampler.run_one({9, 0, 0}, sampling).was_finished, 1) << "a dead row of the step in flight";
    EXPECT_EQ(sampler.slot(0).n_generated, 1);
    sampler.slot(0) = {};
    EXPECT_EQ(sampler.run_one({9, 0, 0}, sampling).finished, FinishedBy::not_finished);
    EXPECT_EQ(sampler.run_one({9, 0, 0}, sampling).finished, FinishedBy::length);
    sampler.slot(0) = {};
    EXPECT_EQ(sampler.run_one({0, std::numeric_limits<float>::quiet_NaN(), 0}, sampling).finished, FinishedBy::not_a_number);
    sampler.slot(0) = {};
    EXPECT_EQ(sampler.run_one({kMinusInfinity, kMinusInfinity}, sampling).finished, FinishedBy::not_a_number);
  }
}

TEST(Sampling, min_tokens_keeps_stop_ids_away) {
  for (const TestBackend& on : one_of_each_device()) {
    SCOPED_TRACE(on.name);
    SamplingMetadata sampling;
    sampling.max_tokens = 10;
    sampling.min_tokens = 2;
    sampling.n_stop_ids = 1;
    sampling.stop_ids[0] = 2;
    Sampler sampler(on.backend, 1);
    EXPECT_EQ(sampler.run_one({0, 1, 5}, sampling).token, 1);
    EXPECT_EQ(sampler.run_one({0, 1, 5}, sampling).token, 1);
    EXPECT_EQ(sampler.run_one({0, 1, 5}, sampling).token, 2);
  }
}

TEST(Sampling, top_k_over_the_vocabulary_and_one_token_left) {
  for (const TestBackend& on : one_of_each_device()) {
    SCOPED_TRACE(on.name);
    SamplingMetadata sampling;
    sampling.temperature = 1;
    sampling.top_k = 100;
    sampling.top_p = 0.5f;
    Sampler sampler(on.backend, 1);
    EXPECT_EQ(sampler.run_one({kMinusInfinity, 4, kMinusInfinity}, sampling).token, 1);
  }
}

// Test vectors from the known-answer file of the Random123 distribution.
TEST(Philox, gives_the_published_numbers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(0xffffffffffffffffull, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

}  // namespace
}  // namespace baton
