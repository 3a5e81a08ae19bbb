/// Large vocabularies, where sampling on CUDA reads lists of likely tokens in place of rows: each option must give the
/// token of the definition in ops.h, also where the lists are too long, too short or changed.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/formulas.h"
#include "support/sampling_run.h"

namespace baton {
namespace {

using testing::AskedSample;
using testing::kMinusInfinity;
using testing::normal_logits;
using testing::Sampler;
using testing::TestBackend;

constexpr SlotState kSlot{.last_token = 17, .n_generated = 3};

/// The logits after mask, biases, penalties and bans, in f32 as ops.h says.
std::vector<float> adjusted(std::vector<float> x, const AskedSample& asked) {
  const SamplingMetadata& sampling = asked.sampling;
  const auto at = [&](TokenId id) -> float& { return x[static_cast<std::size_t>(id)]; };
  if (asked.has_mask) {
    std::vector<float> masked(x.size(), kMinusInfinity);
    for (const TokenId id : asked.mask) masked[static_cast<std::size_t>(id)] = at(id);
    x = masked;
  }
  for (const TokenBias& bias : asked.biases) at(bias.id) += bias.bias;
  std::map<TokenId, int> counts;
  for (const TokenCount& count : asked.counts) counts[count.id] = count.count;
  if (sampling.counts_last_token != 0) ++counts[kSlot.last_token];
  for (const auto& [id, count] : counts) {
    at(id) = at(id) > 0 ? at(id) / sampling.repetition_penalty : at(id) * sampling.repetition_penalty;
    if (count > 0) at(id) -= sampling.presence_penalty + sampling.frequency_penalty * static_cast<float>(count);
  }
  for (const TokenBan& ban : asked.bans)
    if (ban.after < 0 || ban.after == kSlot.last_token) at(ban.banned) = kMinusInfinity;
  return x;
}

/// What the definition says of a row, without the ways to choose.
struct ExactRow {
  std::vector<float> x;
  std::vector<TokenId> ids;  ///< that are not forbidden, most likely first

