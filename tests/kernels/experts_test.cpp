/// Routing to experts and the sum of their outputs against plain formulas, on every backend.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::OnDevice;
using testing::test_backends;
using testing::TestBackend;

StepInput step_of_rows(std::int32_t n_rows) {
  StepInput step;
  step.header().n_rows = n_rows;
  step.finish();
  return step;
}

std::vector<std::int32_t> integers_of(const HostTensor& tensor) {
  std::vector<std::int32_t> integers(tensor.bytes.size() / sizeof(std::int32_t));
  if (!integers.empty()) std::memcpy(integers.data(), tensor.bytes.data(), tensor.bytes.size());
  return integers;
}

HostTensor tensor_of(const std::vector<std::int32_t>& integers, Shape shape) {
  HostTensor tensor(DType::i32, shape);
  if (!integers.empty()) std::memcpy(tensor.bytes.data(), integers.data(), tensor.bytes.size());
  return tensor;
}

/// ExpertChoices in a backend's memory, without contents.
struct Choices {
  Choices(Backend& backend, std::int64_t n_rows, std::int64_t n_experts, std::int64_t n_chosen)
      : experts(backend, HostTensor(DType::i32, {n_rows, n_chosen})),
        weights(backend, HostTensor(DType::f32, {n_rows, n_chosen})),
        places(backend, HostTensor(DType::i32, {n_rows, n_chosen})),
        rows(backend, HostTensor(DType::i32, {n_rows * n_chosen})),
        offsets(backend, HostTensor(DType::i32, {n_experts + 1})) {}
  ExpertChoices view() const { return {experts.view(), weights.view(), places.view(), rows.view(), offsets.view()}; }
  OnDevice experts, weights, places, rows, offsets;
};

/// The experts of a row, most likely first. NaN is smaller than -infinity.
std::vector<std::int32_t> best_experts(const HostTensor& logits, std::int64_t row, std::int64_t n_chosen) {
  const std::int64_t n_experts = logits.shape[1];
  std::vector<std::int32_t> order(static_cast<std::size_t>(n_experts));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    const double of_a = logits.at(row * n_experts + a);
    const double of_b = logits.at(row * n_experts + b);
    return of_a > of_b || (std::isnan(of_b) && !std::isnan(of_a));
  });
  order.resize(static_cast<std::size_t>(n_chosen));
  return order;
}

struct RouteCase {
  std::int32_t n_rows;
  std::int64_t n_experts;
  std::int64_t n_chosen;
};

/// Logits with many ties, so that the smaller index decides; rows 1 and 2, if any, with infinities and NaN.
HostTensor logits_of(std::mt19937& random, const RouteCase& of, std::int64_t n_rows) {
  HostTensor logits = testing::random_tensor(random, DType::f32, {n_rows, of.n_experts});
  for (std::int64_t i = 0; i < n_rows * of.n_experts; ++i)
    if (i / of.n_experts % 2 == 0) logits.set(i, std::round(4 * static_cast<float>(logits.at(i))) / 4);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto& [row, value] : {std::pair{1, -kInfinity}, {2, std::nanf("")}})
    for (std::int64_t e = 0; row < n_rows && e < of.n_experts; e += 2) logits.set(row * of.n_experts + e, value);
  return logits;
}

void expect_route(const TestBackend& test, const RouteCase& of, ExpertSoftmax softmax) {
  std::mt19937 random(static_cast<std::uint32_t>(of.n_rows));
  const std::int64_t n_rows = of.n_rows + 3;  // the last three are not in the step
  const HostTensor logits = logits_of(random, of, n_rows);
  const OnDevice on_device(test.backend, logits);
  const Choices choices(test.backend, n_rows, of.n_experts, of.n_chosen);
  const StepInput step = step_of_rows(of.n_rows);
  route_experts(test.backend, {test.backend.upload_step(step), on_device.view(), choices.view(), softmax});
  const auto experts = integers_of(choices.experts.to_host());
  const auto places = integers_of(choices.places.to_host());
  const auto rows = integers_of(choices.rows.to_host());
  const auto offsets = integers_of(choices.offsets.to_host());
  const HostTensor weights = choices.weights.to_host();

  std::vector<std::vector<std::size_t>> of_expert(static_cast<std::size_t>(of.n_experts));  // choices by row
  for (std::int64_t row = 0; row < n_rows; ++row) {
    const auto first = static_cast<std::size_t>(row * of.n_chosen);
    const auto best = best_experts(logits, row, of.n_chosen);
    double sum = 0;
    const double largest = logits.at(row * of.n_experts + best[0]);
    const auto power = [&](std::int64_t e) { return std::exp(logits.at(row * of.n_experts + e) - largest); };
    for (std::int64_t e = 0; softmax == ExpertSoftmax::all && e < of.n_experts; ++e) sum += power(e);
    for (const std::int32_t e : best)
      if (softmax == ExpertSoftmax::chosen) sum += power(e);
    for (std::size_t c = 0; c < best.size(); ++c) {
      const std::size_t i = first + c;
      if (row >= of.n_rows) {
        EXPECT_EQ(experts[i], -1);
        EXPECT_EQ(places[i], -1);
        EXPECT_EQ(weights.at(static_cast<std::int64_t>(i)), 0);
        continue;
      }
      ASSERT_EQ(experts[i], best[c]) << "row " << row << ", choice " << c;
      of_expert[static_cast<std::size_t>(best[c])].push_back(i);
      // One exponential of a difference, sums of positive terms and a division.
      const double expected = power(best[c]) / sum;
      const double got = weights.at(static_cast<std::int64_t>(i));
      if (std::isnan(expected))
        EXPECT_TRUE(std::isnan(got)) << "row " << row;
      else
        EXPECT_NEAR(got, expected, 32 * testing::epsilon(DType::f32) * expected + 1e-38) << "row " << row << ", choice " << c;
    }
  }
  std::int32_t place = 0;
  for (std::size_t e = 0; e < of_expert.size(); ++e) {
    ASSERT_EQ(offsets[e], place) << "expert " << e;
    for (const std::size_t i : of_expert[e]) {
      ASSERT_EQ(places[i], place);
      ASSERT_EQ(rows[static_cast<std::size_t>(place)], static_cast<std::int32_t>(static_cast<std::int64_t>(i) / of.n_chosen));
      ++place;
    }
  }
  EXPECT_EQ(offsets.back(), place);
}

