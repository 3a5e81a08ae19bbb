/// Matmuls by weights in 8 and 4 bits on every backend, by every kernel that a number of rows chooses: they equal those by
/// the weights that they stand for.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/matmul_reference.h"
#include "support/on_device.h"
#include "support/stored_weight.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::OnDevice;
using testing::random_stored;
using testing::random_tensor;
using testing::StoredForm;
using testing::StoredWeight;
using testing::test_backends;
using testing::TestBackend;

std::vector<DType> dtypes_of_x(const TestBackend& test) {
  std::vector<DType> dtypes{DType::f32};
  if (test.backend.capabilities().has_bf16_matmul) dtypes.push_back(DType::bf16);
  if (test.backend.capabilities().has_f16_matmul) dtypes.push_back(DType::f16);
  return dtypes;
}

/// Whether weights are scaled in x's dtype for so many rows, each rounded once.
bool rounds_weights(const TestBackend& test, DType dtype, const StoredForm& form, std::int64_t k, std::int64_t n_rows) {
  if (!test.is_cuda() || dtype == DType::f32) return false;
  const bool has_groups = form.scale_columns < k;
  const bool is_f4 = form.scheme == WeightScheme::f4;
  const std::int64_t least = is_f4 ? 16 : 32;  // columns of the smallest group that has kernels of compute capability 9.0
  if (test.backend.info().features != "sm_90" || (has_groups && form.scale_columns % least != 0)) return n_rows > 16;
  return is_f4 ? n_rows > 256 : has_groups && n_rows > 128;
}

std::string name_of(const TestBackend& test, const StoredForm& form, DType dtype, std::int64_t n, std::int64_t k,
                    std::int64_t n_rows) {
  return test.name + ' ' + std::string(to_string(form.scheme)) + ", a scale for " + std::to_string(form.scale_rows) + " x " +
         std::to_string(form.scale_columns) + ' ' + std::string(to_string(dtype)) + ", " + std::to_string(n_rows) + " rows, " +
         std::to_string(n) + " x " + std::to_string(k);
}

/// x W^T, seeing that nothing is written after the last row.
HostTensor product(Backend& backend, const PackedMatrix& weight, const HostTensor& x, DType out_dtype,
                   const ConstTensorView& bias = {}) {
  const std::int64_t n_rows = x.shape[0];
  const HostTensor poison(out_dtype, {n_rows + 1, weight.n});
  const OnDevice out(backend, poison);
  matmul(backend, {OnDevice(backend, x).view(), &weight, out.view().rows(0, n_rows), bias});
  const HostTensor got = out.to_host();
  const ConstTensorView after = got.view().rows(n_rows, n_rows + 1);
  EXPECT_EQ(std::memcmp(after.data, poison.bytes.data(), after.size_bytes()), 0) << "written after the last row";
  return testing::first_rows(got, n_rows);
}

/// `cuda_only`: for what depends on CUDA's kernels alone.
void expect_products(const StoredForm& form, std::int64_t n, std::int64_t k, const std::vector<std::int64_t>& rows,
                     bool cuda_only = false) {
  std::mt19937 random(5);
  const StoredWeight weight = random_stored(random, form, n, k);
  // The same numbers in every dtype.
  const HostTensor rounded = random_tensor(random, DType::bf16, {*std::ranges::max_element(rows), k});
  std::vector<double> expected;
  for (const TestBackend& test : test_backends()) {
    if (cuda_only && !test.is_cuda()) continue;
    if (expected.empty()) expected = testing::matmul_reference(rounded, weight.dense);
    for (const DType dtype : dtypes_of_x(test)) {
      HostTensor all(dtype, rounded.shape);
      for (std::int64_t i = 0; i < all.shape.n_elements(); ++i) all.set(i, static_cast<float>(rounded.at(i)));
      const auto packed = test.backend.pack_matrix(weight.matrix, dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      EXPECT_EQ((*packed)->scheme, form.scheme);
      for (const std::int64_t n_rows : rows) {
        // Sums of k exact products in f32 and a product by the scale: c = 4, growth = sqrt(k).
        const double bound = 4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k)) +
                             (rounds_weights(test, dtype, form, k, n_rows) ? testing::epsilon(dtype) : 0);
        EXPECT_LE(testing::relative_error(product(test.backend, **packed, testing::first_rows(all, n_rows), DType::f32),
                                          std::span(expected).first(static_cast<std::size_t>(n_rows * n))),
                  bound)
            << name_of(test, form, dtype, n, k, n_rows);
      }
    }
  }
}