  ExactRow(const std::vector<float>& logits, const AskedSample& asked) : x(adjusted(logits, asked)), ids(x.size()) {
    std::iota(ids.begin(), ids.end(), 0);
    std::erase_if(ids, [&](TokenId id) { return value(id) == kMinusInfinity; });
    std::ranges::stable_sort(ids, std::greater(), [&](TokenId id) { return value(id); });
  }
  float value(TokenId id) const { return x[static_cast<std::size_t>(id)]; }
};

/// The token that the definition chooses; -1 without any.
TokenId expected_token(const ExactRow& row, const SamplingMetadata& sampling) {
  const auto value = [&](TokenId id) { return row.value(id); };
  std::vector<TokenId> ids = row.ids;
  if (ids.empty()) return -1;
  if (sampling.temperature == 0) return ids[0];
  const float max = value(ids[0]);
  const float scale = 1.0f / sampling.temperature;
  const auto scaled = [&](TokenId id) { return (value(id) - max) * scale; };
  if (sampling.min_p > 0) std::erase_if(ids, [&](TokenId id) { return scaled(id) < std::log(sampling.min_p); });
  if (sampling.top_k > 0 && ids.size() > static_cast<std::size_t>(sampling.top_k))
    ids.resize(static_cast<std::size_t>(sampling.top_k));
  if (sampling.top_p < 1) {
    double total = 0;
    for (const TokenId id : ids) total += std::exp(static_cast<double>(scaled(id)));
    double mass = 0;
    std::size_t n = 0;
    while (n < ids.size() && mass < static_cast<double>(sampling.top_p) * total)
      mass += std::exp(static_cast<double>(scaled(ids[n++])));
    ids.resize(n);
  }
  TokenId best = -1;
  float best_score = 0;
  std::ranges::sort(ids);
  for (const TokenId id : ids) {
    const float score = scaled(id) + gumbel_noise(sampling.seed, kSlot.n_generated, id);
    if (best >= 0 && !(score > best_score)) continue;
    best = id;
    best_score = score;
  }
  return best;
}

/// A sample of each way to choose, all with the lists and penalties of `base`.
std::vector<AskedSample> each_choice(const AskedSample& base) {
  std::vector<AskedSample> all;
  const auto add = [&](const auto& change) {
    all.push_back(base);
    all.back().sampling.temperature = 0.8f;
    all.back().sampling.seed = 1000 + all.size();
    change(all.back().sampling);
  };
  add([](SamplingMetadata& s) { s.temperature = 0; });
  for (int i = 0; i < 3; ++i) {
    add([](SamplingMetadata&) {});
    add([](SamplingMetadata& s) { s.temperature = 3; });
    add([](SamplingMetadata& s) { s.top_k = 50; });
    add([](SamplingMetadata& s) { s.top_k = 2000; });
    add([](SamplingMetadata& s) { s.top_p = 0.37f; });
    add([](SamplingMetadata& s) { s.top_p = 0.97f; });
    add([](SamplingMetadata& s) { s.min_p = 0.2f; });
    add([](SamplingMetadata& s) { s.min_p = 1e-5f; });
    add([](SamplingMetadata& s) { s.top_k = 50, s.top_p = 0.83f; });
    add([](SamplingMetadata& s) { s.top_k = 50, s.top_p = 0.91f, s.min_p = 0.01f, s.n_top_logprobs = 5; });
  }
  for (std::size_t i = 0; i < all.size(); ++i) all[i].sampling.slot = static_cast<std::int32_t>(i);
  return all;
}

/// Samples the row on each device in every way and compares with the definition.
void expect_each_choice(const std::vector<float>& logits, const AskedSample& base) {
  const std::vector<AskedSample> asked = each_choice(base);
  std::vector<TokenId> expected;
  const ExactRow row(logits, base);
  for (const AskedSample& one : asked) expected.push_back(expected_token(row, one.sampling));
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    Sampler sampler(on.backend, static_cast<std::int32_t>(asked.size()));
    for (std::size_t i = 0; i < asked.size(); ++i) sampler.slot(static_cast<std::int32_t>(i)) = kSlot;
    const auto results = sampler.run(std::vector<std::vector<float>>(asked.size(), logits), asked);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const bool ends = results[i].finished == FinishedBy::nothing_allowed;
      EXPECT_EQ(ends ? -1 : results[i].token, expected[i]) << "choice " << i;
    }
  }
}

/// The tokens of a row, most likely first.
std::vector<TokenId> by_likelihood(const std::vector<float>& logits) {
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, std::greater(), [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; });
  return ids;
}

/// Like a model's row: some likely tokens over many others.
std::vector<float> row_of_model(std::uint32_t seed, std::size_t n_vocab) {
  std::vector<float> row = normal_logits(seed, n_vocab, 2.5f);
  for (std::size_t i = 0; i < 30; ++i) row[(i * 7919 + seed) % n_vocab] = 16 - 0.4f * static_cast<float>(i);
  return row;
}

TEST(SamplingLists, plain_rows_of_every_length) {
  for (const std::size_t n_vocab : {std::size_t{100}, std::size_t{8192}, std::size_t{8193}, std::size_t{20001},
                                    std::size_t{33000}, std::size_t{70000}, std::size_t{128256}, std::size_t{262144}}) {
    SCOPED_TRACE(n_vocab);
    expect_each_choice(row_of_model(3, n_vocab), {});
    expect_each_choice(normal_logits(4, n_vocab, 2.5f), {});
  }
}

