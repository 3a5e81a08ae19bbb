/// Norms of the residual stream against their formulas in float64, on every backend.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
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
using testing::random_tensor;
using testing::relative_error;
using testing::test_backends;
using testing::TestBackend;

constexpr DType kNormTypes[] = {DType::f32, DType::bf16, DType::f16};

void expect_rms_norm(Backend& backend, std::mt19937& random, DType dtype, std::int64_t rows, std::int64_t d) {
  const HostTensor before = random_tensor(random, DType::f32, {rows, d});
  const HostTensor delta = random_tensor(random, dtype, {rows, d});
  const HostTensor weight = random_tensor(random, DType::f32, {d});
  std::vector<double> expected;
  std::vector<double> expected_x;
  for (std::int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      expected_x.push_back(static_cast<float>(before.at(r * d + i) + delta.at(r * d + i)));
      squares += expected_x.back() * expected_x.back();
    }
    for (std::int64_t i = 0; i < d; ++i)
      expected.push_back(expected_x[static_cast<std::size_t>(r * d + i)] / std::sqrt(squares / static_cast<double>(d) + 1e-5) *
                         weight.at(i));
  }
  const OnDevice x(backend, before);
  const OnDevice out(backend, HostTensor(dtype, {rows, d}));
  const OnDevice added(backend, delta), weights(backend, weight);
  rms_norm(backend, {x.view(), {.first = added.view(), .second = {}, .norm_weight = {}}, weights.view(), out.view(), 1e-5f});
  // A sum of d squares and three roundings in f32, then one rounding to the output's dtype.
  EXPECT_LE(relative_error(out.to_host(), expected), 4 * testing::epsilon(dtype))
      << to_string(dtype) << ' ' << rows << " x " << d;
  EXPECT_LE(relative_error(x.to_host(), expected_x), testing::epsilon(DType::f32));
}

TEST(RmsNorm, equals_the_formula_and_updates_the_residual_stream) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(1);
    for (const DType dtype : kNormTypes)
      for (const std::int64_t rows : {0, 1, 3, 17})
        for (const std::int64_t d : {1, 7, 64, 257, 2049, 4096, 4100, 8200})
          expect_rms_norm(test.backend, random, dtype, rows, d);
  }
}

TEST(RmsNorm, without_a_delta_leaves_the_stream_alone) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(2);
    const HostTensor before = random_tensor(random, DType::f32, {3, 64});
    const OnDevice x(test.backend, before);
    const OnDevice weight(test.backend, random_tensor(random, DType::f32, {64}));
    const OnDevice out(test.backend, HostTensor(DType::f32, {3, 64}));
    rms_norm(test.backend, {x.view(), {}, weight.view(), out.view(), 1e-5f});
    EXPECT_EQ(x.to_host().bytes, before.bytes);
  }
}

TEST(RmsNorm, a_row_is_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(7);
    const HostTensor before = random_tensor(random, DType::f32, {40, 192});
    const OnDevice x(test.backend, before);
    const OnDevice weight(test.backend, random_tensor(random, DType::f32, {192}));
    const OnDevice all(test.backend, HostTensor(DType::f32, {40, 192}));
    const OnDevice one(test.backend, HostTensor(DType::f32, {1, 192}));
    rms_norm(test.backend, {x.view(), {}, weight.view(), all.view(), 1e-5f});
    rms_norm(test.backend, {x.view().rows(23, 24), {}, weight.view(), one.view(), 1e-5f});
    const HostTensor together = all.to_host();
    EXPECT_EQ(std::memcmp(one.to_host().bytes.data(), together.view().rows(23, 24).data, 192 * 4), 0);
  }
}

TEST(RmsNorm, adds_two_deltas) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(12);
    for (const DType dtype : kNormTypes)
      for (const std::int64_t d : {7, 64, 2049, 8200}) {
        const HostTensor before = random_tensor(random, DType::f32, {3, d});
        const HostTensor first = random_tensor(random, dtype, {3, d});
        const HostTensor second = random_tensor(random, dtype, {3, d});
        const HostTensor weight = random_tensor(random, DType::f32, {d});
        std::vector<double> expected_x;
        for (std::int64_t i = 0; i < 3 * d; ++i) expected_x.push_back(before.at(i) + first.at(i) + second.at(i));
        const OnDevice x(test.backend, before);
        const OnDevice out(test.backend, HostTensor(DType::f32, {3, d}));
        const OnDevice one(test.backend, first), two(test.backend, second), weights(test.backend, weight);
        rms_norm(test.backend,
                 {x.view(), {.first = one.view(), .second = two.view(), .norm_weight = {}}, weights.view(), out.view(), 1e-5f});
        EXPECT_LE(relative_error(x.to_host(), expected_x), testing::epsilon(DType::f32)) << to_string(dtype) << ' ' << d;
        std::vector<double> expected;
        for (std::int64_t r = 0; r < 3; ++r) {
          double squares = 0;
          for (std::int64_t i = 0; i < d; ++i) squares += std::pow(expected_x[static_cast<std::size_t>(r * d + i)], 2);
          for (std::int64_t i = 0; i < d; ++i)
            expected.push_back(expected_x[static_cast<std::size_t>(r * d + i)] /
                               std::sqrt(squares / static_cast<double>(d) + 1e-5) * weight.at(i));
        }
        EXPECT_LE(relative_error(out.to_host(), expected), 4 * testing::epsilon(DType::f32)) << to_string(dtype) << ' ' << d;
      }
  }
}

