/// Token masks in sampling: alone and together with every other option.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

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

/// About one of `every` tokens.
std::vector<TokenId> one_of(std::uint32_t seed, std::size_t n, std::uint32_t every) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (std::size_t id = 0; id < n; ++id)
    if (random() % every == 0) tokens.push_back(static_cast<TokenId>(id));
  return tokens;
}

AskedSample masked(std::vector<TokenId> allowed, float temperature = 0) {
  AskedSample asked{.mask = std::move(allowed), .has_mask = true};
  asked.sampling.temperature = temperature;
  return asked;
}

TEST(SamplingMasks, only_tokens_of_the_mask_are_chosen) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    for (const std::size_t n_vocab : {std::size_t{5}, std::size_t{32}, std::size_t{33}, std::size_t{1000}, std::size_t{5001}}) {
      SCOPED_TRACE(n_vocab);
      const std::vector<float> logits = normal_logits(7, n_vocab);
      for (const std::uint32_t every : {2u, 100u}) {  // a pass over the row; a list of few tokens
        std::vector<TokenId> allowed = one_of(every, n_vocab, every);
        allowed.push_back(static_cast<TokenId>(n_vocab - 1));
        TokenId best = allowed[0];
        for (const TokenId id : allowed)
          if (logits[static_cast<std::size_t>(id)] > logits[static_cast<std::size_t>(best)]) best = id;
        EXPECT_EQ(Sampler(on.backend, 1).run_one(logits, masked(allowed)).token, best);
        AskedSample drawn = masked(allowed, 3);
        for (drawn.sampling.seed = 0; drawn.sampling.seed < 50; ++drawn.sampling.seed) {
          const TokenId token = Sampler(on.backend, 1).run_one(logits, drawn).token;
          EXPECT_TRUE(std::ranges::find(allowed, token) != allowed.end()) << token;
        }
      }
    }
  }
}

TEST(SamplingMasks, a_mask_of_everything_changes_nothing) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    const std::vector<float> logits = normal_logits(3, 777);
    AskedSample plain = masked(one_of(1, 777, 1), 1.3f);
    plain.sampling.n_top_logprobs = 3;
    plain.sampling.top_p = 0.9f;
    for (plain.sampling.seed = 0; plain.sampling.seed < 100; ++plain.sampling.seed) {
      plain.has_mask = true;
      const SampleResult with = Sampler(on.backend, 1).run_one(logits, plain);
      plain.has_mask = false;
      plain.sampling.mask = -1;
      const SampleResult without = Sampler(on.backend, 1).run_one(logits, plain);
      EXPECT_EQ(with.token, without.token);
      EXPECT_EQ(with.logprob, without.logprob);
    }
  }
}

TEST(SamplingMasks, log_probabilities_are_those_without_the_mask) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    const std::vector<float> logits{3, 1, 2, 0};
    for (const std::vector<TokenId>& allowed : {std::vector<TokenId>{1}, std::vector<TokenId>{1, 2, 3}}) {
      AskedSample asked = masked(allowed);
      asked.sampling.n_top_logprobs = 2;
      asked.biases = {{1, 9}};
      const SampleResult result = Sampler(on.backend, 1).run_one(logits, asked);
      EXPECT_EQ(result.token, 1);
      const double log_sum = std::log(std::exp(3.0) + std::exp(1.0) + std::exp(2.0) + 1);
      EXPECT_NEAR(result.logprob, 1 - log_sum, 1e-5);
      EXPECT_EQ(result.top_ids[0], 0);  // forbidden, and the most likely one
      EXPECT_NEAR(result.top_logprobs[0], 3 - log_sum, 1e-5);
    }
  }
}

