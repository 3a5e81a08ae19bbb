/// Routing to experts and the sum of their outputs against plain formulas, on every backend.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
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

/// NaN is smaller than -infinity.
bool is_more(double a, double b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

/// The indices of the `n` largest numbers, the largest first.
std::vector<std::int32_t> best_of(const std::vector<double>& numbers, std::int64_t n) {
  std::vector<std::int32_t> order(numbers.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    return is_more(numbers[static_cast<std::size_t>(a)], numbers[static_cast<std::size_t>(b)]);
  });
  order.resize(static_cast<std::size_t>(n));
  return order;
}

/// The scores of a row's experts.
std::vector<double> scores_of(const std::vector<double>& logits, RoutingRule::Score kind) {
  std::vector<double> scores;
  if (kind == RoutingRule::Score::sigmoid) {
    for (const double logit : logits) scores.push_back(1 / (1 + std::exp(-logit)));
    return scores;
  }
  const double largest = logits[static_cast<std::size_t>(best_of(logits, 1)[0])];
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  for (const double logit : logits) scores.push_back(std::exp(logit - largest) / sum);
  return scores;
}

/// The experts of the groups that a row keeps, the first choice first.
std::vector<std::int32_t> choose(const std::vector<double>& choices, const RoutingRule& rule, std::int64_t n_chosen) {
  const std::size_t size = choices.size() / static_cast<std::size_t>(rule.n_groups);
  std::vector<double> of_groups;
  for (std::size_t begin = 0; begin < choices.size(); begin += size) {
    const std::vector<double> group(choices.begin() + static_cast<std::ptrdiff_t>(begin),
                                    choices.begin() + static_cast<std::ptrdiff_t>(begin + size));
    const bool takes_two = rule.group_score == RoutingRule::GroupScore::two_best && size > 1;
    double score = 0;
    for (const std::int32_t i : best_of(group, takes_two ? 2 : 1)) score += group[static_cast<std::size_t>(i)];
    of_groups.push_back(score);
  }
  const std::vector<std::int32_t> kept = best_of(of_groups, rule.n_groups_per_row);
  std::vector<std::int32_t> experts = best_of(choices, static_cast<std::int64_t>(choices.size()));
  std::erase_if(experts,
                [&](std::int32_t e) { return std::ranges::find(kept, e / static_cast<std::int32_t>(size)) == kept.end(); });
  experts.resize(static_cast<std::size_t>(n_chosen));
  return experts;
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

/// A rule, and whether choices have a bias and rows of logits a column more than there are experts.
struct RouteVariant {
  std::string name;
  RoutingRule rule;
  bool has_bias = false;
  bool has_more_logits = false;
};

using Score = RoutingRule::Score;
using GroupScore = RoutingRule::GroupScore;

/// Four groups of which two are kept.
RoutingRule in_groups(Score score, GroupScore group_score) {
  return {.score = score, .n_groups = 4, .n_groups_per_row = 2, .group_score = group_score};
}

const std::vector<RouteVariant>& route_variants() {
  static const std::vector<RouteVariant> variants = [] {
    RoutingRule deepseek = in_groups(Score::sigmoid, GroupScore::two_best);
    deepseek.renormalises = true;
    deepseek.added_to_sum = 1e-20f;
    deepseek.scale = 2.5f;
    // These bounds change weights of this size; those of families do not.
    const RoutingRule bounded{.renormalises = true, .least_sum = 0.4f};
    const RoutingRule added{.score = Score::sigmoid, .renormalises = true, .added_to_sum = 0.3f, .scale = 0.5f};
    return std::vector<RouteVariant>{{"softmax over all", {}},
                                     {"softmax over the chosen", {.renormalises = true}, false, true},
                                     {"softmax and a bias", {.renormalises = true}, true},
                                     {"bounded softmax and a bias", bounded, true, true},
                                     {"bounded softmax", bounded},
                                     {"sigmoid", {.score = Score::sigmoid}},
                                     {"sigmoid and a bias", added, true},
                                     {"best groups of softmax", in_groups(Score::softmax, GroupScore::best)},
                                     {"groups of sigmoid and a bias", deepseek, true, true}};
  }();
  return variants;
}

/// The weight of a score, whose row's chosen ones add up to `sum`.
double weight_of(const RoutingRule& rule, double score, double sum) {
  const double divisor = rule.renormalises ? std::max(sum, double{rule.least_sum}) + rule.added_to_sum : 1;
  return rule.scale * score / (std::isnan(sum) ? sum : divisor);
}

void expect_route(const TestBackend& test, const RouteCase& of, const RouteVariant& variant) {
  std::mt19937 random(static_cast<std::uint32_t>(of.n_rows));
  const std::int64_t n_rows = of.n_rows + 3;  // the last three are not in the step
  const std::int64_t n_columns = of.n_experts + (variant.has_more_logits ? 1 : 0);
  const HostTensor logits = logits_of(random, {of.n_rows, n_columns, of.n_chosen}, n_rows);
  const HostTensor bias = testing::random_tensor(random, DType::f32, {of.n_experts});
  const OnDevice on_device(test.backend, logits);
  const OnDevice bias_on_device(test.backend, bias);
  const Choices choices(test.backend, n_rows, of.n_experts, of.n_chosen);
  const StepInput step = step_of_rows(of.n_rows);
  route_experts(test.backend, {test.backend.upload_step(step), on_device.view(), choices.view(), variant.rule,
                               variant.has_bias ? bias_on_device.view() : TensorView{}});
  const auto experts = integers_of(choices.experts.to_host());
  const auto places = integers_of(choices.places.to_host());
  const auto rows = integers_of(choices.rows.to_host());
  const auto offsets = integers_of(choices.offsets.to_host());
  const HostTensor weights = choices.weights.to_host();

  std::vector<std::vector<std::size_t>> of_expert(static_cast<std::size_t>(of.n_experts));  // choices by row
  for (std::int64_t row = 0; row < n_rows; ++row) {
    const auto first = static_cast<std::size_t>(row * of.n_chosen);
    std::vector<double> of_row;
    for (std::int64_t e = 0; e < of.n_experts; ++e) of_row.push_back(logits.at(row * n_columns + e));
    const std::vector<double> scores = scores_of(of_row, variant.rule.score);
    const bool has_groups = variant.rule.n_groups > 1;
    std::vector<double> by = variant.has_bias || has_groups ? scores : of_row;
    for (std::size_t e = 0; variant.has_bias && e < by.size(); ++e) by[e] += bias.at(static_cast<std::int64_t>(e));
    const auto best = choose(by, variant.rule, of.n_chosen);
    // The softmax over the chosen logits is that over all, divided by the sum of the chosen, also where all have none.
    const bool is_of_chosen = variant.rule == RoutingRule{.renormalises = true} && !variant.has_bias;
    std::vector<double> chosen;
    for (const std::int32_t e : best) chosen.push_back((is_of_chosen ? of_row : scores)[static_cast<std::size_t>(e)]);
    if (is_of_chosen) chosen = scores_of(chosen, Score::softmax);
    const double sum = std::accumulate(chosen.begin(), chosen.end(), 0.0);
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
      // One exponential of a difference, sums of positive terms and two divisions.
      const double expected = weight_of(variant.rule, chosen[c], sum);
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
      for (const RouteVariant& variant : route_variants()) {
        const std::int64_t n_groups = variant.rule.n_groups;
        const std::int64_t n_kept = of.n_experts / n_groups * variant.rule.n_groups_per_row;
        if (of.n_experts % n_groups != 0 || of.n_chosen > n_kept) continue;
        SCOPED_TRACE(test.name + ", " + std::to_string(of.n_rows) + " rows, " + std::to_string(of.n_chosen) + " of " +
                     std::to_string(of.n_experts) + ", " + variant.name);
        expect_route(test, of, variant);
      }
}

/// What all rows' expert adds: nothing, its output, or its output times a gate; from its own memory or from that of `out`.
enum class Shared { none, plain, gated, gated_in_place };

void expect_combination(const TestBackend& test, DType in_dtype, DType out_dtype, std::int64_t n_chosen, std::int64_t d,
                        Shared kind) {
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kGateColumns = 3;
  std::mt19937 random(5);
  const std::int64_t n_places = kRows * n_chosen;
  const HostTensor in = testing::random_tensor(random, in_dtype, {n_places, d});
  const HostTensor weights = testing::random_tensor(random, DType::f32, {kRows, n_chosen});
  const HostTensor shared = testing::random_tensor(random, in_dtype, {kRows, d});
  const HostTensor gates = testing::random_tensor(random, DType::f32, {kRows, kGateColumns});
  std::vector<std::int32_t> places(static_cast<std::size_t>(n_places));
  std::iota(places.begin(), places.end(), 0);
  std::ranges::shuffle(places, random);
  for (std::int64_t c = 0; c < n_chosen; ++c) places[static_cast<std::size_t>(5 * n_chosen + c)] = -1;
  std::vector<double> expected(static_cast<std::size_t>(kRows * d), 0);
  for (std::int64_t i = 0; i < n_places; ++i)
    for (std::int64_t j = 0; j < d && places[static_cast<std::size_t>(i)] >= 0; ++j)
      expected[static_cast<std::size_t>(i / n_chosen * d + j)] +=
          weights.at(i) * in.at(places[static_cast<std::size_t>(i)] * d + j);
  const bool is_gated = kind == Shared::gated || kind == Shared::gated_in_place;
  for (std::int64_t i = 0; kind != Shared::none && i < kRows * d; ++i) {
    const double gate = is_gated ? 1 / (1 + std::exp(-gates.at(i / d * kGateColumns + kGateColumns - 1))) : 1;
    expected[static_cast<std::size_t>(i)] += gate * shared.at(i);
  }
  const Choices empty(test.backend, kRows, 9, n_chosen);
  const OnDevice of_places(test.backend, tensor_of(places, {kRows, n_chosen}));
  const OnDevice of_weights(test.backend, weights);
  ExpertChoices choices = empty.view();
  choices.places = of_places.view();
  choices.weights = of_weights.view();
  const OnDevice of_in(test.backend, in);
  const OnDevice of_shared(test.backend, shared);
  const OnDevice of_gates(test.backend, gates);
  const OnDevice own_out(test.backend, HostTensor(out_dtype, {kRows, d}));
  const OnDevice& out = kind == Shared::gated_in_place ? of_shared : own_out;
  combine_experts(test.backend, {of_in.view(), choices, out.view(), kind == Shared::none ? TensorView{} : of_shared.view(),
                                 is_gated ? of_gates.view() : TensorView{}});
  const HostTensor got = out.to_host();
  // Sums of n_chosen + 1 terms in f32, rounded once.
  EXPECT_LE(testing::relative_error(got, expected),
            2 * testing::epsilon(out_dtype) + 4 * testing::epsilon(DType::f32) * static_cast<double>(n_chosen + 1));
  for (std::int64_t j = 0; kind == Shared::none && j < d; ++j) EXPECT_EQ(got.at(5 * d + j), 0) << "a row without choices";
}

TEST(CombineExperts, equals_the_weighted_sum_in_float64) {
  for (const TestBackend& test : test_backends())
    for (const DType in_dtype : {DType::f32, DType::bf16, DType::f16})
      for (const DType out_dtype : {DType::f32, DType::bf16, DType::f16})
        for (const auto& [n_chosen, d] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {2, 33}, {8, 1100}, {9, 1096}})
          for (const Shared kind : {Shared::none, Shared::plain, Shared::gated, Shared::gated_in_place}) {
            if (kind == Shared::gated_in_place && in_dtype != out_dtype) continue;
            SCOPED_TRACE(test.name + ' ' + std::string(to_string(in_dtype)) + " to " + std::string(to_string(out_dtype)) +
                         ", shared " + std::to_string(static_cast<int>(kind)));
            expect_combination(test, in_dtype, out_dtype, n_chosen, d, kind);
          }
}

// On CUDA the sum's kernel may start while the routing still runs: in memory then are the places of the routing before.
TEST(CombineExperts, takes_the_places_of_the_operation_before_it) {
  constexpr std::int32_t kRows = 17;
  constexpr std::int64_t kExperts = 16;
  constexpr std::int64_t kChosen = 4;
  constexpr std::int64_t d = 1096;
  std::mt19937 random(7);
  const HostTensor in = testing::random_tensor(random, DType::f32, {kRows * kChosen, d});
  const std::vector<HostTensor> logits{testing::random_tensor(random, DType::f32, {kRows, kExperts}),
                                       testing::random_tensor(random, DType::f32, {kRows, kExperts})};
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    const StepInput step = step_of_rows(kRows);
    const StepView view = test.backend.upload_step(step);
    const OnDevice of_in(test.backend, in);
    const Choices choices(test.backend, kRows, kExperts, kChosen);
    const OnDevice first(test.backend, logits[0]);
    const OnDevice second(test.backend, logits[1]);
    for (int i = 0; i < 20; ++i) {
      const OnDevice out(test.backend, HostTensor(DType::f32, {kRows, d}));
      for (const OnDevice* of : {&first, &second}) {
        route_experts(test.backend, {view, of->view(), choices.view(), {.renormalises = true}});
        combine_experts(test.backend, {of_in.view(), choices.view(), out.view()});
      }
      const HostTensor got = out.to_host();
      const auto places = integers_of(choices.places.to_host());
      const HostTensor weights = choices.weights.to_host();
      std::vector<double> expected(static_cast<std::size_t>(kRows * d), 0);
      for (std::int64_t choice = 0; choice < kRows * kChosen; ++choice)
        for (std::int64_t j = 0; j < d; ++j)
          expected[static_cast<std::size_t>(choice / kChosen * d + j)] +=
              weights.at(choice) * in.at(places[static_cast<std::size_t>(choice)] * d + j);
      ASSERT_LE(testing::relative_error(got, expected), 4 * testing::epsilon(DType::f32) * (kChosen + 1));
    }
  }
}

}  // namespace
}  // namespace baton
