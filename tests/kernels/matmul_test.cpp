#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::random_tensor;

std::unique_ptr<Backend> cpu(bool invariant = false, int n_threads = 2) {
  auto made = make_backend("cpu", {.n_threads = n_threads, .batch_invariant = invariant});
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

std::vector<DType> product_dtypes(const Backend& backend) {
  if (backend.info().has_bf16_products) return {DType::f32, DType::bf16};
  return {DType::f32};
}

std::vector<double> product(const HostTensor& x, const HostTensor& weight) {
  const std::int64_t rows = x.shape[0];
  const std::int64_t k = x.shape[1];
  const std::int64_t n = weight.shape[0];
  std::vector<double> out;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < k; ++j) sum += x.at(r * k + j) * weight.at(i * k + j);
      out.push_back(sum);
    }
  return out;
}

TEST(Matmul, equals_float64_for_every_number_of_rows) {
  const auto backend = cpu();
  std::mt19937 random(1);
  for (const DType dtype : product_dtypes(*backend)) {
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {17, 33}, {96, 64}, {320, 48}}) {
      const HostTensor weight = random_tensor(random, dtype, {n, k});
      const auto packed = backend->pack_matrix(weight.view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      for (const std::int64_t rows : {0, 1, 2, 3, 5, 8, 17, 31, 32, 33, 64, 100}) {
        const HostTensor x = random_tensor(random, dtype, {rows, k});
        HostTensor out(DType::f32, {rows, n});
        matmul(*backend, {x.view(), packed->get(), out.view()});
        // Sums of k products of exact operands in f32: c = 4, growth = sqrt(k).
        EXPECT_LE(testing::relative_error(out, product(x, weight)),
                  4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k)))
            << to_string(dtype) << ' ' << rows << " rows, " << n << " x " << k;
      }
    }
  }
}

TEST(Matmul, packs_weights_of_any_float_dtype) {
  const auto backend = cpu();
  std::mt19937 random(2);
  for (const DType from : {DType::f32, DType::bf16, DType::f16}) {
    const HostTensor weight = random_tensor(random, from, {24, 40});
    const auto packed = backend->pack_matrix(weight.view(), DType::f32, "w");
    ASSERT_TRUE(packed) << packed.error().message;
    const HostTensor x = random_tensor(random, DType::f32, {5, 40});
    HostTensor out(DType::f32, {5, 24});
    matmul(*backend, {x.view(), packed->get(), out.view()});
    EXPECT_LE(testing::relative_error(out, product(x, weight)), 32 * testing::epsilon(DType::f32)) << to_string(from);
  }
}

TEST(Matmul, batch_invariant_rows_are_the_same_bits_in_any_company) {
  const auto backend = cpu(true);
  std::mt19937 random(3);
  for (const DType dtype : product_dtypes(*backend)) {
    const std::int64_t n = 256;
    const std::int64_t k = 704;
    const HostTensor weight = random_tensor(random, dtype, {n, k});
    const auto packed = backend->pack_matrix(weight.view(), dtype, "w");
    ASSERT_TRUE(packed) << packed.error().message;
    const HostTensor x = random_tensor(random, dtype, {300, k});
    HostTensor all(DType::f32, {300, n});
    matmul(*backend, {x.view(), packed->get(), all.view()});
    for (const std::int64_t row : {0, 1, 31, 32, 77, 299}) {
      HostTensor one(DType::f32, {1, n});
      matmul(*backend, {x.view().rows(row, row + 1), packed->get(), one.view()});
      EXPECT_EQ(std::memcmp(one.bytes.data(), all.bytes.data() + static_cast<std::size_t>(row * n) * 4, one.bytes.size()), 0)
          << "row " << row;
    }
  }
}

}  // namespace
}  // namespace baton
