/// Merging of partial states on every backend compared with the formula in double precision. Edge cases: empty runs,
/// rows without inputs, NaN.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/cpu/attention/attention_state.h"
#include "support/test_backends.h"

namespace baton {
namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();

/// Partial states [n_partials, n_heads, head_dim] and the merge lists of rows.
struct Parts {
  int n_heads = 3;
  int head_dim = 80;
  std::vector<float> o, m, l;
  std::vector<std::int32_t> offsets{0}, inputs;
  std::vector<float> sinks = {};  ///< [n_heads], or empty
};

/// Rows with the given numbers of states, whose inputs are scattered. Maxima are N(0, spread). Some states are empty,
/// with NaN as o.
Parts random_parts(const std::vector<int>& states_of_row, float spread, double empty_share, std::uint64_t seed,
                   int head_dim = 80) {
  Parts parts;
  parts.head_dim = head_dim;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (const int n : states_of_row) {
    for (int i = 0; i < n; ++i) parts.inputs.push_back(static_cast<std::int32_t>(parts.inputs.size()));
    parts.offsets.push_back(static_cast<std::int32_t>(parts.inputs.size()));
  }
  std::shuffle(parts.inputs.begin(), parts.inputs.end(), random);
  const std::size_t n_states = parts.inputs.size() * static_cast<std::size_t>(parts.n_heads);
  for (std::size_t i = 0; i < n_states; ++i) {
    const bool is_empty = std::uniform_real_distribution<>()(random) < empty_share;
    parts.m.push_back(is_empty ? kEmpty : normal(random) * spread);
    parts.l.push_back(is_empty ? 0.0f : 1.0f + std::abs(normal(random)) * 100);
    for (int k = 0; k < parts.head_dim; ++k) parts.o.push_back(is_empty ? std::nanf("") : normal(random) * 10);
  }
  return parts;
}

template <class T>
Buffer upload(Backend& backend, const std::vector<T>& numbers) {
  auto buffer = backend.allocate(std::max<std::size_t>(1, numbers.size() * sizeof(T)));
  EXPECT_TRUE(buffer);
  const Shape shape{static_cast<std::int64_t>(numbers.size())};
  backend.copy_from_host(buffer->view(DTypeOf<T>::value, shape), view_of(std::span<const T>(numbers), shape));
  return std::move(*buffer);
}

/// Merges on a backend, with outputs initialised to `before`. Returns them as f32.
template <class T = float>
std::vector<float> run_merge(Backend& backend, const Parts& parts, float before = std::nanf("")) {
  const auto n_rows = static_cast<std::int64_t>(parts.offsets.size()) - 1;
  const auto n_partials = static_cast<std::int64_t>(parts.inputs.size());
  std::vector<T> out(static_cast<std::size_t>(n_rows * parts.n_heads * parts.head_dim), T(before));
  StepInput step;
  step.header().n_rows = static_cast<std::int32_t>(n_rows);
  step.group(0).n_partials = static_cast<std::int32_t>(n_partials);
  for (std::size_t row = 0; row + 1 < parts.offsets.size(); ++row)
    step.group(0).most_merge_inputs = std::max(step.group(0).most_merge_inputs, parts.offsets[row + 1] - parts.offsets[row]);
  step.append(SectionKind::merge_offsets, parts.offsets);
  step.append(SectionKind::merge_inputs, parts.inputs);
  step.finish();
  const Buffer out_memory = upload(backend, out);
  const Buffer o = upload(backend, parts.o);
  const Buffer m = upload(backend, parts.m);
  const Buffer l = upload(backend, parts.l);
  const Buffer sinks = upload(backend, parts.sinks);
  const TensorView out_view = out_memory.view(DTypeOf<T>::value, {n_rows, parts.n_heads, parts.head_dim});
  attention_merge(backend, {out_view,
                            {o.view(DType::f32, {n_partials, parts.n_heads, parts.head_dim}),
                             m.view(DType::f32, {n_partials, parts.n_heads}), l.view(DType::f32, {n_partials, parts.n_heads})},
                            backend.upload_step(step),
                            0,
                            parts.sinks.empty() ? ConstTensorView{} : sinks.view(DType::f32, {parts.n_heads})});
  backend.synchronize();
  backend.copy_to_host(view_of(std::span(out), out_view.shape), out_view);
  std::vector<float> result;
  for (const T& x : out) result.push_back(static_cast<float>(x));
  return result;
}

/// sum_p 2^(m_p - M) o_p / sum_p 2^(m_p - M) l_p, with a sink one more state of m = sink * log2(e), l = 1 and o = 0; 0 if
/// all states are empty.
std::vector<double> reference_merge(const Parts& parts) {
  std::vector<double> out;
  const auto dim = static_cast<std::size_t>(parts.head_dim);
  for (std::size_t row = 0; row + 1 < parts.offsets.size(); ++row)
    for (int head = 0; head < parts.n_heads; ++head) {
      double largest = -INFINITY;
      std::vector<std::size_t> states;
      for (int i = parts.offsets[row]; i < parts.offsets[row + 1]; ++i) {
        const auto state = static_cast<std::size_t>(parts.inputs[static_cast<std::size_t>(i)] * parts.n_heads + head);
        if (parts.m[state] == kEmpty) continue;
        states.push_back(state);
        largest = std::max(largest, static_cast<double>(parts.m[state]));
      }
      double sum = 0;
      if (!parts.sinks.empty()) {
        const double sink = static_cast<double>(parts.sinks[static_cast<std::size_t>(head)]) / std::log(2.0);
        largest = std::max(largest, sink);
        sum = std::exp2(sink - largest);
      }
      std::vector<double> o(dim, 0);
      for (const std::size_t state : states) {
        const double weight = std::exp2(static_cast<double>(parts.m[state]) - largest);
        sum += weight * static_cast<double>(parts.l[state]);
        for (std::size_t k = 0; k < dim; ++k) o[k] += weight * static_cast<double>(parts.o[state * dim + k]);
      }
      for (const double x : o) out.push_back(states.empty() ? 0 : x / sum);
    }
  return out;
}

/// Expects |got - reference| <= 16 eps n times the largest |o / l| of a row of n states: two roundings and an
/// exponential per fold.
void expect_close(const std::vector<float>& got, const std::vector<double>& reference, int n_states, double eps) {
  ASSERT_EQ(got.size(), reference.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), reference[i], 16 * eps * n_states * 50) << i;
}

