#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/matmul_reference.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::matmul_reference;
using testing::OnDevice;
using testing::random_tensor;
using testing::test_backends;
using testing::TestBackend;

std::vector<DType> matmul_dtypes(const TestBackend& test) {
  if (test.is_cuda()) return {DType::f32, DType::bf16, DType::f16};
  if (test.backend.capabilities().has_bf16_matmul) return {DType::f32, DType::bf16};
  return {DType::f32};
}

/// A backend with batch-invariant matmuls. The test fails if it cannot be made.
std::unique_ptr<Backend> invariant(const TestBackend& test) {
  auto backend = test.make({.n_threads = 2, .batch_invariant = true});
  if (backend) return std::move(*backend);
  ADD_FAILURE() << test.name << ": " << backend.error().message;
  return nullptr;
}

/// out = x W^T on the backend.
HostTensor run(Backend& backend, const PackedMatrix& weight, const HostTensor& x, DType out_dtype) {
  const OnDevice out(backend, HostTensor(out_dtype, {x.shape[0], weight.n}));
  matmul(backend, {OnDevice(backend, x).view(), &weight, out.view()});
  return out.to_host();
}

TEST(Matmul, equals_float64_for_every_number_of_rows) {
  for (const TestBackend& test : test_backends()) {
    std::mt19937 random(1);
    for (const DType dtype : matmul_dtypes(test)) {
      for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {17, 33}, {96, 64}, {320, 48}, {1001, 33}}) {
        const HostTensor weight = random_tensor(random, dtype, {n, k});
        const auto packed = test.backend.pack_matrix(weight.view(), dtype, "w");
        ASSERT_TRUE(packed) << packed.error().message;
        for (const std::int64_t rows : {0, 1, 2, 3, 5, 8, 17, 31, 32, 33, 64, 100}) {
          const HostTensor x = random_tensor(random, dtype, {rows, k});
          // Sums of k exact products in f32: c = 4, growth = sqrt(k).
          EXPECT_LE(testing::relative_error(run(test.backend, **packed, x, DType::f32), matmul_reference(x, weight)),
                    4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k)))
              << test.name << ' ' << to_string(dtype) << ' ' << rows << " rows, " << n << " x " << k;
        }
      }
    }
  }
}

// Every path that adds a bias: few rows and many, outputs that the matmul writes itself and others.
TEST(Matmul, adds_the_bias) {
  for (const TestBackend& test : test_backends()) {
    std::mt19937 random(7);
    for (const DType dtype : matmul_dtypes(test)) {
      for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{17, 33}, {56, 72}, {320, 48}, {1204, 2056}}) {
        const HostTensor weight = random_tensor(random, dtype, {n, k});
        const auto packed = test.backend.pack_matrix(weight.view(), dtype, "w");
        ASSERT_TRUE(packed) << packed.error().message;
        for (const DType out_dtype : {DType::f32, DType::bf16, DType::f16}) {
          if (!test.is_cuda() && out_dtype != DType::f32) continue;  // oneDNN has no fast code for others
          for (const DType bias_dtype : {DType::f32, DType::bf16, DType::f16}) {
            const HostTensor bias = random_tensor(random, bias_dtype, {n});
            for (const std::int64_t rows : {0, 1, 2, 4, 9, 33}) {
              const HostTensor x = random_tensor(random, dtype, {rows, k});
              std::vector<double> expected = matmul_reference(x, weight);
              for (std::int64_t i = 0; i < rows * n; ++i) expected[static_cast<std::size_t>(i)] += bias.at(i % n);
              const OnDevice out(test.backend, HostTensor(out_dtype, {rows, n}));
              matmul(test.backend,
                     {OnDevice(test.backend, x).view(), packed->get(), out.view(), OnDevice(test.backend, bias).view()});
              EXPECT_LE(
                  testing::relative_error(out.to_host(), expected),
                  4 * std::max(testing::epsilon(out_dtype), testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k))))
                  << test.name << ' ' << to_string(dtype) << " to " << to_string(out_dtype) << ", bias "
                  << to_string(bias_dtype) << ", " << rows << " rows, " << n << " x " << k;
            }
          }
        }
      }
    }
  }
}

