/// Matmuls by weights in 8 and 4 bits equal those by the weights that they stand for, with every instruction set.
#include "kernels/cpu/schemes/scheme_gemm.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/matmul_reference.h"
#include "support/stored_weight.h"

namespace baton::cpu {
namespace {

using testing::HostTensor;
using testing::random_stored;
using testing::random_tensor;
using testing::StoredForm;
using testing::StoredWeight;

/// A choice of kernels that this processor can run.
struct KernelChoice {
  CpuIsa isa;
  ByteInstructions bytes;
  DType dtype;
};

std::string name_of(const KernelChoice& choice) {
  return fmt::format("{}{} {}", to_string(choice.isa), choice.bytes.has_vbmi ? " with VBMI" : "", to_string(choice.dtype));
}

std::vector<KernelChoice> kernel_choices() {
  std::vector<KernelChoice> choices;
  for (const CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512})
    if (isa <= best_cpu_isa()) choices.push_back({isa, {}, DType::f32});
  if (best_cpu_isa() < CpuIsa::avx512_bf16) return choices;
  choices.push_back({CpuIsa::avx512_bf16, {}, DType::bf16});
  if (has_vbmi()) choices.push_back({CpuIsa::avx512_bf16, {.has_vbmi = true}, DType::bf16});
  return choices;
}

HostTensor multiply(SchemeGemm& gemm, const PackedMatrix& matrix, const HostTensor& x, DType out_dtype = DType::f32) {
  HostTensor out(out_dtype, {x.shape[0], matrix.n});
  gemm.multiply({x.view(), &matrix, out.view()});
  return out;
}

void expect_product(const StoredForm& form, std::int64_t n, std::int64_t k) {
  const Parallel parallel(2);
  std::mt19937 random(5);
  const StoredWeight weight = random_stored(random, form, n, k);
  for (const KernelChoice& choice : kernel_choices()) {
    SchemeGemm gemm(parallel, choice.isa, choice.bytes);
    const auto packed = gemm.pack(weight.matrix, choice.dtype, "w");
    ASSERT_TRUE(packed) << packed.error().message;
    for (const std::int64_t rows : {0, 1, 2, 3, 5, 6, 7, 8, 33, 150}) {
      const HostTensor x = random_tensor(random, choice.dtype, {rows, k});
      // Sums of k exact products in f32 and a product by the scale: c = 4, growth = sqrt(k).
      EXPECT_LE(testing::relative_error(multiply(gemm, **packed, x), testing::matmul_reference(x, weight.dense)),
                4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k)))
          << to_string(form.scheme) << ' ' << name_of(choice) << ' ' << rows << " rows, " << n << " x " << k;
    }
  }
}

TEST(SchemeGemm, equals_float64_for_f8_with_scales_of_rows_and_blocks) {
  expect_product({.scheme = WeightScheme::f8, .scale_columns = 300}, 70, 300);
  expect_product({.scheme = WeightScheme::f8, .scale_columns = 33, .scale_dtype = DType::bf16}, 1, 33);
  expect_product({.scheme = WeightScheme::f8, .scale_rows = 128, .scale_columns = 128}, 200, 320);
  expect_product({.scheme = WeightScheme::f8, .scale_rows = 16, .scale_columns = 128}, 130, 131);
  expect_product({.scheme = WeightScheme::f8, .scale_rows = 48, .scale_columns = 64, .scale_dtype = DType::f16}, 96, 96);
}

TEST(SchemeGemm, equals_float64_for_integers_with_and_without_zeros) {
  for (const WeightScheme scheme : {WeightScheme::i4, WeightScheme::i8})
    for (const bool has_zeros : {false, true}) {
      expect_product({.scheme = scheme, .scale_columns = 300, .has_zeros = has_zeros}, 65, 300);
      expect_product({.scheme = scheme, .scale_columns = 32, .has_zeros = has_zeros, .scale_dtype = DType::f16}, 96, 96);
      expect_product({.scheme = scheme, .scale_columns = 128, .has_zeros = has_zeros, .scale_dtype = DType::bf16}, 72, 461);
      expect_product({.scheme = scheme, .scale_columns = 16, .has_zeros = has_zeros}, 63, 79);
      expect_product({.scheme = scheme, .scale_columns = 1, .has_zeros = has_zeros}, 3, 1);
    }
}

