#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/formulas.h"
#include "support/host_tensor.h"

namespace baton {
namespace {

using testing::HostTensor;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Samples `orders` from rows of logits, over a slot table of its own.
class Sampler {
 public:
  explicit Sampler(std::int32_t n_slots) : slots_(static_cast<std::size_t>(n_slots)) {
    backend_ = std::move(*make_backend("cpu", {.n_threads = 2}));
  }
  SlotState& slot(std::int32_t index) { return slots_[static_cast<std::size_t>(index)]; }

  std::vector<SampleResult> run(const std::vector<std::vector<float>>& logits, const std::vector<SampleOrder>& orders) {
    StepInput step;
    step.header().orders = step.append(std::span<const SampleOrder>(orders));
    step.finish();
    const auto n_vocab = static_cast<std::int64_t>(logits[0].size());
    HostTensor flat(DType::f32, {static_cast<std::int64_t>(logits.size()), n_vocab});
    for (std::size_t r = 0; r < logits.size(); ++r)
      std::memcpy(flat.bytes.data() + r * logits[r].size() * 4, logits[r].data(), logits[r].size() * 4);
    std::vector<SampleResult> results(orders.size());
    const auto count = static_cast<std::int64_t>(orders.size());
    sample(*backend_, {step.view(),
                       flat.view(),
                       {reinterpret_cast<std::byte*>(slots_.data()),
                        DType::u8,
                        {static_cast<std::int64_t>(slots_.size()), sizeof(SlotState)}},
                       {reinterpret_cast<std::byte*>(results.data()), DType::u8, {count, sizeof(SampleResult)}}});
    return results;
  }
  SampleResult run_one(const std::vector<float>& logits, SampleOrder order) {
    if (order.max_tokens == 0) order.max_tokens = 1 << 30;
    return run({logits}, {order})[0];
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::vector<SlotState> slots_;
};

TEST(Sampling, greedy_takes_the_smaller_id_on_a_tie) {
  Sampler sampler(1);
  EXPECT_EQ(sampler.run_one({0, 3, 1, 3}, {}).token, 1);
  EXPECT_EQ(sampler.slot(0).last_token, 1);
  EXPECT_EQ(sampler.slot(0).n_generated, 1);
}

TEST(Sampling, log_probabilities_are_those_of_the_softmax_before_temperature) {
  Sampler sampler(1);
  std::mt19937 random(1);
  std::vector<float> logits(1000);
  std::normal_distribution<float> normal(0, 3);
  double sum = 0;
  for (float& logit : logits) sum += std::exp(static_cast<double>(logit = normal(random)));
  SampleOrder order;
  order.n_top_logprobs = 5;
  order.temperature = 0.5f;
  order.seed = 3;
  const SampleResult result = sampler.run_one(logits, order);
  EXPECT_NEAR(result.logprob, logits[static_cast<std::size_t>(result.token)] - std::log(sum), 1e-5);
  ASSERT_EQ(result.n_top, 5);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(result.top_logprobs[i], logits[static_cast<std::size_t>(result.top_ids[i])] - std::log(sum), 1e-5);
    if (i > 0) {
      EXPECT_GE(result.top_logprobs[i - 1], result.top_logprobs[i]);
    }
  }
}

/// Draws 20,000 tokens and compares their counts with the float64 distribution by chi-square.
void expect_distribution(const std::vector<float>& logits, SampleOrder order, const std::vector<double>& expected) {
  constexpr int kDraws = 20000;
  constexpr int kBatch = 100;
  Sampler sampler(kBatch);
  order.max_tokens = 1 << 30;
  std::vector<int> counts(logits.size(), 0);
  std::vector<SampleOrder> orders;
  for (std::int32_t i = 0; i < kBatch; ++i) {
    order.slot = i;
    order.seed = static_cast<std::uint64_t>(i) * 7919 + 5;
    orders.push_back(order);
  }
  for (int draw = 0; draw < kDraws; draw += kBatch)
    for (const SampleResult& result : sampler.run(std::vector<std::vector<float>>(kBatch, logits), orders))
      counts[static_cast<std::size_t>(result.token)]++;
  double chi_square = 0;
  int n_free = -1;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (expected[id] == 0) {
      EXPECT_EQ(counts[id], 0) << "token " << id << " is outside the nucleus";
      continue;
    }
    ++n_free;
    chi_square += std::pow(counts[id] - kDraws * expected[id], 2) / (kDraws * expected[id]);
  }
  // Mean n, variance 2n: five standard deviations over.
  EXPECT_LE(chi_square, n_free + 5 * std::sqrt(2.0 * n_free) + 5);
}

TEST(Sampling, draws_the_softmax_distribution) {
  const std::vector<float> logits{1, 0, 2, -1, 0.5f, 2, kMinusInfinity};
  for (const float temperature : {0.7f, 1.0f, 2.0f}) {
    std::vector<double> expected;
    double total = 0;
    for (const float logit : logits) total += expected.emplace_back(std::exp(static_cast<double>(logit) / temperature));
    for (double& p : expected) p /= total;
    SampleOrder order;
    order.temperature = temperature;
    expect_distribution(logits, order, expected);
  }
}

TEST(Sampling, top_k_and_top_p_cut_with_ties_by_smaller_id) {
  const std::vector<float> logits{1, 3, 3, 3, 0, 2};
  SampleOrder order;
  order.temperature = 1;
  order.top_k = 2;
  expect_distribution(logits, order, {0, 0.5, 0.5, 0, 0, 0});
  order.top_k = 0;
  const double total = std::exp(1.0) + 3 * std::exp(3.0) + 1 + std::exp(2.0);
  order.top_p = static_cast<float>(1.5 * std::exp(3.0) / total);  // ends inside the second of the three ties
  expect_distribution(logits, order, {0, 0.5, 0.5, 0, 0, 0});
  order.top_p = 1e-6f;
  expect_distribution(logits, order, {0, 1, 0, 0, 0, 0});
}

TEST(Sampling, the_same_seed_gives_the_same_token_at_any_place_of_a_batch) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(500);
  for (float& logit : logits) logit = normal(random);
  SampleOrder order;
  order.temperature = 1;
  order.seed = 99;
  order.max_tokens = 1 << 30;
  Sampler alone(1);
  const TokenId expected = alone.run_one(logits, order).token;
  Sampler batch(40);
  std::vector<std::vector<float>> rows;
  std::vector<SampleOrder> orders;
  for (std::int32_t i = 0; i < 40; ++i) {
    SampleOrder other = order;
    other.slot = i;
    if (i != 23) other.seed = static_cast<std::uint64_t>(i);
    orders.push_back(other);
    std::vector<float> row = logits;
    if (i != 23) std::shuffle(row.begin(), row.end(), random);
    rows.push_back(row);
  }
  EXPECT_EQ(batch.run(rows, orders)[23].token, expected);
}