TEST(SchemeMatmul, equals_float64_for_f8_with_scales_of_rows_and_blocks) {
  const std::vector<std::int64_t> rows{0, 1, 7, 9, 33, 150};
  expect_products({.scheme = WeightScheme::f8, .scale_columns = 300}, 70, 300, rows);
  expect_products({.scheme = WeightScheme::f8, .scale_rows = 70, .scale_columns = 300}, 70, 300, rows);
  expect_products({.scheme = WeightScheme::f8, .scale_columns = 33, .scale_dtype = DType::bf16}, 1, 33, rows);
  expect_products({.scheme = WeightScheme::f8, .scale_rows = 128, .scale_columns = 128}, 200, 320, rows);
  expect_products({.scheme = WeightScheme::f8, .scale_rows = 16, .scale_columns = 128}, 130, 131, rows);
  expect_products({.scheme = WeightScheme::f8, .scale_rows = 48, .scale_columns = 64, .scale_dtype = DType::f16}, 96, 96, rows);
}

TEST(SchemeMatmul, equals_float64_for_integers_with_and_without_zeros) {
  const std::vector<std::int64_t> rows{1, 6, 20, 64, 130};
  for (const WeightScheme scheme : {WeightScheme::i4, WeightScheme::i8})
    for (const bool has_zeros : {false, true}) {
      expect_products({.scheme = scheme, .scale_columns = 300, .has_zeros = has_zeros}, 65, 300, rows);
      expect_products({.scheme = scheme, .scale_columns = 32, .has_zeros = has_zeros, .scale_dtype = DType::f16}, 96, 96, rows);
      expect_products({.scheme = scheme, .scale_columns = 128, .has_zeros = has_zeros, .scale_dtype = DType::bf16}, 72, 461,
                      rows);
    }
}

constexpr StoredForm kNvfp4{.scheme = WeightScheme::f4, .scale_columns = 16, .scale_dtype = DType::f8_e4m3};
constexpr StoredForm kMxfp4{.scheme = WeightScheme::f4, .scale_columns = 32, .scale_dtype = DType::u8};

TEST(SchemeMatmul, equals_float64_for_f4_with_scales_of_8_bits) {
  const std::vector<std::int64_t> rows{0, 1, 6, 20, 64, 130, 270};
  for (const StoredForm& form : {kNvfp4, kMxfp4}) {
    expect_products(form, 65, 300, rows);
    expect_products(form, 7, 33, rows);
    expect_products(form, 96, 96, rows);
    expect_products(form, 72, 461, rows);
    expect_products(form, 3, 12, rows);
  }
  StoredForm in_order = kMxfp4;
  in_order.is_permuted = true;
  expect_products(in_order, 40, 128, rows);
  for (const std::int64_t columns : {48, 96, 256, 1024}) {
    StoredForm form = kNvfp4;
    form.scale_columns = columns;
    expect_products(form, 40, 1250, {3, 30, 70, 140}, true);
  }
}

// Groups that are whole stages of a kernel, parts of them, and neither.
TEST(SchemeMatmul, takes_scales_of_any_number_of_columns) {
  for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4})
    for (const std::int64_t columns : {16, 48, 64, 96, 256, 512, 1024})
      expect_products({.scheme = scheme, .scale_columns = columns, .has_zeros = scheme != WeightScheme::f8}, 40, 1250,
                      {3, 30, 70, 150}, true);
}

TEST(SchemeMatmul, takes_the_columns_of_x_in_the_order_of_the_weight) {
  const std::vector<std::int64_t> rows{1, 12, 100, 270};
  expect_products({.scheme = WeightScheme::i4, .scale_columns = 32, .has_zeros = true, .is_permuted = true}, 40, 128, rows);
  expect_products({.scheme = WeightScheme::i8, .scale_columns = 64, .is_permuted = true}, 40, 127, rows);
}

