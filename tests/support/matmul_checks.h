/// Checks that tests of several GEMMs make: against float64, and of the bits of matmuls that run after one another.
#pragma once

#include <cmath>
#include <cstdint>
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
#include "support/test_backends.h"

namespace baton::testing {

/// A weight [n, k].
struct WeightShape {
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// Whether the backend multiplies matrices of this 16-bit dtype.
inline bool multiplies(const TestBackend& test, DType dtype) {
  const BackendCapabilities capabilities = test.backend.capabilities();
  return dtype == DType::bf16 ? capabilities.has_bf16_matmul : capabilities.has_f16_matmul;
}

/// The dtypes of out that the backend writes for weights of `dtype`.
inline std::vector<DType> matmul_outputs(const TestBackend& test, DType dtype) {
  if (!test.backend.capabilities().rounds_matmul_outputs) return {DType::f32};
  return {DType::f32, dtype};
}

/// Relative error of sums of k exact products in f32, and of one rounding: c = 4, growth = sqrt(k).
inline double matmul_bound(std::int64_t k, DType out_dtype) {
  return 4 * epsilon(DType::f32) * std::sqrt(static_cast<double>(k)) + (out_dtype == DType::f32 ? 0 : epsilon(out_dtype));
}

/// x W^T + bias. The test fails if anything is written after the last row of out.
inline HostTensor multiply(Backend& backend, const PackedMatrix& weight, const ConstTensorView& x, DType out_dtype,
                           const ConstTensorView& bias = {}) {
  const std::int64_t rows = x.shape[0];
  const OnDevice out(backend, HostTensor(out_dtype, {rows + 1, weight.n}));  // all ones: NaN
  matmul(backend, {x, &weight, out.view().rows(0, rows), bias});
  const HostTensor got = out.to_host();
  const HostTensor untouched(out_dtype, {1, weight.n});
  EXPECT_EQ(std::memcmp(got.view().rows(rows, rows + 1).data, untouched.bytes.data(), untouched.bytes.size()), 0);
  return first_rows(got, rows);
}

/// Compares matmuls of 1 to some rows by random weights with float64, for each dtype and backend that multiplies it. `rows` in
/// ascending order.
inline void check_matmul_rows(const WeightShape& shape, std::span<const std::int64_t> rows) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    std::mt19937 random(1);
    const HostTensor weight = random_tensor(random, dtype, {shape.n, shape.k});
    const HostTensor all_x = random_tensor(random, dtype, {rows.back(), shape.k});
    std::vector<double> reference;
    for (const TestBackend& test : test_backends()) {
      if (!multiplies(test, dtype)) continue;
      if (reference.empty()) reference = matmul_reference(all_x, weight);
      const auto packed = test.backend.pack_matrix(weight.view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      for (const std::int64_t n_rows : rows) {
        SCOPED_TRACE(test.name + ", " + std::string(to_string(dtype)) + ", " + std::to_string(n_rows) + " rows, " +
                     std::to_string(shape.n) + " x " + std::to_string(shape.k));
        const OnDevice x(test.backend, first_rows(all_x, n_rows));
        const auto expected = std::span(reference).first(static_cast<std::size_t>(n_rows * shape.n));
        for (const DType out_dtype : matmul_outputs(test, dtype))
          EXPECT_LE(relative_error(multiply(test.backend, **packed, x.view(), out_dtype), expected),
                    matmul_bound(shape.k, out_dtype));
      }
    }
  }
}

/// Compares matmuls with a bias of out's dtype and, where out is float32, of the weight's, with float64.
inline void check_matmul_bias(const WeightShape& shape, std::span<const std::int64_t> rows) {
  for (const TestBackend& test : test_backends())
    for (const DType dtype : {DType::bf16, DType::f16}) {
      if (!multiplies(test, dtype)) continue;
      std::mt19937 random(2);
      const HostTensor weight = random_tensor(random, dtype, {shape.n, shape.k});
      const auto packed = test.backend.pack_matrix(weight.view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      std::vector<std::pair<DType, DType>> dtypes = {{DType::f32, dtype}};  // of out and of the bias
      for (const DType out_dtype : matmul_outputs(test, dtype)) dtypes.emplace_back(out_dtype, out_dtype);
      for (const std::int64_t n_rows : rows) {
        const HostTensor x = random_tensor(random, dtype, {n_rows, shape.k});
        const std::vector<double> sums = matmul_reference(x, weight);
        const OnDevice on_device(test.backend, x);
        for (const auto& [out_dtype, bias_dtype] : dtypes) {
          const HostTensor bias = random_tensor(random, bias_dtype, {shape.n});
          std::vector<double> expected = sums;
          for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias.at(static_cast<std::int64_t>(i) % shape.n);
          const OnDevice added(test.backend, bias);
          EXPECT_LE(relative_error(multiply(test.backend, **packed, on_device.view(), out_dtype, added.view()), expected),
                    matmul_bound(shape.k, out_dtype))
              << test.name << ' ' << to_string(dtype) << " to " << to_string(out_dtype) << ", bias " << to_string(bias_dtype)
              << ", " << n_rows << " rows";
        }
      }
    }
}

/// Runs a chain of matmuls in bfloat16, where the out of each is the x of the next, one by one, then many times from a graph in which
/// they overlap: each must wait for its x, and find the memory of partial sums as at first. `shapes[i + 1].k` is `shapes[i].n`.
inline void check_matmul_chain(const TestBackend& test, std::span<const WeightShape> shapes,
                               std::span<const std::int64_t> rows) {
  const DType dtype = DType::bf16;
  if (!multiplies(test, dtype) || !test.backend.capabilities().rounds_matmul_outputs) return;
  std::mt19937 random(3);
  std::vector<std::unique_ptr<PackedMatrix>> weights;
  for (const WeightShape& of : shapes) {
    auto packed = test.backend.pack_matrix(random_tensor(random, dtype, {of.n, of.k}).view(), dtype, "w");
    ASSERT_TRUE(packed) << packed.error().message;
    weights.push_back(std::move(*packed));
  }
  for (const std::int64_t n_rows : rows) {
    const OnDevice x(test.backend, random_tensor(random, dtype, {n_rows, shapes[0].k}));
    std::vector<std::unique_ptr<OnDevice>> outs;
    for (const WeightShape& of : shapes)
      outs.push_back(std::make_unique<OnDevice>(test.backend, HostTensor(dtype, {n_rows, of.n})));
    const auto multiply_all = [&](bool one_by_one) {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        matmul(test.backend,
               {i == 0 ? ConstTensorView(x.view()) : ConstTensorView(outs[i - 1]->view()), weights[i].get(), outs[i]->view()});
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
      ASSERT_EQ(outs.back()->to_host().bytes, expected.bytes) << test.name << ", " << n_rows << " rows, replay " << replay;
    }
  }
}

}  // namespace baton::testing