TEST(Matmul, with_a_bias_a_row_is_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    const auto backend = invariant(test);
    if (backend == nullptr) continue;
    std::mt19937 random(8);
    for (const DType dtype : matmul_dtypes(test)) {
      const DType out_dtype = backend->capabilities().rounds_matmul_outputs ? dtype : DType::f32;
      const HostTensor weight = random_tensor(random, dtype, {96, 64});
      const auto packed = backend->pack_matrix(weight.view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      const OnDevice x(*backend, random_tensor(random, dtype, {70, 64}));
      const OnDevice bias(*backend, random_tensor(random, out_dtype, {96}));
      const OnDevice all(*backend, HostTensor(out_dtype, {70, 96}));
      const OnDevice one(*backend, HostTensor(out_dtype, {1, 96}));
      matmul(*backend, {x.view(), packed->get(), all.view(), bias.view()});
      matmul(*backend, {x.view().rows(41, 42), packed->get(), one.view(), bias.view()});
      const HostTensor together = all.to_host();
      const ConstTensorView expected = together.view().rows(41, 42);
      EXPECT_EQ(std::memcmp(one.to_host().bytes.data(), expected.data, expected.size_bytes()), 0)
          << test.name << ' ' << to_string(dtype);
    }
  }
}

TEST(Matmul, writes_every_float_dtype) {
  for (const TestBackend& test : test_backends()) {
    if (!test.is_cuda()) continue;  // oneDNN has fast code for fewer combinations of dtypes
    std::mt19937 random(4);
    for (const DType dtype : matmul_dtypes(test)) {
      const HostTensor weight = random_tensor(random, dtype, {56, 72});
      const auto packed = test.backend.pack_matrix(weight.view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      const HostTensor x = random_tensor(random, dtype, {9, 72});
      for (const DType out : {DType::f32, DType::bf16, DType::f16})
        EXPECT_LE(testing::relative_error(run(test.backend, **packed, x, out), matmul_reference(x, weight)),
                  4 * std::max(testing::epsilon(out), 8 * testing::epsilon(DType::f32)))
            << to_string(dtype) << " to " << to_string(out);
    }
  }
}

// Skinny matmuls: k of one access, of less and of more than a thread's share of the block; and more output columns
// than all blocks of a device take at once, once and several times.
TEST(Matmul, skinny_gemm_equal_float64_for_long_rows_and_many_columns) {
  struct Case {
    std::int64_t n, k;
    std::vector<std::int64_t> rows;
  };
  const std::vector<std::int64_t> few{1, 2, 3, 4, 5};
  for (const TestBackend& test : test_backends()) {
    const BackendCapabilities capabilities = test.backend.capabilities();
    std::vector<DType> dtypes;
    if (capabilities.has_bf16_matmul) dtypes.push_back(DType::bf16);
    if (capabilities.has_f16_matmul) dtypes.push_back(DType::f16);
    std::mt19937 random(6);
    for (const DType dtype : dtypes)
      for (const Case& of : {Case{4, 8, few},
                             {12, 2048, few},
                             {8, 8200, few},
                             {1204, 2056, {1, 4}},
                             {6000, 72, few},
                             {3300, 2056, {1}},
                             {1100, 8200, {1}}}) {
        const HostTensor weight = random_tensor(random, dtype, {of.n, of.k});
        const auto packed = test.backend.pack_matrix(weight.view(), dtype, "w");
        ASSERT_TRUE(packed) << packed.error().message;
        for (const std::int64_t rows : of.rows) {
          SCOPED_TRACE(test.name + ", " + std::string(to_string(dtype)) + ", " + std::to_string(rows) + " rows, " +
                       std::to_string(of.n) + " x " + std::to_string(of.k));
          const HostTensor x = random_tensor(random, dtype, {rows, of.k});
          const std::vector<double> expected = matmul_reference(x, weight);
          const double sums = 4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(of.k));
          EXPECT_LE(testing::relative_error(run(test.backend, **packed, x, DType::f32), expected), sums);
          if (!capabilities.rounds_matmul_outputs) continue;
          EXPECT_LE(testing::relative_error(run(test.backend, **packed, x, dtype), expected), sums + testing::epsilon(dtype));
        }
      }
  }
}