/// The sums of a norm of columns in f32, then one rounding to the output's dtype. All other columns are NaN.
void expect_norm_columns(Backend& backend, std::mt19937& random, DType in, DType out_dtype, std::int64_t rows,
                         std::int64_t first, std::int64_t n, std::int64_t after) {
  const std::int64_t width = first + n + after;
  const HostTensor drawn = random_tensor(random, in, {rows, n});
  const HostTensor weight = random_tensor(random, DType::f32, {n});
  HostTensor whole(in, {rows, width});
  std::vector<double> expected;
  for (std::int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      whole.set(r * width + first + i, static_cast<float>(drawn.at(r * n + i)));
      squares += drawn.at(r * n + i) * drawn.at(r * n + i);
    }
    for (std::int64_t i = 0; i < n; ++i)
      expected.push_back(drawn.at(r * n + i) / std::sqrt(squares / static_cast<double>(n) + 1e-2) * weight.at(i));
  }
  const OnDevice x(backend, whole), weights(backend, weight), out(backend, HostTensor(out_dtype, {rows + 1, n}));
  norm_columns(backend, {x.view(), first, weights.view(), out.view().rows(0, rows), 1e-2f});
  const HostTensor got = out.to_host();
  EXPECT_LE(relative_error(got, expected), 4 * testing::epsilon(out_dtype))
      << to_string(in) << " to " << to_string(out_dtype) << ", " << rows << " rows, columns [" << first << ", " << first + n
      << ") of " << width;
  EXPECT_TRUE(std::isnan(got.at(rows * n))) << "written after the last row";
}

TEST(NormColumns, equals_the_formula_and_reads_no_other_column) {
  struct Columns {
    std::int64_t first, n, after;
  };
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(31);
    for (const DType in : kNormTypes)
      for (const DType out : kNormTypes)
        for (const std::int64_t rows : {0, 1, 3, 17})
          for (const Columns& of : {Columns{0, 1, 0},
                                    {0, 64, 0},
                                    {5, 7, 1},
                                    {64, 257, 3},
                                    {64, 253, 3},      // aligned, but not all of the last eight columns
                                    {0, 768, 576},     // GLM-4.7-Flash: q_a before kv_a
                                    {0, 1536, 576},    // DeepSeek-V2 and V3
                                    {3072, 512, 64}})  // V2-Lite: the latent vector after the queries
            expect_norm_columns(test.backend, random, in, out, rows, of.first, of.n, of.after);
  }
}

TEST(NormColumns, a_row_is_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(32);
    const OnDevice x(test.backend, random_tensor(random, DType::bf16, {40, 1536 + 576}));
    const OnDevice weight(test.backend, random_tensor(random, DType::f32, {1536}));
    const OnDevice all(test.backend, HostTensor(DType::bf16, {40, 1536}));
    const OnDevice one(test.backend, HostTensor(DType::bf16, {1, 1536}));
    norm_columns(test.backend, {x.view(), 0, weight.view(), all.view()});
    norm_columns(test.backend, {x.view().rows(23, 24), 0, weight.view(), one.view()});
    const HostTensor together = all.to_host();
    EXPECT_EQ(std::memcmp(one.to_host().bytes.data(), together.view().rows(23, 24).data, 1536 * 2), 0);
  }
}

/// The inputs of layer_norm; the deltas and the bias are optional.
struct LayerNormCase {
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t d = 0;
  int n_deltas = 0;
  bool has_bias = false;
  float mean = 0;  ///< mean of x
};

