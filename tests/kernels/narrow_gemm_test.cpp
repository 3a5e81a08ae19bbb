/// Matmuls of 1 to 129 rows by narrow weights, for which CUDA has a GEMM of its own. The other backends run them as well.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

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

constexpr std::int64_t kMostRows = 129;

struct NarrowShape {
  std::int64_t n = 0;
  std::int64_t k = 0;
};

bool multiplies_narrow(const TestBackend& test, DType dtype) {
  const BackendCapabilities capabilities = test.backend.capabilities();
  return dtype == DType::bf16 ? capabilities.has_bf16_matmul : capabilities.has_f16_matmul;
}

/// All ones: NaN in every float dtype.
HostTensor poisoned_rows(DType dtype, std::int64_t n_rows, std::int64_t n) {
  HostTensor out(dtype, {n_rows, n});
  std::memset(out.bytes.data(), 0xff, out.bytes.size());
  return out;
}

/// Sums of k exact products in f32, and one rounding: c = 4, growth = sqrt(k).
double bound_of(std::int64_t k, DType out_dtype) {
  return 4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k)) +
         (out_dtype == DType::f32 ? 0 : testing::epsilon(out_dtype));
}

struct NarrowCase {
  HostTensor weight;
  HostTensor x;                  ///< [kMostRows, k]
  std::vector<double> expected;  ///< [kMostRows, n]
};

/// Compares matmuls of the first rows of x with float64, and sees that nothing is written after the last row of out.
void check_narrow_rows(const TestBackend& test, const NarrowCase& of) {
  const DType dtype = of.weight.dtype;
  const std::int64_t n = of.weight.shape[0];
  const std::int64_t k = of.weight.shape[1];
  const auto packed = test.backend.pack_matrix(of.weight.view(), dtype, "w");
  ASSERT_TRUE(packed) << packed.error().message;
  for (const std::int64_t rows : {1, 2, 7, 8, 9, 16, 17, 24, 32, 33, 48, 63, 64, 65, 100, 128, 129}) {
    SCOPED_TRACE(test.name + ", " + std::string(to_string(dtype)) + ", " + std::to_string(rows) + " rows, " +
                 std::to_string(n) + " x " + std::to_string(k));
    const OnDevice x(test.backend, first_rows(of.x, rows));
    const std::vector<double> expected(of.expected.begin(), of.expected.begin() + rows * n);
    for (const DType out_dtype : {DType::f32, dtype}) {
      if (out_dtype != DType::f32 && !test.backend.capabilities().rounds_matmul_outputs) continue;
      const OnDevice out(test.backend, poisoned_rows(out_dtype, rows + 1, n));
      matmul(test.backend, {x.view(), packed->get(), out.view().rows(0, rows)});
      const HostTensor got = out.to_host();
      EXPECT_LE(testing::relative_error(first_rows(got, rows), expected), bound_of(k, out_dtype));
      const HostTensor untouched = poisoned_rows(out_dtype, 1, n);
      EXPECT_EQ(std::memcmp(got.view().rows(rows, rows + 1).data, untouched.bytes.data(), untouched.bytes.size()), 0);
    }
  }
}

// A last tile without all its outputs; k that ends inside a step, and in the first one; clusters of one block and of eight.
TEST(NarrowGemm, equals_float64_for_every_number_of_rows) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const NarrowShape& shape : {NarrowShape{96, 5120}, {257, 2048}, {61, 2888}, {1344, 520}, {5, 8}}) {
      std::mt19937 random(4);
      NarrowCase of{random_tensor(random, dtype, {shape.n, shape.k}), random_tensor(random, dtype, {kMostRows, shape.k}), {}};
      for (const TestBackend& test : test_backends()) {
        if (!multiplies_narrow(test, dtype)) continue;
        if (of.expected.empty()) of.expected = matmul_reference(of.x, of.weight);
        check_narrow_rows(test, of);
      }
    }
}