// Sizes at and beside a warp, a block of rows, a block of choices, and the largest that are allowed.
TEST(RouteExperts, chooses_the_largest_logits_and_sorts_the_choices_by_expert) {
  for (const TestBackend& test : test_backends())
    for (const RouteCase& of : {RouteCase{0, 4, 2},
                                {1, 1, 1},
                                {1, 8, 2},
                                {5, 4, 2},
                                {3, 128, 8},
                                {64, 128, 8},
                                {65, 129, 7},
                                {601, 33, 3},
                                {130, 60, 4},
                                {4, kMaxExperts, kMaxExpertsPerRow}})
      for (const ExpertSoftmax softmax : {ExpertSoftmax::all, ExpertSoftmax::chosen}) {
        SCOPED_TRACE(test.name + ", " + std::to_string(of.n_rows) + " rows, " + std::to_string(of.n_chosen) + " of " +
                     std::to_string(of.n_experts) + (softmax == ExpertSoftmax::all ? ", all" : ", chosen"));
        expect_route(test, of, softmax);
      }
}

TEST(CombineExperts, equals_the_weighted_sum_in_float64) {
  constexpr std::int64_t kRows = 37;
  for (const TestBackend& test : test_backends())
    for (const DType in_dtype : {DType::f32, DType::bf16, DType::f16})
      for (const DType out_dtype : {DType::f32, DType::bf16, DType::f16})
        for (const auto& [n_chosen, d] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {2, 33}, {8, 1100}}) {
          SCOPED_TRACE(test.name + ' ' + std::string(to_string(in_dtype)) + " to " + std::string(to_string(out_dtype)));
          std::mt19937 random(5);
          const std::int64_t n_places = kRows * n_chosen;
          const HostTensor in = testing::random_tensor(random, in_dtype, {n_places, d});
          const HostTensor weights = testing::random_tensor(random, DType::f32, {kRows, n_chosen});
          std::vector<std::int32_t> places(static_cast<std::size_t>(n_places));
          std::iota(places.begin(), places.end(), 0);
          std::ranges::shuffle(places, random);
          for (std::int64_t c = 0; c < n_chosen; ++c) places[static_cast<std::size_t>(5 * n_chosen + c)] = -1;
          std::vector<double> expected(static_cast<std::size_t>(kRows * d), 0);
          for (std::int64_t i = 0; i < n_places; ++i)
            for (std::int64_t j = 0; j < d && places[static_cast<std::size_t>(i)] >= 0; ++j)
              expected[static_cast<std::size_t>(i / n_chosen * d + j)] +=
                  weights.at(i) * in.at(places[static_cast<std::size_t>(i)] * d + j);
          const Choices empty(test.backend, kRows, 9, n_chosen);
          const OnDevice of_places(test.backend, tensor_of(places, {kRows, n_chosen}));
          const OnDevice of_weights(test.backend, weights);
          ExpertChoices choices = empty.view();
          choices.places = of_places.view();
          choices.weights = of_weights.view();
          const OnDevice of_in(test.backend, in);
          const OnDevice out(test.backend, HostTensor(out_dtype, {kRows, d}));
          combine_experts(test.backend, {of_in.view(), choices, out.view()});
          const HostTensor got = out.to_host();
          // Sums of n_chosen terms in f32, rounded once.
          EXPECT_LE(testing::relative_error(got, expected),
                    2 * testing::epsilon(out_dtype) + 4 * testing::epsilon(DType::f32) * static_cast<double>(n_chosen));
          for (std::int64_t j = 0; j < d; ++j) EXPECT_EQ(got.at(5 * d + j), 0) << "a row without choices";
        }
}

}  // namespace
}  // namespace baton