void expect_layer_norm(Backend& backend, std::mt19937& random, const LayerNormCase& of) {
  HostTensor before = random_tensor(random, DType::f32, {of.rows, of.d});
  for (std::int64_t i = 0; i < of.rows * of.d; ++i) before.set(i, static_cast<float>(before.at(i)) + of.mean);
  const std::vector<HostTensor> deltas = {random_tensor(random, of.dtype, {of.rows, of.d}),
                                          random_tensor(random, of.dtype, {of.rows, of.d})};
  const HostTensor weight = random_tensor(random, DType::f32, {of.d});
  const HostTensor bias = random_tensor(random, DType::f32, {of.d});
  std::vector<double> expected;
  std::vector<double> expected_x;
  for (std::int64_t r = 0; r < of.rows; ++r) {
    double sum = 0;
    for (std::int64_t i = 0; i < of.d; ++i) {
      double x = before.at(r * of.d + i);
      double added = 0;
      for (int n = 0; n < of.n_deltas; ++n) added += deltas[static_cast<std::size_t>(n)].at(r * of.d + i);
      x = static_cast<float>(x + static_cast<float>(added));
      expected_x.push_back(x);
      sum += x;
    }
    const double mean = sum / static_cast<double>(of.d);
    double squares = 0;
    for (std::int64_t i = 0; i < of.d; ++i) squares += std::pow(expected_x[static_cast<std::size_t>(r * of.d + i)] - mean, 2);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(of.d) + 1e-5);
    for (std::int64_t i = 0; i < of.d; ++i)
      expected.push_back((expected_x[static_cast<std::size_t>(r * of.d + i)] - mean) * factor * weight.at(i) +
                         (of.has_bias ? bias.at(i) : 0.0));
  }
  const OnDevice x(backend, before);
  const OnDevice first(backend, deltas[0]);
  const OnDevice second(backend, deltas[1]);
  const OnDevice biases(backend, bias);
  const OnDevice out(backend, HostTensor(of.dtype, {of.rows, of.d}));
  LayerNormArgs args;
  args.x = x.view();
  if (of.n_deltas > 0) args.deltas.first = first.view();
  if (of.n_deltas > 1) args.deltas.second = second.view();
  const OnDevice weights(backend, weight);
  args.weight = weights.view();
  if (of.has_bias) args.bias = biases.view();
  args.out = out.view();
  args.eps = 1e-5f;
  layer_norm(backend, args);
  SCOPED_TRACE(std::string(to_string(of.dtype)) + ' ' + std::to_string(of.rows) + " x " + std::to_string(of.d) + ", " +
               std::to_string(of.n_deltas) + " deltas");
  // Two sums over d and a few roundings in f32, then one rounding to the output's dtype. The mean is subtracted from x
  // in f32, so the magnitude of x counts.
  const double size = std::max(1.0, static_cast<double>(std::abs(of.mean)));
  EXPECT_LE(relative_error(out.to_host(), expected),
            4 * testing::epsilon(of.dtype) + 4 * (size - 1) * testing::epsilon(DType::f32));
  EXPECT_LE(relative_error(x.to_host(), expected_x), testing::epsilon(DType::f32));
}

TEST(LayerNorm, equals_the_formula_and_updates_the_residual_stream) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(13);
    for (const DType dtype : kNormTypes)
      for (const std::int64_t rows : {0, 1, 3, 17})
        for (const std::int64_t d : {2, 7, 64, 257, 2049, 8200})
          expect_layer_norm(test.backend, random, {dtype, rows, d, static_cast<int>(rows % 3), rows != 3, 0});
    // A mean far above the spread: squares are summed about the mean, so only the rounding of x itself matters.
    for (const std::int64_t d : {64, 8200}) expect_layer_norm(test.backend, random, {DType::f32, 3, d, 1, true, 100});
  }
}

TEST(LayerNorm, a_row_is_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(14);
    const OnDevice x(test.backend, random_tensor(random, DType::f32, {40, 192}));
    const OnDevice weight(test.backend, random_tensor(random, DType::f32, {192}));
    const OnDevice bias(test.backend, random_tensor(random, DType::f32, {192}));
    const OnDevice all(test.backend, HostTensor(DType::f32, {40, 192}));
    const OnDevice one(test.backend, HostTensor(DType::f32, {1, 192}));
    layer_norm(test.backend, {x.view(), {}, weight.view(), bias.view(), all.view(), 1e-5f});
    layer_norm(test.backend, {x.view().rows(23, 24), {}, weight.view(), bias.view(), one.view(), 1e-5f});
    const HostTensor together = all.to_host();
    EXPECT_EQ(std::memcmp(one.to_host().bytes.data(), together.view().rows(23, 24).data, 192 * 4), 0);
  }
}

/// An RMS norm that changes its delta first: by a norm of its own, by a factor, or not at all.
struct PostNormCase {
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t d = 0;
  bool has_delta_norm = false;
  bool has_weight = false;  ///< else the norm gives x itself
  float scale = 1;
};