/// Calls body(backend) for every backend.
template <class Body>
void for_each_backend(const Body& body) {
  for (const testing::TestBackend& on : testing::test_backends()) {
    SCOPED_TRACE(on.name);
    body(on.backend);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(AttentionMerge, equals_attention_over_the_union) {
  const double eps = std::ldexp(1.0, -24);
  for (const int n_states : {1, 2, 5, 40})
    for (const float spread : {0.1f, 3.0f, 200.0f, 1e4f})
      for (const double empty_share : {0.0, 0.4}) {
        const Parts parts =
            random_parts(std::vector<int>(7, n_states), spread, empty_share, static_cast<std::uint64_t>(n_states));
        const auto expected = reference_merge(parts);
        for_each_backend([&](Backend& backend) { expect_close(run_merge(backend, parts), expected, n_states, eps); });
      }
}

TEST(AttentionMerge, adds_sinks_once_however_many_states_there_are) {
  const double eps = std::ldexp(1.0, -24);
  for (const int n_states : {1, 2, 5, 9, 40})
    for (const float sink : {-1e4f, -2.0f, 0.0f, 4.0f, 1e4f}) {
      Parts parts = random_parts({n_states, 1, n_states}, 3.0f, 0.2, static_cast<std::uint64_t>(n_states));
      parts.sinks = {sink, sink + 0.7f, sink - 0.7f};
      const auto expected = reference_merge(parts);
      for_each_backend([&](Backend& backend) { expect_close(run_merge(backend, parts), expected, n_states, eps); });
    }
}

TEST(AttentionMerge, takes_every_head_size) {
  for (const int head_dim : {64, 80, 96, 128, 256, 512})
    for (const int n_rows : {1, 7, 130}) {
      const Parts parts = random_parts(std::vector<int>(static_cast<std::size_t>(n_rows), 3), 3, 0.2, 1, head_dim);
      const auto expected = reference_merge(parts);
      for_each_backend([&](Backend& backend) { expect_close(run_merge(backend, parts), expected, 3, std::ldexp(1.0, -24)); });
    }
}

TEST(AttentionMerge, writes_16_bit_outputs) {
  const Parts parts = random_parts({1, 2, 3}, 3, 0, 1);
  const auto expected = reference_merge(parts);
  for_each_backend([&](Backend& backend) {
    expect_close(run_merge<BFloat16>(backend, parts), expected, 1, std::ldexp(1.0, -8));
    expect_close(run_merge<Float16>(backend, parts), expected, 1, std::ldexp(1.0, -11));
  });
}

TEST(AttentionMerge, empty_runs_give_zero_and_change_nothing) {
  const Parts empty = random_parts({1, 2, 3}, 1, 1, 1);
  const Parts full = random_parts({3}, 3, 0, 2);
  Parts empty_with_sinks = empty;
  empty_with_sinks.sinks = {-3, 0, 5};
  for (const testing::TestBackend& on : testing::test_backends()) {
    SCOPED_TRACE(on.name);
    for (const float x : run_merge(on.backend, empty)) ASSERT_EQ(x, 0.0f);
    for (const float x : run_merge(on.backend, empty_with_sinks)) ASSERT_EQ(x, 0.0f);
    const auto expected = run_merge(on.backend, full);
    for (const std::size_t place : {0, 1, 3}) {  // an empty state first, in the middle and last
      Parts with_empty = full;
      with_empty.inputs.insert(with_empty.inputs.begin() + static_cast<std::ptrdiff_t>(place), 3);
      with_empty.offsets[1] = 4;
      for (int i = 0; i < full.n_heads; ++i) {
        with_empty.m.push_back(kEmpty);
        with_empty.l.push_back(0);
        for (int k = 0; k < full.head_dim; ++k) with_empty.o.push_back(std::nanf(""));
      }
      const auto got = run_merge(on.backend, with_empty);
      // CUDA splits the sum by the number of states, so the last bits may differ.
      const float loss = on.is_cuda() ? 1e-6f : 0.0f;
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], loss * std::max(1.0f, std::abs(expected[i])));
    }
  }
}