TEST(SamplingLists, ties_at_the_threshold_and_everywhere) {
  std::vector<float> rounded = normal_logits(5, 20001, 2.5f);
  for (float& logit : rounded) logit = std::round(4 * logit) / 4;
  expect_each_choice(rounded, {});
  for (float& logit : rounded) logit = std::round(logit);  // more ties than a list has room for
  expect_each_choice(rounded, {});
  expect_each_choice(std::vector<float>(20001, -1.5f), {});
  expect_each_choice(std::vector<float>(33000, 0.0f), {});
}

TEST(SamplingLists, likely_tokens_side_by_side) {
  std::vector<float> row = normal_logits(6, 33000, 1);
  for (std::size_t id = 128; id < 256; ++id) row[id] += 20;  // all in one part: its list is the row's
  expect_each_choice(row, {});
  for (std::size_t id = 0; id < 33000; id += 128 * 5) row[id] += 40;
  expect_each_choice(row, {});
}

TEST(SamplingLists, few_finite_logits) {
  std::vector<float> row(20001, kMinusInfinity);
  row[20000] = -3;
  expect_each_choice(row, {});
  for (const std::size_t id : {5u, 700u, 8300u, 12000u, 19999u}) row[id] = static_cast<float>(id % 7);
  expect_each_choice(row, {});
  row[4] = std::numeric_limits<float>::lowest();
  expect_each_choice(row, {.bans = {{-1, 5}, {17, 700}, {18, 8300}}});
}

TEST(SamplingLists, penalties_lower_and_lift) {
  const std::vector<float> row = row_of_model(7, 33000);
  const std::vector<TokenId> order = by_likelihood(row);
  AskedSample asked;
  for (std::size_t i = 0; i < 12000; i = i < 100 ? i + 2 : i + 301) asked.counts.push_back({order[i], static_cast<int>(i % 4)});
  for (const std::int32_t counts_last : {0, 1}) {
    asked.sampling.counts_last_token = counts_last;
    asked.sampling.repetition_penalty = 1.3f;
    asked.sampling.presence_penalty = 0.5f;
    asked.sampling.frequency_penalty = 0.2f;
    expect_each_choice(row, asked);
    asked.sampling.presence_penalty = -15;  // lifts tokens from far below the threshold
    expect_each_choice(row, asked);
    asked.sampling.repetition_penalty = 0.4f;
    asked.sampling.presence_penalty = 0.5f;
    expect_each_choice(row, asked);
    AskedSample with_biases = asked;  // a token may fall by its bias and rise by its penalty
    for (std::size_t i = 0; i < 60; i += 2) with_biases.biases.push_back({order[i], -9});
    with_biases.sampling.presence_penalty = -12;
    expect_each_choice(row, with_biases);
  }
}

TEST(SamplingLists, biases_lift_tokens_from_far_below_and_remove_likely_ones) {
  const std::vector<float> row = row_of_model(8, 20001);
  const std::vector<TokenId> order = by_likelihood(row);
  AskedSample asked{.biases = {{order[20000], 30}, {order[9000], 14}, {order[5000], 3}, {order[0], -5}, {order[2], -100}}};
  expect_each_choice(row, asked);
  for (std::size_t i = 0; i < 400; ++i) asked.biases.push_back({order[10 + i], kMinusInfinity});
  expect_each_choice(row, asked);
  asked.biases = {};
  for (std::size_t i = 0; i < 1500; ++i) asked.biases.push_back({order[3000 + i], 25});  // more than a list has room for
  expect_each_choice(row, asked);
  asked.sampling.repetition_penalty = 1.2f;
  asked.counts = {{order[3000], 1}, {order[0], 2}, {order[10000], 1}};
  expect_each_choice(row, asked);
}