void expect_post_norm(Backend& backend, std::mt19937& random, const PostNormCase& of) {
  const float delta_eps = 1e-2f;
  const HostTensor before = random_tensor(random, DType::f32, {of.rows, of.d});
  const HostTensor delta = random_tensor(random, of.dtype, {of.rows, of.d});
  const HostTensor delta_weight = random_tensor(random, DType::f32, {of.d});
  const HostTensor weight = random_tensor(random, DType::f32, {of.d});
  const auto d = static_cast<double>(of.d);
  std::vector<double> expected;
  std::vector<double> expected_x;
  for (std::int64_t r = 0; r < of.rows; ++r) {
    double squares = 0;
    for (std::int64_t i = 0; i < of.d; ++i) squares += std::pow(delta.at(r * of.d + i), 2);
    const double factor = of.has_delta_norm ? 1 / std::sqrt(squares / d + static_cast<double>(delta_eps)) : 1;
    squares = 0;
    for (std::int64_t i = 0; i < of.d; ++i) {
      const double change = delta.at(r * of.d + i) * factor * (of.has_delta_norm ? delta_weight.at(i) : 1);
      expected_x.push_back(before.at(r * of.d + i) + static_cast<double>(of.scale) * change);
      squares += std::pow(expected_x.back(), 2);
    }
    for (std::int64_t i = 0; i < of.d; ++i) {
      const double x = expected_x[static_cast<std::size_t>(r * of.d + i)];
      expected.push_back(of.has_weight ? x / std::sqrt(squares / d + 1e-5) * weight.at(i) : x);
    }
  }
  const OnDevice x(backend, before), out(backend, HostTensor(of.dtype, {of.rows, of.d})), added(backend, delta),
      delta_weights(backend, delta_weight), weights(backend, weight);
  RmsNormArgs args;
  args.x = x.view();
  args.deltas.first = added.view();
  args.deltas.scale = of.scale;
  args.deltas.norm_eps = delta_eps;
  if (of.has_delta_norm) args.deltas.norm_weight = delta_weights.view();
  if (of.has_weight) args.weight = weights.view();
  args.out = out.view();
  args.eps = 1e-5f;
  rms_norm(backend, args);
  SCOPED_TRACE(std::string(to_string(of.dtype)) + ' ' + std::to_string(of.rows) + " x " + std::to_string(of.d) +
               (of.has_delta_norm ? ", norm of the delta" : "") + (of.has_weight ? "" : ", no weight"));
  // Two sums of squares and a few roundings in f32, then one to the output's dtype.
  EXPECT_LE(relative_error(out.to_host(), expected), 4 * testing::epsilon(of.dtype));
  EXPECT_LE(relative_error(x.to_host(), expected_x), 4 * testing::epsilon(DType::f32));
}

TEST(RmsNorm, scales_the_delta_or_gives_it_a_norm_of_its_own) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(21);
    for (const DType dtype : kNormTypes)
      for (const std::int64_t rows : {0, 1, 5})
        for (const std::int64_t d : {1, 7, 64, 257, 2049, 8200})
          for (const auto& [has_delta_norm, has_weight, scale] : {std::tuple{true, true, 1.0f},
                                                                  {true, false, 1.0f},
                                                                  {false, true, 0.22f},
                                                                  {true, true, 0.5f},
                                                                  {false, false, 1.0f}})
            expect_post_norm(test.backend, random, {dtype, rows, d, has_delta_norm, has_weight, scale});
  }
}

TEST(RmsNorm, without_a_weight_gives_the_stream_itself) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(22);
    const HostTensor before = random_tensor(random, DType::f32, {3, 70});
    const OnDevice x(test.backend, before), out(test.backend, HostTensor(DType::bf16, {3, 70}));
    rms_norm(test.backend, {x.view(), {}, {}, out.view(), 1e-5f});
    EXPECT_EQ(x.to_host().bytes, before.bytes);
    const HostTensor got = out.to_host();
    for (std::int64_t i = 0; i < 3 * 70; ++i)
      EXPECT_EQ(got.at(i), static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(before.at(i))))));
  }
}

TEST(LayerNorm, scales_both_deltas) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(23);
    const HostTensor before = random_tensor(random, DType::f32, {3, 65});
    const HostTensor first = random_tensor(random, DType::bf16, {3, 65});
    const HostTensor second = random_tensor(random, DType::bf16, {3, 65});
    std::vector<double> expected_x;
    for (std::int64_t i = 0; i < 3 * 65; ++i) expected_x.push_back(before.at(i) + 0.125 * (first.at(i) + second.at(i)));
    const OnDevice x(test.backend, before), out(test.backend, HostTensor(DType::f32, {3, 65})), one(test.backend, first),
        two(test.backend, second), weight(test.backend, random_tensor(random, DType::f32, {65}));
    LayerNormArgs args;
    args.x = x.view();
    args.deltas.first = one.view();
    args.deltas.second = two.view();
    args.deltas.scale = 0.125f;
    args.weight = weight.view();
    args.out = out.view();
    layer_norm(test.backend, args);
    EXPECT_LE(relative_error(x.to_host(), expected_x), 2 * testing::epsilon(DType::f32));
  }
}

}  // namespace
}  // namespace baton