// A router's bias may have 16 bits where its logits have 32.
TEST(NarrowGemm, adds_a_bias_of_any_dtype) {
  constexpr NarrowShape kShape{36, 2880};
  for (const TestBackend& test : test_backends()) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      if (!multiplies_narrow(test, dtype)) continue;
      std::mt19937 random(2);
      const HostTensor weight = random_tensor(random, dtype, {kShape.n, kShape.k});
      const auto packed = test.backend.pack_matrix(weight.view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      for (const auto& [out_dtype, bias_dtype] : {std::pair{DType::f32, DType::f32}, {dtype, dtype}, {DType::f32, dtype}}) {
        if (out_dtype != DType::f32 && !test.backend.capabilities().rounds_matmul_outputs) continue;
        const HostTensor bias = random_tensor(random, bias_dtype, {kShape.n});
        for (const std::int64_t rows : {1, 3, 16, 37, 128}) {
          const HostTensor x = random_tensor(random, dtype, {rows, kShape.k});
          std::vector<double> expected = matmul_reference(x, weight);
          for (std::int64_t i = 0; i < rows * kShape.n; ++i) expected[static_cast<std::size_t>(i)] += bias.at(i % kShape.n);
          const OnDevice out(test.backend, poisoned_rows(out_dtype, rows, kShape.n));
          matmul(test.backend,
                 {OnDevice(test.backend, x).view(), packed->get(), out.view(), OnDevice(test.backend, bias).view()});
          EXPECT_LE(testing::relative_error(out.to_host(), expected), bound_of(kShape.k, out_dtype))
              << test.name << ' ' << to_string(dtype) << " to " << to_string(out_dtype) << ", bias " << to_string(bias_dtype)
              << ", " << rows << " rows";
        }
      }
    }
  }
}

// Kernels start before the ones before them end, so each must wait for its x.
TEST(NarrowGemm, matmuls_after_one_another_and_replayed_have_the_same_bits) {
  const std::vector<NarrowShape> shapes{{256, 1024}, {1024, 256}, {96, 1024}, {2048, 96}, {1024, 2048}};
  for (const TestBackend& test : test_backends()) {
    const DType dtype = DType::bf16;
    if (!multiplies_narrow(test, dtype) || !test.backend.capabilities().rounds_matmul_outputs) continue;
    std::mt19937 random(3);
    std::vector<std::unique_ptr<PackedMatrix>> weights;
    for (const NarrowShape& of : shapes) {
      auto packed = test.backend.pack_matrix(random_tensor(random, dtype, {of.n, of.k}).view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      weights.push_back(std::move(*packed));
    }
    for (const std::int64_t rows : {1, 8, 13, 32, 128}) {
      const OnDevice x(test.backend, random_tensor(random, dtype, {rows, shapes[0].k}));
      std::vector<std::unique_ptr<OnDevice>> outs;
      for (const NarrowShape& of : shapes)
        outs.push_back(std::make_unique<OnDevice>(test.backend, poisoned_rows(dtype, rows, of.n)));
      const auto multiply_all = [&](bool one_by_one) {
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          matmul(test.backend, {i == 0 ? ConstTensorView(x.view()) : ConstTensorView(outs[i - 1]->view()), weights[i].get(),
                                outs[i]->view()});
          if (one_by_one) test.backend.synchronize();
        }
      };
      multiply_all(/*one_by_one=*/true);
      const HostTensor expected = outs.back()->to_host();
      const auto graph = test.backend.capture([&] {
        for (int i = 0; i < 4; ++i) multiply_all(/*one_by_one=*/false);
      });
      ASSERT_TRUE(graph) << graph.error().message;
      for (int replay = 0; replay < 50; ++replay) {
        (*graph)->replay();
        ASSERT_EQ(outs.back()->to_host().bytes, expected.bytes) << test.name << ", " << rows << " rows, replay " << replay;
      }
    }
  }
}

}  // namespace
}  // namespace baton