TEST(SamplingLists, masks_leave_likely_tokens_or_only_unlikely_ones) {
  const std::vector<float> row = row_of_model(9, 33000);
  const std::vector<TokenId> order = by_likelihood(row);
  AskedSample asked{.mask = {order[30000]}, .has_mask = true};
  expect_each_choice(row, asked);
  asked.mask = {};
  expect_each_choice(row, asked);
  for (std::size_t i = 0; i < order.size(); i += 2) asked.mask.push_back(order[i]);
  expect_each_choice(row, asked);
  asked.biases = {{order[29999], 40}, {order[30000], 17}, {order[0], -3}};
  asked.bans = {{-1, order[2]}, {17, order[4]}};
  expect_each_choice(row, asked);
  asked.mask = {order[0], order[1], order[3], order[20000]};
  expect_each_choice(row, asked);
}

TEST(SamplingLists, a_nan_anywhere_ends_the_sequence) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    for (const std::size_t at : {0u, 8191u, 8192u, 20000u}) {
      std::vector<float> row = normal_logits(10, 20001);
      row[at] = std::numeric_limits<float>::quiet_NaN();
      AskedSample asked;
      asked.sampling.temperature = 1;
      asked.sampling.top_k = 50;
      asked.sampling.top_p = 0.9f;
      EXPECT_EQ(Sampler(on.backend, 1).run_one(row, asked).finished, FinishedBy::not_a_number) << at;
    }
  }
}

TEST(SamplingLists, log_probabilities_are_of_the_whole_row) {
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    for (const std::size_t n_vocab : {std::size_t{8193}, std::size_t{33000}, std::size_t{128256}}) {
      std::vector<float> row = normal_logits(11, n_vocab, 1);
      for (std::size_t id = 0; id < n_vocab; id += 2) row[id] = kMinusInfinity;
      row[1] = 4;
      double total = 0;
      for (const float logit : row) total += std::exp(static_cast<double>(logit));
      AskedSample asked{.biases = {{1, -6}}};
      asked.sampling.temperature = 1;
      asked.sampling.top_k = 40;
      asked.sampling.n_top_logprobs = kMaxTopLogprobs;
      const SampleResult result = Sampler(on.backend, 1).run_one(row, asked);
      const auto logprob = [&](TokenId id) { return row[static_cast<std::size_t>(id)] - std::log(total); };
      EXPECT_NEAR(result.logprob, logprob(result.token), 1e-5);
      const std::vector<TokenId> order = by_likelihood(row);
      ASSERT_EQ(result.n_top, kMaxTopLogprobs);
      for (std::size_t i = 0; i < kMaxTopLogprobs; ++i) {
        EXPECT_EQ(result.top_ids[i], order[i]);
        EXPECT_NEAR(result.top_logprobs[i], logprob(order[i]), 1e-5);
      }
    }
  }
}

TEST(SamplingLists, more_samples_than_a_launch_has_room_for) {
  constexpr std::int32_t kSamples = 700;  // times 16 parts
  constexpr std::size_t kVocab = 125'000;
  const std::vector<std::vector<float>> kinds{row_of_model(12, kVocab), row_of_model(13, kVocab), normal_logits(14, kVocab)};
  AskedSample asked;
  asked.sampling.temperature = 0.8f;
  asked.sampling.top_k = 50;
  asked.sampling.top_p = 0.9f;
  std::vector<std::vector<float>> rows;
  std::vector<AskedSample> all;
  for (std::int32_t i = 0; i < kSamples; ++i) {
    rows.push_back(kinds[static_cast<std::size_t>(i) % kinds.size()]);
    all.push_back(asked);
    all.back().sampling.slot = i;
    all.back().sampling.seed = static_cast<std::uint64_t>(i);
  }
  for (const TestBackend& on : testing::one_of_each_device()) {
    SCOPED_TRACE(on.name);
    Sampler sampler(on.backend, kSamples);
    for (std::int32_t i = 0; i < kSamples; ++i) sampler.slot(i) = kSlot;
    const auto results = sampler.run(rows, all);
    for (std::size_t i = 0; i < kSamples; i += 37)
      EXPECT_EQ(results[i].token, expected_token(ExactRow(rows[i], all[i]), all[i].sampling)) << i;
  }
}

}  // namespace
}  // namespace baton