TEST(AttentionMerge, rows_without_inputs_are_left_alone) {
  const Parts parts = random_parts({2, 0, 1, 0}, 1, 0, 1);
  for_each_backend([&](Backend& backend) {
    const auto out = run_merge(backend, parts, 42.0f);
    const auto row_size = static_cast<std::size_t>(parts.n_heads * parts.head_dim);
    for (std::size_t i = 0; i < row_size; ++i) {
      ASSERT_EQ(out[row_size + i], 42.0f);
      ASSERT_EQ(out[3 * row_size + i], 42.0f);
      ASSERT_NE(out[2 * row_size + i], 42.0f);
    }
  });
}

TEST(AttentionMerge, gives_the_same_bits_for_any_number_of_threads) {
  const Parts parts = random_parts(std::vector<int>(37, 6), 4, 0.2, 9);
  for (const testing::TestBackend& on : testing::test_backends()) {
    const auto expected = run_merge(on.backend, parts);
    for (const int n_threads : {1, 2, 3, 5}) {
      const auto other = on.make({.n_threads = n_threads});
      ASSERT_TRUE(other) << other.error().message;
      const auto got = run_merge(**other, parts);
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected[i]) << on.name;
    }
  }
}

TEST(AttentionMerge, a_nan_state_is_not_hidden) {
  Parts parts = random_parts({2}, 1, 0, 1);
  parts.o[0] = std::nanf("");
  for_each_backend([&](Backend& backend) { EXPECT_TRUE(std::isnan(run_merge(backend, parts)[0])); });
}

TEST(AttentionMerge, its_exponential_is_exact_at_its_ends_and_close_between) {
  EXPECT_EQ(cpu::exp2_of_nonpositive(0.0f), 1.0f);
  EXPECT_EQ(cpu::exp2_of_nonpositive(-0.0f), 1.0f);
  EXPECT_EQ(cpu::exp2_of_nonpositive(kEmpty), 0.0f);
  EXPECT_EQ(cpu::exp2_of_nonpositive(-200.0f), 0.0f);
  EXPECT_EQ(cpu::exp2_of_nonpositive(-3.0f), 0.125f);
  EXPECT_TRUE(std::isnan(cpu::exp2_of_nonpositive(std::nanf(""))));
  for (float x = 0; x > -126; x -= 0.0137f) {
    const double expected = std::exp2(static_cast<double>(x));
    ASSERT_NEAR(static_cast<double>(cpu::exp2_of_nonpositive(x)) / expected, 1, 2e-7) << x;
  }
}

}  // namespace
}  // namespace baton