TEST(SchemeGemm, equals_float64_for_f4_with_scales_of_8_bits) {
  expect_product({.scheme = WeightScheme::f4, .scale_columns = 16, .scale_dtype = DType::f8_e4m3}, 70, 304);
  expect_product({.scheme = WeightScheme::f4, .scale_columns = 16, .scale_dtype = DType::f8_e4m3}, 63, 79);
  expect_product({.scheme = WeightScheme::f4, .scale_columns = 32, .scale_dtype = DType::u8}, 129, 461);
  expect_product({.scheme = WeightScheme::f4, .scale_columns = 32, .is_permuted = true, .scale_dtype = DType::u8}, 40, 128);
  expect_product({.scheme = WeightScheme::f4, .scale_columns = 1, .scale_dtype = DType::u8}, 3, 1);
}

TEST(SchemeGemm, takes_the_columns_of_x_in_the_order_of_the_weight) {
  expect_product({.scheme = WeightScheme::i4, .scale_columns = 32, .has_zeros = true, .is_permuted = true}, 40, 128);
  expect_product({.scheme = WeightScheme::i8, .scale_columns = 64, .is_permuted = true}, 40, 127);
}

// Every code of 8 bits, also the smallest numbers, alone in its row.
TEST(SchemeGemm, widens_every_number_exactly) {
  const Parallel parallel(1);
  for (const KernelChoice& choice : kernel_choices()) {
    std::vector<std::uint8_t> codes(256);
    for (int i = 0; i < 256; ++i) codes[static_cast<std::size_t>(i)] = (i & 0x7f) == 0x7f ? 0 : static_cast<std::uint8_t>(i);
    const std::vector<float> one(1, 1.0f);
    StoredMatrix weight;
    weight.scheme = WeightScheme::f8;
    weight.shape = {256, 1};
    weight.values = {reinterpret_cast<const std::byte*>(codes.data()), DType::f8_e4m3, {256, 1}};
    weight.scale_rows = 256;
    weight.scales = view_of(std::span(one), {1, 1});
    SchemeGemm gemm(parallel, choice.isa, choice.bytes);
    const auto packed = gemm.pack(weight, choice.dtype, "w");
    ASSERT_TRUE(packed);
    HostTensor x(choice.dtype, {1, 1});
    x.set(0, 1);
    const HostTensor out = multiply(gemm, **packed, x);
    for (std::size_t i = 0; i < 256; ++i) {
      Float8E4M3 value;
      value.bits = codes[i];
      EXPECT_EQ(out.at(static_cast<std::int64_t>(i)), static_cast<double>(static_cast<float>(value)))
          << name_of(choice) << ' ' << i;
    }
  }
}

// Every code of 4 bits in each place of a byte, and every scale of 8 bits, alone in its row.
TEST(SchemeGemm, widens_every_number_and_every_scale_of_f4_exactly) {
  const Parallel parallel(1);
  for (const KernelChoice& choice : kernel_choices())
    for (const DType scale_dtype : {DType::f8_e4m3, DType::u8}) {
      std::vector<std::uint8_t> values, scales;
      for (int i = 0; i < 256; ++i) {
        values.push_back(static_cast<std::uint8_t>(i));
        const bool is_nan = scale_dtype == DType::u8 ? i == 255 : (i & 0x7f) == 0x7f;
        scales.push_back(is_nan ? 0 : static_cast<std::uint8_t>(i));
      }
      StoredMatrix weight;
      weight.scheme = WeightScheme::f4;
      weight.shape = {256, 2};
      weight.values = {reinterpret_cast<const std::byte*>(values.data()), DType::u8, {256, 1}};
      weight.scale_columns = 2;
      weight.scales = {reinterpret_cast<const std::byte*>(scales.data()), scale_dtype, {256, 1}};
      SchemeGemm gemm(parallel, choice.isa, choice.bytes);
      const auto packed = gemm.pack(weight, choice.dtype, "w");
      ASSERT_TRUE(packed);
      for (const std::int64_t column : {0, 1}) {
        HostTensor x(choice.dtype, {1, 2});
        x.set(column, 1);
        x.set(1 - column, 0);
        const HostTensor out = multiply(gemm, **packed, x);
        for (std::uint32_t i = 0; i < 256; ++i)
          EXPECT_EQ(out.at(i), static_cast<double>(f4_value(i >> (4 * column) & 15u) * test::scale_value(weight.scales, i)))
              << name_of(choice) << ' ' << to_string(scale_dtype) << ' ' << i;
      }
    }
}

