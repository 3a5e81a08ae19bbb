/// Matmuls by integers with x in 8 bits equal those by x after rounding, with every instruction set.
#include "kernels/cpu/schemes/int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cpu/schemes/scheme_gemm.h"
#include "support/matmul_reference.h"
#include "support/stored_weight.h"

namespace baton::cpu {
namespace {

using testing::HostTensor;
using testing::random_stored;
using testing::random_tensor;
using testing::StoredForm;
using testing::StoredWeight;

/// Kernels that this processor can run.
struct Int8Choice {
  CpuIsa isa;
  bool has_vnni;
};

std::string name_of_int8(const Int8Choice& choice) {
  return fmt::format("{}{}", to_string(choice.isa), choice.has_vnni ? " with VNNI" : "");
}

std::vector<Int8Choice> int8_choices() {
  std::vector<Int8Choice> choices{{CpuIsa::baseline, false}};
  if (best_cpu_isa() >= CpuIsa::avx2) choices.push_back({CpuIsa::avx2, false});
  if (best_cpu_isa() >= CpuIsa::avx512 && has_vnni()) choices.push_back({CpuIsa::avx512, true});
  return choices;
}

/// x [rows, k] times the weight, in f32.
HostTensor multiply_int8_x(const Parallel& parallel, const Int8Choice& choice, const StoredWeight& weight,
                           const HostTensor& x) {
  SchemeGemm gemm(parallel, choice.isa, {.has_vnni = choice.has_vnni});
  StoredMatrix stored = weight.matrix;
  stored.has_int8_x = true;
  const auto packed = gemm.pack(stored, x.dtype, "w");
  EXPECT_TRUE(packed && (*packed)->has_int8_x);
  HostTensor out(DType::f32, {x.shape[0], stored.shape[0]});
  gemm.multiply({x.view(), packed->get(), out.view()});
  return out;
}

/// x as it is after rounding. Blocks of `block` columns are in the order of the weight: column c of it reads x[order[c]].
HostTensor rounded_x(const HostTensor& x, std::int64_t block, const std::vector<std::int32_t>& order) {
  const std::int64_t k = x.shape[1];
  const auto place = [&](std::int64_t c) { return order.empty() ? c : order[static_cast<std::size_t>(c)]; };
  HostTensor made(DType::f32, x.shape);
  for (std::int64_t row = 0; row < x.shape[0]; ++row)
    for (std::int64_t begin = 0; begin < k; begin += block) {
      const auto number = [&](std::int64_t c) { return static_cast<float>(x.at(row * k + place(c))); };
      float largest = 0;
      const std::int64_t end = std::min(k, begin + block);
      for (std::int64_t c = begin; c < end; ++c) largest = std::max(largest, std::abs(number(c)));
      for (std::int64_t c = begin; c < end; ++c)
        made.set(row * k + place(c), largest == 0 ? 0 : std::nearbyint(number(c) * (127 / largest)) * (largest / 127));
    }
  return made;
}

constexpr std::int64_t kRowCounts[] = {0, 1, 2, 3, 4, 5, 7, 12, 13, 65};

/// Matmuls equal those by rounded x with sums in f32. Sums of integers are exact, so that instruction sets differ by the
/// roundings of a block's sum alone: not at all where both scale and add it with one rounding.
void expect_int8_product(const StoredForm& form, std::int64_t n, std::int64_t k, std::int64_t block, DType dtype = DType::f32) {
  const Parallel parallel(2);
  std::mt19937 random(15);
  const StoredWeight weight = random_stored(random, form, n, k);
  for (const std::int64_t rows : kRowCounts) {
    std::mt19937 same(static_cast<std::uint32_t>(rows));
    const HostTensor x = random_tensor(same, dtype, {rows, k});
    const HostTensor rounded = rounded_x(x, block, form.is_permuted ? weight.permutation : std::vector<std::int32_t>());
    const std::vector<double> expected = testing::matmul_reference(rounded, weight.dense);
    std::vector<HostTensor> outs;
    const double n_roundings = 2 * std::sqrt(static_cast<double>((k + block - 1) / block + 2));
    for (const Int8Choice& choice : int8_choices()) {
      SCOPED_TRACE(fmt::format("{} {} {} rows, {} x {}", to_string(form.scheme), name_of_int8(choice), rows, n, k));
      outs.push_back(multiply_int8_x(parallel, choice, weight, x));
      EXPECT_LE(testing::relative_error(outs.back(), expected), 4 * testing::epsilon(DType::f32) * n_roundings);
    }
    std::vector<double> of_baseline;
    for (std::int64_t i = 0; i < rows * n; ++i) of_baseline.push_back(outs[0].at(i));
    for (std::size_t i = 1; i < outs.size(); ++i) {
      EXPECT_LE(testing::relative_error(outs[i], of_baseline), testing::epsilon(DType::f32) * n_roundings);
      EXPECT_EQ(outs[i].bytes, outs[1].bytes);
    }
  }
}

TEST(SchemeInt8, blocks_have_one_scale_of_a_weight) {
  EXPECT_EQ(int8_block_columns(4096, 4096), 128);
  EXPECT_EQ(int8_block_columns(100, 100), 100);
  EXPECT_EQ(int8_block_columns(4096, 128), 128);
  EXPECT_EQ(int8_block_columns(4096, 32), 32);
  EXPECT_EQ(int8_block_columns(4096, 160), 32);
  EXPECT_EQ(int8_block_columns(4096, 256), 128);
}

TEST(SchemeInt8, multiplies_x_with_a_scale_for_each_block) {
  for (const WeightScheme scheme : {WeightScheme::i4, WeightScheme::i8})
    for (const bool has_zeros : {false, true}) {
      expect_int8_product({.scheme = scheme, .scale_columns = 300, .has_zeros = has_zeros}, 65, 300, 128);
      expect_int8_product({.scheme = scheme, .scale_columns = 301, .has_zeros = has_zeros}, 65, 301, 128, DType::bf16);
      expect_int8_product({.scheme = scheme, .scale_columns = 3, .has_zeros = has_zeros}, 2, 3, 3);
      expect_int8_product({.scheme = scheme, .scale_columns = 32, .has_zeros = has_zeros, .scale_dtype = DType::f16}, 96, 96,
                          32);
      expect_int8_product({.scheme = scheme, .scale_columns = 128, .has_zeros = has_zeros, .scale_dtype = DType::bf16}, 72, 461,
                          128);
      expect_int8_product({.scheme = scheme, .scale_columns = 160, .has_zeros = has_zeros}, 63, 479, 32);
      expect_int8_product({.scheme = scheme, .scale_columns = 16, .has_zeros = has_zeros}, 1, 79, 16);
      expect_int8_product({.scheme = scheme, .scale_columns = 256, .has_zeros = has_zeros, .is_permuted = true}, 40, 512, 128);
    }
}

/// Sums over 128 of the largest codes: more than 16 bits hold, and what saturates in other instructions.
TEST(SchemeInt8, the_largest_sums_are_exact) {
  const Parallel parallel(1);
  for (const std::uint8_t code : {std::uint8_t{0}, std::uint8_t{255}}) {
    std::vector<std::uint8_t> codes(128 * 2, code);
    const std::vector<float> scales(2, 1.0f);
    StoredWeight weight;
    weight.matrix.scheme = WeightScheme::i8;
    weight.matrix.shape = {2, 128};
    weight.matrix.values = {reinterpret_cast<const std::byte*>(codes.data()), DType::u8, {2, 128}};
    weight.matrix.scale_columns = 128;
    weight.matrix.scales = view_of(std::span(scales), {2, 1});
    for (const float sign : {1.0f, -1.0f}) {
      HostTensor x(DType::f32, {1, 128});
      for (std::int64_t c = 0; c < 128; ++c) x.set(c, 127 * sign);
      for (const Int8Choice& choice : int8_choices())
        for (const std::int64_t column : {0, 1})
          EXPECT_EQ(multiply_int8_x(parallel, choice, weight, x).at(column), 128 * 127 * sign * (code - 128))
              << name_of_int8(choice);
    }
  }
}

/// Numbers that are not finite stay in their row; the smallest and the largest have no others beside them that they spoil.
TEST(SchemeInt8, a_row_has_the_same_bits_in_any_company) {
  const Parallel parallel(2);
  std::mt19937 random(16);
  const StoredWeight weight =
      random_stored(random, {.scheme = WeightScheme::i4, .scale_columns = 64, .has_zeros = true}, 130, 704);
  HostTensor x = random_tensor(random, DType::f32, {200, 704});
  x.set(3 * 704 + 5, std::nanf(""));
  x.set(4 * 704 + 6, INFINITY);
  for (std::int64_t c = 0; c < 704; ++c) {
    x.set(5 * 704 + c, 0);
    x.set(6 * 704 + c, std::numeric_limits<float>::denorm_min());
    x.set(7 * 704 + c, c == 700 ? 1e30f : 0);
  }
  for (const Int8Choice& choice : int8_choices()) {
    const HostTensor all = multiply_int8_x(parallel, choice, weight, x);
    for (std::int64_t c = 0; c < 130; ++c) {
      EXPECT_TRUE(std::isnan(all.at(3 * 130 + c)));
      EXPECT_FALSE(std::isfinite(all.at(4 * 130 + c)));
      EXPECT_EQ(all.at(5 * 130 + c), 0);
      EXPECT_EQ(all.at(6 * 130 + c), 0) << "too small for a scale";
      EXPECT_TRUE(std::isfinite(all.at(7 * 130 + c)));
    }
    for (const auto& [first, n_rows] :
         std::vector<std::pair<std::size_t, std::int64_t>>{{0, 1}, {199, 1}, {6, 2}, {62, 5}, {120, 12}, {7, 13}, {90, 70}}) {
      HostTensor some(DType::f32, {n_rows, 704});
      std::memcpy(some.bytes.data(), x.bytes.data() + first * 704 * 4, some.bytes.size());
      const HostTensor out = multiply_int8_x(parallel, choice, weight, some);
      EXPECT_EQ(std::memcmp(out.bytes.data(), all.bytes.data() + first * 130 * 4, out.bytes.size()), 0)
          << name_of_int8(choice) << ' ' << n_rows << " rows from " << first;
    }
  }
}

}  // namespace
}  // namespace baton::cpu