TEST(SamplingMasks, nothing_allowed_ends_the_sequence) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    const std::vector<float> logits{3, 1, 2, 0};
    const auto ends = [&](AskedSample asked) {
      Sampler sampler(on.backend, 1);
      const SampleResult result = sampler.run_one(logits, asked);
      return result.finished == FinishedBy::nothing_allowed && sampler.slot(0).finished == 1;
    };
    for (const float temperature : {0.0f, 1.0f}) {
      EXPECT_TRUE(ends(masked({}, temperature)));
      EXPECT_FALSE(ends(masked({1, 2}, temperature)));
      AskedSample banned = masked({1, 2}, temperature);
      banned.bans = {{-1, 1}, {-1, 2}};
      EXPECT_TRUE(ends(banned));
      AskedSample biased = masked({1}, temperature);
      biased.biases = {{1, kMinusInfinity}};
      EXPECT_TRUE(ends(biased));
      AskedSample listed = masked({1, 2}, temperature);
      listed.allowed = {0, 3};
      EXPECT_TRUE(ends(listed));
      AskedSample must_go_on = masked({1}, temperature);
      must_go_on.sampling.min_tokens = 5;
      must_go_on.sampling.n_stop_ids = 1;
      must_go_on.sampling.stop_ids[0] = 1;
      EXPECT_TRUE(ends(must_go_on));
    }
  }
}

TEST(SamplingMasks, samples_with_and_without_masks_stand_side_by_side) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    const std::vector<float> logits{3, 1, 2, 0};
    Sampler sampler(on.backend, 5);
    std::vector<AskedSample> asked{masked({3}), {}, masked({1, 2}), masked({1, 2}), masked({0, 1, 2, 3})};
    for (std::int32_t i = 0; i < 5; ++i) asked[static_cast<std::size_t>(i)].sampling.slot = i;
    const auto results = sampler.run(std::vector<std::vector<float>>(5, logits), asked);
    const std::vector<TokenId> expected{3, 0, 2, 2, 0};
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(results[i].token, expected[i]) << i;
  }
}

TEST(SamplingMasks, together_with_each_option_the_distribution_is_exact) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    const std::vector<float> logits = normal_logits(21, 300);
    for (const std::uint32_t every : {2u, 40u}) {
      const AskedSample plain = masked(one_of(every + 1, 300, every), 0.9f);
      std::vector<AskedSample> all(8, plain);
      all[1].sampling.top_k = 3;
      all[2].sampling.top_p = 0.6f;
      all[3].sampling.min_p = 0.1f;
      for (TokenId id = 0; id < 300; id += 3) all[4].biases.push_back({id, 1.5f});
      all[5].sampling.repetition_penalty = 1.4f;
      all[5].sampling.presence_penalty = 0.3f;
      for (TokenId id = 0; id < 300; id += 2) all[5].counts.push_back({id, id % 3});
      for (TokenId id = 0; id < 300; id += 4) all[6].allowed.push_back(id);
      for (TokenId id = 0; id < 300; id += 5) all[7].bans.push_back({-1, id});
      all[7].sampling.top_k = 20;
      all[7].sampling.top_p = 0.9f;
      for (std::size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE(i);
        expect_drawn(on.backend, logits, all[i], exact_distribution(logits, all[i], 0, 0));
      }
    }
  }
}

TEST(SamplingMasks, a_row_is_the_same_alone_and_in_a_batch) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    std::vector<std::vector<float>> rows;
    std::vector<AskedSample> asked;
    for (std::int32_t i = 0; i < 20; ++i) {
      rows.push_back(normal_logits(static_cast<std::uint32_t>(i), 1500));
      asked.push_back(masked(one_of(static_cast<std::uint32_t>(i), 1500, i % 2 == 0 ? 3 : 90), 1));
      asked.back().sampling.slot = i;
      asked.back().sampling.seed = static_cast<std::uint64_t>(i);
      asked.back().sampling.n_top_logprobs = 5;
    }
    Sampler together(on.backend, 20);
    const auto results = together.run(rows, asked);
    for (std::size_t i = 0; i < 20; ++i) {
      Sampler alone(on.backend, 20);
      const SampleResult result = alone.run_one(rows[i], asked[i]);
      EXPECT_EQ(result.token, results[i].token);
      EXPECT_EQ(result.logprob, results[i].logprob);
    }
  }
}

}  // namespace
}  // namespace baton