/// Some rows of x alone have the bits of all rows together. `weight` is [130, 704].
void expect_same_bits_in_any_company(std::mt19937& random, const StoredWeight& weight, const KernelChoice& choice,
                                     const Parallel& parallel) {
  SchemeGemm gemm(parallel, choice.isa, choice.bytes);
  const auto packed = gemm.pack(weight.matrix, choice.dtype, "w");
  ASSERT_TRUE(packed);
  const HostTensor x = random_tensor(random, choice.dtype, {300, 704});
  const HostTensor all = multiply(gemm, **packed, x);
  const std::size_t row_bytes = x.bytes.size() / 300;
  for (const auto& [first, n_rows] : std::vector<std::pair<std::size_t, std::int64_t>>{
           {0, 1}, {1, 1}, {299, 1}, {5, 2}, {62, 4}, {120, 5}, {7, 6}, {90, 7}, {33, 8}, {2, 31}, {127, 70}}) {
    HostTensor some(choice.dtype, {n_rows, 704});
    std::memcpy(some.bytes.data(), x.bytes.data() + first * row_bytes, some.bytes.size());
    const HostTensor out = multiply(gemm, **packed, some);
    EXPECT_EQ(std::memcmp(out.bytes.data(), all.bytes.data() + first * 130 * 4, out.bytes.size()), 0)
        << to_string(weight.matrix.scheme) << ' ' << name_of(choice) << ' ' << n_rows << " rows from " << first;
  }
}

TEST(SchemeGemm, a_row_has_the_same_bits_in_any_company) {
  const Parallel parallel(2);
  std::mt19937 random(6);
  for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4})
    for (const std::int64_t scale_columns : {32, 128, 704})
      for (const KernelChoice& choice : kernel_choices()) {
        const StoredForm form{.scheme = scheme,
                              .scale_columns = scale_columns,
                              .has_zeros = scheme != WeightScheme::f8 && scale_columns == 32,
                              .is_permuted = scale_columns == 128};
        const StoredWeight weight = random_stored(random, form, 130, 704);
        expect_same_bits_in_any_company(random, weight, choice, parallel);
      }
}

TEST(SchemeGemm, a_row_of_f4_has_the_same_bits_in_any_company) {
  const Parallel parallel(2);
  std::mt19937 random(6);
  for (const DType scale_dtype : {DType::f8_e4m3, DType::u8})
    for (const KernelChoice& choice : kernel_choices()) {
      const StoredWeight weight = random_stored(
          random, {.scheme = WeightScheme::f4, .scale_columns = scale_dtype == DType::u8 ? 32 : 16, .scale_dtype = scale_dtype},
          130, 704);
      expect_same_bits_in_any_company(random, weight, choice, parallel);
    }
}