// Tiles of one block and of many, and every kernel's number of rows.
TEST(SchemeMatmul, equals_float64_for_every_number_of_rows) {
  const std::vector<std::int64_t> rows{1, 8, 16, 17, 32, 63, 65, 128, 129, 160, 161, 192, 193, 256, 257, 400, 520, 1100};
  expect_products({.scheme = WeightScheme::f8, .scale_columns = 1024}, 320, 1024, rows, true);
  expect_products({.scheme = WeightScheme::f8, .scale_rows = 128, .scale_columns = 128}, 192, 1536, rows, true);
  expect_products({.scheme = WeightScheme::i8, .scale_columns = 768, .scale_dtype = DType::bf16}, 200, 768, rows, true);
  expect_products({.scheme = WeightScheme::i4, .scale_columns = 128, .has_zeros = true, .scale_dtype = DType::f16}, 136, 2176,
                  rows, true);
  expect_products({.scheme = WeightScheme::i4, .scale_columns = 32, .scale_dtype = DType::bf16}, 96, 4160, rows, true);
  expect_products({.scheme = WeightScheme::i4, .scale_columns = 128, .scale_dtype = DType::bf16}, 9000, 256, {5, 40, 400},
                  true);
  expect_products({.scheme = WeightScheme::f8, .scale_columns = 300}, 200, 300, {2100}, true);
  expect_products(kNvfp4, 136, 2176, rows, true);
  expect_products(kMxfp4, 96, 4160, rows, true);
  expect_products(kNvfp4, 9000, 256, {5, 40}, true);
}

// A kernel may read ahead from the weight that was packed next, also if that one is smaller, larger or gone.
TEST(SchemeMatmul, multiplies_by_weights_in_any_order_while_others_come_and_go) {
  std::mt19937 random(11);
  const std::int64_t k = 512;
  std::vector<StoredWeight> weights;
  for (const std::int64_t n : {64, 4096, 1})
    weights.push_back(random_stored(random, {.scheme = WeightScheme::f8, .scale_columns = k}, n, k));
  const HostTensor x = random_tensor(random, DType::bf16, {3, k});
  for (const TestBackend& test : test_backends()) {
    if (!test.backend.capabilities().has_bf16_matmul) continue;
    std::vector<std::unique_ptr<PackedMatrix>> packed;
    for (const StoredWeight& weight : weights) {
      auto matrix = test.backend.pack_matrix(weight.matrix, DType::bf16, "w");
      ASSERT_TRUE(matrix) << matrix.error().message;
      packed.push_back(std::move(*matrix));
    }
    const auto expect_product_of = [&](std::size_t i) {
      EXPECT_LE(testing::relative_error(product(test.backend, *packed[i], x, DType::f32),
                                        testing::matmul_reference(x, weights[i].dense)),
                4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k)))
          << test.name << ", weight " << i;
    };
    for (const std::size_t i : std::to_array<std::size_t>({0, 1, 2, 1, 0})) expect_product_of(i);
    packed[1].reset();
    expect_product_of(0);
    expect_product_of(2);
  }
}

TEST(SchemeMatmul, adds_the_bias_and_writes_every_float_dtype) {
  for (const TestBackend& test : test_backends()) {
    if (!test.is_cuda()) continue;  // a CPU adds biases and rounds outside its kernels
    std::mt19937 random(7);
    const StoredForm form{.scheme = WeightScheme::i4, .scale_columns = 64, .has_zeros = true};
    for (const std::int64_t n : {128, 75}) {
      const std::int64_t k = 320;
      const StoredWeight weight = random_stored(random, form, n, k);
      for (const DType dtype : dtypes_of_x(test)) {
        const auto packed = test.backend.pack_matrix(weight.matrix, dtype, "w");
        ASSERT_TRUE(packed) << packed.error().message;
        for (const DType out_dtype : {DType::f32, DType::bf16, DType::f16})
          for (const DType bias_dtype : {DType::f32, DType::bf16})
            for (const std::int64_t n_rows : {1, 20, 100, 150, 190, 300}) {
              const HostTensor bias = random_tensor(random, bias_dtype, {n});
              const HostTensor x = random_tensor(random, dtype, {n_rows, k});
              std::vector<double> expected = testing::matmul_reference(x, weight.dense);
              for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias.at(static_cast<std::int64_t>(i) % n);
              const HostTensor got = product(test.backend, **packed, x, out_dtype, OnDevice(test.backend, bias).view());
              const double rounding =
                  std::max({testing::epsilon(out_dtype), testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k)),
                            rounds_weights(test, dtype, form, k, n_rows) ? testing::epsilon(dtype) : 0});
              EXPECT_LE(testing::relative_error(got, expected), 4 * rounding)
                  << name_of(test, form, dtype, n, k, n_rows) << " to " << to_string(out_dtype) << ", bias "
                  << to_string(bias_dtype);
            }
      }
    }
  }
}