TEST(Sampling, ends_a_sequence_by_stop_id_length_and_nan) {
  SampleOrder order;
  order.max_tokens = 2;
  order.n_stop_ids = 1;
  order.stop_ids[0] = 2;
  Sampler sampler(1);
  EXPECT_EQ(sampler.run_one({0, 0, 5}, order).finished, FinishedBy::stop_id);
  EXPECT_EQ(sampler.run_one({9, 0, 0}, order).was_finished, 1) << "a dead row of the step in flight";
  EXPECT_EQ(sampler.slot(0).n_generated, 1);
  sampler.slot(0) = {};
  EXPECT_EQ(sampler.run_one({9, 0, 0}, order).finished, FinishedBy::not_finished);
  EXPECT_EQ(sampler.run_one({9, 0, 0}, order).finished, FinishedBy::length);
  sampler.slot(0) = {};
  EXPECT_EQ(sampler.run_one({0, std::numeric_limits<float>::quiet_NaN(), 0}, order).finished, FinishedBy::not_a_number);
  sampler.slot(0) = {};
  EXPECT_EQ(sampler.run_one({kMinusInfinity, kMinusInfinity}, order).finished, FinishedBy::not_a_number);
}

TEST(Sampling, min_tokens_keeps_stop_ids_away) {
  SampleOrder order;
  order.max_tokens = 10;
  order.min_tokens = 2;
  order.n_stop_ids = 1;
  order.stop_ids[0] = 2;
  Sampler sampler(1);
  EXPECT_EQ(sampler.run_one({0, 1, 5}, order).token, 1);
  EXPECT_EQ(sampler.run_one({0, 1, 5}, order).token, 1);
  EXPECT_EQ(sampler.run_one({0, 1, 5}, order).token, 2);
}

TEST(Sampling, top_k_over_the_vocabulary_and_one_token_left) {
  SampleOrder order;
  order.temperature = 1;
  order.top_k = 100;
  order.top_p = 0.5f;
  Sampler sampler(1);
  EXPECT_EQ(sampler.run_one({kMinusInfinity, 4, kMinusInfinity}, order).token, 1);
}

// Vectors of the Random123 distribution's known-answer file.
TEST(Philox, gives_the_published_numbers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(0xffffffffffffffffull, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

}  // namespace
}  // namespace baton