TEST(SchemeGemm, codes_are_looked_up_alike_by_bytes_and_by_lanes) {
  if (best_cpu_isa() < CpuIsa::avx512_bf16 || !has_vbmi()) GTEST_SKIP() << "the processor has no AVX-512 VBMI";
  const Parallel parallel(1);
  std::mt19937 random(8);
  for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8}) {
    const StoredWeight weight = random_stored(random, {.scheme = scheme, .scale_columns = 64}, 96, 320);
    const HostTensor x = random_tensor(random, DType::bf16, {9, 320});
    std::vector<std::vector<std::byte>> results;
    for (const bool with_bytes : {false, true}) {
      SchemeGemm gemm(parallel, CpuIsa::avx512_bf16, {.has_vbmi = with_bytes});
      const auto packed = gemm.pack(weight.matrix, DType::bf16, "w");
      ASSERT_TRUE(packed);
      results.push_back(multiply(gemm, **packed, x).bytes);
    }
    EXPECT_EQ(results[0], results[1]) << to_string(scheme);
  }
}

TEST(SchemeGemm, writes_other_dtypes_and_holds_what_the_file_held) {
  const Parallel parallel(2);
  std::mt19937 random(7);
  const StoredWeight weight =
      random_stored(random, {.scheme = WeightScheme::i4, .scale_columns = 128, .scale_dtype = DType::bf16}, 2048, 2048);
  SchemeGemm gemm(parallel, CpuIsa::baseline, {});
  const auto packed = gemm.pack(weight.matrix, DType::f32, "w");
  ASSERT_TRUE(packed);
  EXPECT_LE(static_cast<double>((*packed)->size_bytes), 1.05 * (2048 * 1024 + 2048 * 16 * 2));
  const StoredWeight f4 =
      random_stored(random, {.scheme = WeightScheme::f4, .scale_columns = 16, .scale_dtype = DType::f8_e4m3}, 2048, 2048);
  const auto packed_f4 = gemm.pack(f4.matrix, DType::f32, "w");
  ASSERT_TRUE(packed_f4);
  EXPECT_LE(static_cast<double>((*packed_f4)->size_bytes), 1.05 * (2048 * 1024 + 2048 * 128));
  const HostTensor x = random_tensor(random, DType::f32, {2, 2048});
  EXPECT_LE(testing::relative_error(multiply(gemm, **packed, x, DType::bf16), testing::matmul_reference(x, weight.dense)),
            testing::epsilon(DType::bf16));
}

TEST(SchemeGemm, packs_values_that_are_read_a_few_rows_at_a_time) {
  const Parallel parallel(2);
  std::mt19937 random(9);
  for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4}) {
    const StoredWeight weight = random_stored(random, {.scheme = scheme, .scale_columns = 32}, 200, 96);
    StoredMatrix rest = weight.matrix;
    rest.values.data = nullptr;
    const std::int64_t row_bytes = rest.values.shape[1];
    std::array<std::atomic<int>, 200> n_reads{};
    const ReadValues read = [&](std::int64_t begin, std::int64_t end, std::byte* to) -> Result<void> {
      for (std::int64_t row = begin; row < end; ++row) ++n_reads[static_cast<std::size_t>(row)];
      std::memcpy(to, weight.matrix.values.data + begin * row_bytes, static_cast<std::size_t>((end - begin) * row_bytes));
      return {};
    };
    SchemeGemm gemm(parallel, CpuIsa::baseline, {});
    const auto whole = gemm.pack(weight.matrix, DType::f32, "w");
    const auto by_rows = gemm.pack(rest, DType::f32, "w", &read);
    ASSERT_TRUE(whole && by_rows);
    for (const auto& n : n_reads) EXPECT_EQ(n, 1);
    const HostTensor x = random_tensor(random, DType::f32, {3, 96});
    EXPECT_EQ(multiply(gemm, **whole, x).bytes, multiply(gemm, **by_rows, x).bytes) << to_string(scheme);

    const ReadValues fails = [](std::int64_t begin, std::int64_t, std::byte*) -> Result<void> {
      if (begin == 64) return fail(ErrorCode::invalid_data, "row 64 is bad");
      return {};
    };
    const auto failed = gemm.pack(rest, DType::f32, "w", &fails);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message, "row 64 is bad");
  }
}

}  // namespace
}  // namespace baton::cpu