/// A weight [256, 1] whose row i has the code i.
StoredMatrix every_code(WeightScheme scheme, const std::array<std::uint8_t, 256>& codes, const std::vector<float>& one) {
  StoredMatrix weight;
  weight.scheme = scheme;
  weight.shape = {256, 1};
  weight.values = {
      reinterpret_cast<const std::byte*>(codes.data()), scheme == WeightScheme::f8 ? DType::f8_e4m3 : DType::u8, {256, 1}};
  weight.scale_rows = 256;
  weight.scales = view_of(std::span(one), {1, 1});
  return weight;
}

// Every code of 8 bits, also the smallest numbers, alone in its row.
TEST(SchemeMatmul, widens_every_number_exactly) {
  std::array<std::uint8_t, 256> codes;
  for (std::size_t i = 0; i < 256; ++i) codes[i] = (i & 0x7f) == 0x7f ? 0 : static_cast<std::uint8_t>(i);
  std::array<std::uint8_t, 256> integers;
  for (std::size_t i = 0; i < 256; ++i) integers[i] = static_cast<std::uint8_t>(i);
  const std::vector<float> one(1, 1.0f);
  for (const TestBackend& test : test_backends())
    for (const DType dtype : dtypes_of_x(test))
      for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8})
        for (const int zero : {-1, 0, 128, 255}) {
          if (scheme == WeightScheme::f8 && zero >= 0) continue;
          StoredMatrix weight = every_code(scheme, scheme == WeightScheme::f8 ? codes : integers, one);
          const std::vector<std::uint8_t> zeros(256, static_cast<std::uint8_t>(zero));
          if (zero >= 0) weight.zeros = {reinterpret_cast<const std::byte*>(zeros.data()), DType::u8, {256, 1}};
          const auto packed = test.backend.pack_matrix(weight, dtype, "w");
          ASSERT_TRUE(packed) << packed.error().message;
          HostTensor x(dtype, {1, 1});
          x.set(0, 1);
          const HostTensor out = product(test.backend, **packed, x, DType::f32);
          for (std::size_t i = 0; i < 256; ++i) {
            Float8E4M3 value;
            value.bits = codes[i];
            const double expected = scheme == WeightScheme::f8 ? static_cast<double>(static_cast<float>(value))
                                                               : static_cast<double>(i) - (zero < 0 ? 128 : zero);
            EXPECT_EQ(out.at(static_cast<std::int64_t>(i)), expected) << test.name << ' ' << to_string(dtype) << ' ' << i;
          }
        }
}

/// Each row of x alone has the bits that it has among 300. `weight` is [130, 704].
void expect_same_bits_in_any_company(Backend& backend, const StoredWeight& weight, DType dtype, std::mt19937& random,
                                     const std::string& name) {
  const auto packed = backend.pack_matrix(weight.matrix, dtype, "w");
  ASSERT_TRUE(packed) << packed.error().message;
  const HostTensor x = random_tensor(random, dtype, {300, 704});
  const HostTensor all = product(backend, **packed, x, DType::f32);
  for (const std::int64_t row : {0, 1, 31, 127, 128, 299}) {
    HostTensor one(dtype, {1, 704});
    std::memcpy(one.bytes.data(), x.view().rows(row, row + 1).data, one.bytes.size());
    EXPECT_EQ(
        std::memcmp(product(backend, **packed, one, DType::f32).bytes.data(), all.view().rows(row, row + 1).data, 130 * 4), 0)
        << name << ' ' << to_string(weight.matrix.scheme) << ' ' << to_string(dtype) << " row " << row;
  }
}

/// The product of a byte and x that is 1 in column `column` and 0 in the other. Where weights become f16, those below 2^-24
/// are 0 and those beyond 65504 infinite, so that the other column may give NaN.
float product_of_byte(std::uint32_t byte, std::int64_t column, float scale, bool becomes_f16) {
  float sum = 0;
  for (const std::int64_t of : {0, 1}) {
    float weight = f4_value(byte >> (4 * of) & 15u) * scale;
    if (becomes_f16) weight = static_cast<float>(Float16(weight));
    sum += weight * (of == column ? 1.0f : 0.0f);
  }
  return sum;
}