TEST(Matmul, packs_weights_of_any_float_dtype) {
  for (const TestBackend& test : test_backends()) {
    std::mt19937 random(2);
    for (const DType from : {DType::f32, DType::bf16, DType::f16}) {
      const HostTensor weight = random_tensor(random, from, {24, 40});
      const auto packed = test.backend.pack_matrix(weight.view(), DType::f32, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      const HostTensor x = random_tensor(random, DType::f32, {5, 40});
      EXPECT_LE(testing::relative_error(run(test.backend, **packed, x, DType::f32), matmul_reference(x, weight)),
                32 * testing::epsilon(DType::f32))
          << test.name << ' ' << to_string(from);
    }
  }
}

TEST(Matmul, batch_invariant_rows_are_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    const std::unique_ptr<Backend> backend = invariant(test);
    if (backend == nullptr) continue;
    std::mt19937 random(3);
    for (const DType dtype : matmul_dtypes(test)) {
      const std::int64_t n = 256;
      const std::int64_t k = 704;
      const HostTensor weight = random_tensor(random, dtype, {n, k});
      const auto packed = backend->pack_matrix(weight.view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      const HostTensor x = random_tensor(random, dtype, {300, k});
      const HostTensor all = run(*backend, **packed, x, DType::f32);
      const OnDevice rows(*backend, x);
      for (const std::int64_t row : {0, 1, 31, 32, 77, 299}) {
        const OnDevice one(*backend, HostTensor(DType::f32, {1, n}));
        matmul(*backend, {rows.view().rows(row, row + 1), packed->get(), one.view()});
        EXPECT_EQ(std::memcmp(one.to_host().bytes.data(), all.bytes.data() + static_cast<std::size_t>(row * n) * 4,
                              static_cast<std::size_t>(n) * 4),
                  0)
            << test.name << ' ' << to_string(dtype) << " row " << row;
      }
    }
  }
}

// On CUDA: every number of rows of our own kernel, every bucket of rows of cuBLASLt, and several matmuls for one.
TEST(Matmul, batch_invariant_rows_are_the_same_bits_for_every_number_of_rows) {
  struct Case {
    std::int64_t n, k, n_rows;
  };
  for (const TestBackend& test : test_backends()) {
    if (!test.is_cuda()) continue;  // the CPU's row tiles are all alike
    const std::unique_ptr<Backend> backend = invariant(test);
    if (backend == nullptr) continue;
    std::mt19937 random(9);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const Case& of : {Case{4224, 1024, 2100}, Case{264, 1416, 300}, Case{1504, 5632, 300}, Case{8, 8, 300}}) {
        const HostTensor weight = random_tensor(random, dtype, {of.n, of.k});
        const auto packed = backend->pack_matrix(weight.view(), dtype, "w");
        ASSERT_TRUE(packed) << packed.error().message;
        const HostTensor x = random_tensor(random, dtype, {of.n_rows, of.k});
        const OnDevice rows(*backend, x);
        for (const DType out_dtype : {DType::f32, dtype}) {
          const HostTensor all = run(*backend, **packed, x, out_dtype);
          const HostTensor few = first_rows(all, 3);
          EXPECT_LE(testing::relative_error(few, matmul_reference(first_rows(x, 3), weight)),
                    4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(of.k)) +
                        (out_dtype == DType::f32 ? 0 : testing::epsilon(out_dtype)));
          for (std::int64_t n_rows = 1; n_rows <= 256; ++n_rows) {
            const std::int64_t first = n_rows * 13 % (of.n_rows - n_rows);
            const OnDevice out(*backend, HostTensor(out_dtype, {n_rows, of.n}));
            matmul(*backend, {rows.view().rows(first, first + n_rows), packed->get(), out.view()});
            const ConstTensorView expected = all.view().rows(first, first + n_rows);
            EXPECT_EQ(std::memcmp(out.to_host().bytes.data(), expected.data, expected.size_bytes()), 0)
                << test.name << ' ' << to_string(dtype) << " to " << to_string(out_dtype) << ", " << n_rows << " rows, " << of.n
                << " x " << of.k;
          }
        }
      }
    }
  }
}

TEST(Matmul, a_recorded_product_is_the_product) {
  for (const TestBackend& test : test_backends()) {
    std::mt19937 random(5);
    const HostTensor weight = random_tensor(random, DType::f32, {40, 64});
    const auto packed = test.backend.pack_matrix(weight.view(), DType::f32, "w");
    ASSERT_TRUE(packed) << packed.error().message;
    const OnDevice x(test.backend, random_tensor(random, DType::f32, {37, 64}));
    const OnDevice out(test.backend, HostTensor(DType::f32, {37, 40}));
    const auto graph = test.backend.capture([&] { matmul(test.backend, {x.view(), packed->get(), out.view()}); });
    ASSERT_TRUE(graph) << graph.error().message;
    (*graph)->replay();
    const HostTensor replayed = out.to_host();
    matmul(test.backend, {x.view(), packed->get(), out.view()});
    EXPECT_EQ(out.to_host().bytes, replayed.bytes) << test.name;
  }
}

}  // namespace
}  // namespace baton
