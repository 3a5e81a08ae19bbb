/// Matmuls by weights in 8 and 4 bits equal those by the weights that they stand for, with every instruction set.
#include "kernels/cpu/scheme_gemm.h"

#include <cmath>
#include <cstring>
#include <random>

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

std::vector<CpuIsa> instruction_sets() {
  std::vector<CpuIsa> sets;
  for (const CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16})
    if (isa <= best_cpu_isa()) sets.push_back(isa);
  return sets;
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
  for (const CpuIsa isa : instruction_sets())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (dtype == DType::bf16 && isa < CpuIsa::avx512_bf16) continue;
      SchemeGemm gemm(parallel, isa);
      const auto packed = gemm.pack(weight.matrix, dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      for (const std::int64_t rows : {0, 1, 2, 7, 33, 150}) {
        const HostTensor x = random_tensor(random, dtype, {rows, k});
        // Sums of k exact products in f32 and a product by the scale: c = 4, growth = sqrt(k).
        EXPECT_LE(testing::relative_error(multiply(gemm, **packed, x), testing::matmul_reference(x, weight.dense)),
                  4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k)))
            << to_string(form.scheme) << ' ' << to_string(isa) << ' ' << to_string(dtype) << ' ' << rows << " rows, " << n
            << " x " << k;
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
    }
}

TEST(SchemeGemm, takes_the_columns_of_x_in_the_order_of_the_weight) {
  expect_product({.scheme = WeightScheme::i4, .scale_columns = 32, .has_zeros = true, .is_permuted = true}, 40, 128);
  expect_product({.scheme = WeightScheme::i8, .scale_columns = 64, .is_permuted = true}, 40, 127);
}

// Every code of 8 bits, also the smallest numbers, alone in its row.
TEST(SchemeGemm, widens_every_number_exactly) {
  const Parallel parallel(1);
  for (const CpuIsa isa : instruction_sets())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (dtype == DType::bf16 && isa < CpuIsa::avx512_bf16) continue;
      std::vector<std::uint8_t> codes(256);
      for (int i = 0; i < 256; ++i) codes[static_cast<std::size_t>(i)] = (i & 0x7f) == 0x7f ? 0 : static_cast<std::uint8_t>(i);
      const std::vector<float> one(1, 1.0f);
      StoredMatrix weight;
      weight.scheme = WeightScheme::f8;
      weight.shape = {256, 1};
      weight.values = {reinterpret_cast<const std::byte*>(codes.data()), DType::f8_e4m3, {256, 1}};
      weight.scale_rows = 256;
      weight.scales = view_of(std::span(one), {1, 1});
      SchemeGemm gemm(parallel, isa);
      const auto packed = gemm.pack(weight, dtype, "w");
      ASSERT_TRUE(packed);
      HostTensor x(dtype, {1, 1});
      x.set(0, 1);
      const HostTensor out = multiply(gemm, **packed, x);
      for (std::size_t i = 0; i < 256; ++i) {
        Float8E4M3 value;
        value.bits = codes[i];
        EXPECT_EQ(out.at(static_cast<std::int64_t>(i)), static_cast<double>(static_cast<float>(value))) << to_string(isa) << i;
      }
    }
}

TEST(SchemeGemm, a_row_has_the_same_bits_in_any_company) {
  const Parallel parallel(2);
  std::mt19937 random(6);
  for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4})
    for (const CpuIsa isa : instruction_sets()) {
      const DType dtype = isa >= CpuIsa::avx512_bf16 ? DType::bf16 : DType::f32;
      const StoredWeight weight = random_stored(random, {.scheme = scheme, .scale_columns = 128}, 130, 704);
      SchemeGemm gemm(parallel, isa);
      const auto packed = gemm.pack(weight.matrix, dtype, "w");
      ASSERT_TRUE(packed);
      const HostTensor x = random_tensor(random, dtype, {300, 704});
      const HostTensor all = multiply(gemm, **packed, x);
      const auto row_bytes = x.bytes.size() / 300;
      for (const std::size_t row : {0U, 1U, 31U, 127U, 128U, 299U}) {
        HostTensor one(dtype, {1, 704});
        std::memcpy(one.bytes.data(), x.bytes.data() + row * row_bytes, row_bytes);
        EXPECT_EQ(std::memcmp(multiply(gemm, **packed, one).bytes.data(), all.bytes.data() + row * 130 * 4, 130 * 4), 0)
            << to_string(scheme) << ' ' << to_string(isa) << " row " << row;
      }
    }
}

TEST(SchemeGemm, writes_other_dtypes_and_holds_what_the_file_held) {
  const Parallel parallel(2);
  std::mt19937 random(7);
  const StoredWeight weight =
      random_stored(random, {.scheme = WeightScheme::i4, .scale_columns = 128, .scale_dtype = DType::bf16}, 2048, 2048);
  SchemeGemm gemm(parallel, CpuIsa::baseline);
  const auto packed = gemm.pack(weight.matrix, DType::f32, "w");
  ASSERT_TRUE(packed);
  EXPECT_LE(static_cast<double>((*packed)->size_bytes), 1.05 * (2048 * 1024 + 2048 * 16 * 2));
  const HostTensor x = random_tensor(random, DType::f32, {2, 2048});
  EXPECT_LE(testing::relative_error(multiply(gemm, **packed, x, DType::bf16), testing::matmul_reference(x, weight.dense)),
            testing::epsilon(DType::bf16));
}

}  // namespace
}  // namespace baton::cpu