// Every byte of two numbers, and every scale but NaN. With `largest` the row has a second group of that exponent, whose numbers are 0.
void expect_exact_f4(DType scale_dtype, int largest, int first_scale, int last_scale) {
  const std::int64_t k = largest < 0 ? 2 : 64;
  std::vector<std::uint8_t> values(static_cast<std::size_t>(256 * k / 2));
  std::vector<std::uint8_t> scales;
  for (int i = 0; i < 256; ++i) {
    values[static_cast<std::size_t>(i * k / 2)] = static_cast<std::uint8_t>(i);
    const int scale = first_scale + i % (last_scale - first_scale + 1);
    const bool is_nan = scale_dtype == DType::u8 ? scale == 255 : (scale & 0x7f) == 0x7f;
    scales.push_back(is_nan ? 0 : static_cast<std::uint8_t>(scale));
    if (largest >= 0) scales.push_back(static_cast<std::uint8_t>(largest));
  }
  StoredMatrix weight;
  weight.scheme = WeightScheme::f4;
  weight.shape = {256, k};
  weight.values = {reinterpret_cast<const std::byte*>(values.data()), DType::u8, {256, k / 2}};
  weight.scale_columns = k == 2 ? 2 : 32;
  weight.scales = {reinterpret_cast<const std::byte*>(scales.data()), scale_dtype, {256, weight.n_groups()}};
  for (const TestBackend& test : test_backends())
    for (const DType dtype : dtypes_of_x(test)) {
      const auto packed = test.backend.pack_matrix(weight, dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      for (const std::int64_t n_rows : {1, 20, 300})
        for (const std::int64_t column : {0, 1}) {
          if (test.is_cuda() && dtype == DType::f32 && n_rows > 16) continue;  // dense copies, which cuBLASLt multiplies
          const StoredForm form{.scheme = WeightScheme::f4, .scale_columns = weight.scale_columns};
          const bool becomes_f16 = dtype == DType::f16 && rounds_weights(test, dtype, form, k, n_rows);
          HostTensor x(dtype, {n_rows, k});
          for (std::int64_t i = 0; i < n_rows * k; ++i) x.set(i, i % k == column ? 1 : 0);
          const HostTensor out = product(test.backend, **packed, x, DType::f32);
          for (std::uint32_t i = 0; i < 256; ++i) {
            const float scale = test::scale_value(weight.scales, static_cast<std::int64_t>(i) * weight.n_groups());
            const auto expected = static_cast<double>(product_of_byte(i, column, scale, becomes_f16));
            const double got = out.at((n_rows - 1) * 256 + i);
            EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
                << test.name << ' ' << to_string(dtype) << ' ' << to_string(scale_dtype) << ' ' << i << ", " << n_rows
                << " rows: " << got << " instead of " << expected;
          }
        }
    }
}

TEST(SchemeMatmul, widens_every_number_and_every_scale_of_f4_exactly) {
  expect_exact_f4(DType::f8_e4m3, -1, 0, 255);
  expect_exact_f4(DType::u8, -1, 0, 250);          // times 6 still finite
  expect_exact_f4(DType::u8, 140, 140 - 23, 140);  // as far from the row's largest as f16 goes
}

// A group whose scale is far below the row's largest is rounded at most as sums in f32 are.
TEST(SchemeMatmul, exponents_of_f4_far_below_the_largest_of_the_row_end_in_zero) {
  const std::vector<std::uint8_t> values(32, 0x22), scales{160, 100};
  StoredMatrix weight;
  weight.scheme = WeightScheme::f4;
  weight.shape = {1, 64};
  weight.values = {reinterpret_cast<const std::byte*>(values.data()), DType::u8, {1, 32}};
  weight.scale_columns = 32;
  weight.scales = {reinterpret_cast<const std::byte*>(scales.data()), DType::u8, {1, 2}};
  for (const TestBackend& test : test_backends())
    for (const DType dtype : dtypes_of_x(test)) {
      const auto packed = test.backend.pack_matrix(weight, dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      HostTensor x(dtype, {1, 64});
      for (std::int64_t i = 0; i < 64; ++i) x.set(i, i >= 32 ? 1 : 0);
      const double out = product(test.backend, **packed, x, DType::f32).at(0);
      EXPECT_EQ(out, test.is_cuda() && dtype == DType::f16 ? 0 : 32 * 0x1p-27) << test.name << ' ' << to_string(dtype);
    }
}

TEST(SchemeMatmul, batch_invariant_rows_of_f4_are_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    const auto backend = test.make({.n_threads = 2, .batch_invariant = true});
    ASSERT_TRUE(backend) << backend.error().message;
    std::mt19937 random(6);
    for (const StoredForm& form : {kNvfp4, kMxfp4})
      for (const DType dtype : dtypes_of_x(test))
        expect_same_bits_in_any_company(**backend, random_stored(random, form, 130, 704), dtype, random, test.name);
  }
}

TEST(SchemeMatmul, batch_invariant_rows_are_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    const auto backend = test.make({.n_threads = 2, .batch_invariant = true});
    ASSERT_TRUE(backend) << backend.error().message;
    std::mt19937 random(6);
    for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4})
      for (const DType dtype : dtypes_of_x(test)) {
        const StoredForm form{.scheme = scheme, .scale_columns = 128};
        expect_same_bits_in_any_company(**backend, random_stored(random, form, 130, 704), dtype, random, test.name);
      }
  }
}

// Matmuls of several forms and widths share the memory of partial sums and overlap. Each must find it as at first.
TEST(SchemeMatmul, matmuls_after_one_another_have_the_same_bits) {
  for (const TestBackend& test : test_backends()) {
    if (!test.is_cuda()) continue;
    std::mt19937 random(3);
    std::vector<StoredWeight> stored;
    for (const StoredForm& form : {StoredForm{.scheme = WeightScheme::f8, .scale_columns = 1024},
                                   StoredForm{.scheme = WeightScheme::i4, .scale_columns = 128, .has_zeros = true},
                                   StoredForm{.scheme = WeightScheme::i8, .scale_rows = 1024, .scale_columns = 1024}})
      stored.push_back(random_stored(random, form, 1024, 1024));
    for (const std::int64_t n_rows : {1, 13, 32, 45, 128, 150, 170, 256, 600}) {
      std::vector<std::unique_ptr<PackedMatrix>> weights;
      for (const StoredWeight& weight : stored) {
        auto packed = test.backend.pack_matrix(weight.matrix, DType::bf16, "w");
        ASSERT_TRUE(packed) << packed.error().message;
        weights.push_back(std::move(*packed));
      }
      const OnDevice x(test.backend, random_tensor(random, DType::bf16, {n_rows, 1024}));
      std::vector<std::unique_ptr<OnDevice>> outs;
      for (int i = 0; i < 30; ++i)
        outs.push_back(std::make_unique<OnDevice>(test.backend, HostTensor(DType::bf16, {n_rows, 1024})));
      for (std::size_t i = 0; i < outs.size(); ++i) matmul(test.backend, {x.view(), weights[i % 3].get(), outs[i]->view()});
      for (std::size_t i = 3; i < outs.size(); ++i)
        EXPECT_EQ(outs[i]->to_host().bytes, outs[i % 3]->to_host().bytes) << n_rows << " rows, " << i;
    }
  }
}

TEST(SchemeMatmul, holds_what_the_file_held) {
  for (const TestBackend& test : test_backends()) {
    std::mt19937 random(7);
    const StoredWeight weight =
        random_stored(random, {.scheme = WeightScheme::i4, .scale_columns = 128, .scale_dtype = DType::bf16}, 2048, 2048);
    const auto packed = test.backend.pack_matrix(weight.matrix, DType::f32, "w");
    ASSERT_TRUE(packed) << packed.error().message;
    EXPECT_LE(static_cast<double>((*packed)->size_bytes), 1.05 * (2048 * 1024 + 2048 * 16 * 2)) << test.name;
    for (const StoredForm& form : {kNvfp4, kMxfp4}) {
      const StoredWeight f4 = random_stored(random, form, 2048, 2048);
      const auto packed_f4 = test.backend.pack_matrix(f4.matrix, DType::f32, "w");
      ASSERT_TRUE(packed_f4) << packed_f4.error().message;
      EXPECT_LE(static_cast<double>((*packed_f4)->size_bytes),
                1.05 * static_cast<double>(f4.values.size() + f4.scales.bytes.size()))
          << test.name;
    }
  }
}

}  // namespace
}  // namespace baton
