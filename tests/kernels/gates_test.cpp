/// gated_norm and sigmoid_gate compared with their formulas in float64, on every backend that has recurrent layers.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/on_device.h"
#include "support/recording_backend.h"
#include "support/state_runs.h"

namespace baton::testing {
namespace {

double silu_of(double x) { return x / (1 + std::exp(-x)); }

TEST(GatedNorm, equals_its_formula) {
  for (const TestBackend& test : recurrent_backends())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const std::int64_t n_rows : {0, 1, 9})
        for (const auto& [n_heads, d, first, n_more] :
             {std::tuple<int, int, int, int>{1, 1, 0, 0}, {3, 16, 0, 0}, {2, 80, 7, 5}, {8, 128, 512, 0}}) {
          SCOPED_TRACE(test.name + " " + std::string(to_string(dtype)) + " " + std::to_string(d));
          std::mt19937 random(31);
          const std::int64_t width = first + n_heads * d + n_more;
          const HostTensor x = random_tensor(random, dtype, {n_rows, n_heads, d});
          const HostTensor gate = random_tensor(random, dtype, {n_rows, width});
          const HostTensor weight = random_tensor(random, DType::f32, {d});
          std::vector<double> expected;
          for (std::int64_t head = 0; head < n_rows * n_heads; ++head) {
            double squares = 0;
            for (std::int64_t i = 0; i < d; ++i) squares += std::pow(x.at(head * d + i), 2);
            for (std::int64_t i = 0; i < d; ++i)
              expected.push_back(x.at(head * d + i) / std::sqrt(squares / d + 1e-3) * weight.at(i) *
                                 silu_of(gate.at(head / n_heads * width + first + head % n_heads * d + i)));
          }
          const OnDevice in(test.backend, x), gates(test.backend, gate), weights(test.backend, weight),
              out(test.backend, HostTensor(dtype, x.shape));
          gated_norm(test.backend, {in.view(), gates.view(), first, weights.view(), out.view(), 1e-3f});
          EXPECT_LE(relative_error(out.to_host(), expected), 4 * epsilon(dtype));
          gated_norm(test.backend, {in.view(), gates.view(), first, weights.view(), in.view(), 1e-3f});
          EXPECT_EQ(in.to_host().bytes, out.to_host().bytes) << "in place";
        }
}

TEST(GatedNorm, may_come_after_the_gate_with_weights_for_each_head) {
  for (const TestBackend& test : recurrent_backends(&BackendCapabilities::has_mamba2))
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const auto& [n_heads, d, first] : {std::tuple<int, int, int>{1, 48, 0}, {8, 32, 0}, {2, 512, 3}}) {
        SCOPED_TRACE(test.name + " " + std::string(to_string(dtype)) + " " + std::to_string(d));
        std::mt19937 random(33);
        const std::int64_t n_rows = 9;
        const std::int64_t width = first + n_heads * d + 2;
        const HostTensor x = random_tensor(random, dtype, {n_rows, n_heads, d});
        const HostTensor gate = random_tensor(random, dtype, {n_rows, width});
        const HostTensor weight = random_tensor(random, DType::f32, {n_heads * d});
        std::vector<double> expected;
        for (std::int64_t head = 0; head < n_rows * n_heads; ++head) {
          std::vector<double> products;
          double squares = 0;
          for (std::int64_t i = 0; i < d; ++i) {
            const double g = gate.at(head / n_heads * width + first + head % n_heads * d + i);
            products.push_back(x.at(head * d + i) * silu_of(g));
            squares += products.back() * products.back();
          }
          for (std::int64_t i = 0; i < d; ++i)
            expected.push_back(products[static_cast<std::size_t>(i)] / std::sqrt(squares / d + 1e-3) *
                               weight.at(head % n_heads * d + i));
        }
        const OnDevice in(test.backend, x), gates(test.backend, gate), weights(test.backend, weight),
            out(test.backend, HostTensor(dtype, x.shape));
        GatedNormArgs args{in.view(), gates.view(), first, weights.view(), out.view(), 1e-3f, GatedNormOrder::gate_first};
        gated_norm(test.backend, args);
        EXPECT_LE(relative_error(out.to_host(), expected), 4 * epsilon(dtype));
        args.out = in.view();
        gated_norm(test.backend, args);
        EXPECT_EQ(in.to_host().bytes, out.to_host().bytes) << "in place";
      }
}

TEST(SigmoidGate, equals_its_formula) {
  for (const TestBackend& test : recurrent_backends())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const std::int64_t n_rows : {0, 1, 9})
        for (const std::int64_t n : {1, 15, 16, 33, 4096}) {
          SCOPED_TRACE(test.name + " " + std::string(to_string(dtype)) + " " + std::to_string(n));
          std::mt19937 random(32);
          const HostTensor x = random_tensor(random, dtype, {n_rows, n});
          const HostTensor gate = random_tensor(random, dtype, {n_rows, n});
          std::vector<double> expected;
          for (std::int64_t i = 0; i < n_rows * n; ++i) expected.push_back(x.at(i) / (1 + std::exp(-gate.at(i))));
          const OnDevice in(test.backend, x), gates(test.backend, gate), out(test.backend, HostTensor(dtype, x.shape));
          sigmoid_gate(test.backend, {in.view(), gates.view(), out.view()});
          EXPECT_LE(relative_error(out.to_host(), expected), 4 * epsilon(dtype));
          sigmoid_gate(test.backend, {in.view(), gates.view(), in.view()});
          EXPECT_EQ(in.to_host().bytes, out.to_host().bytes) << "in place";
        }
}

TEST(SigmoidGate, is_a_number_for_gates_of_any_size) {
  for (const TestBackend& test : recurrent_backends()) {
    SCOPED_TRACE(test.name);
    HostTensor x(DType::f32, {1, 32});
    HostTensor gate(DType::f32, {1, 32});
    for (std::int64_t i = 0; i < 32; ++i) {
      x.set(i, 2);
      gate.set(i, i % 2 == 0 ? 1e30f : -1e30f);
    }
    const OnDevice in(test.backend, x), gates(test.backend, gate);
    sigmoid_gate(test.backend, {in.view(), gates.view(), in.view()});
    const HostTensor got = in.to_host();
    for (std::int64_t i = 0; i < 32; ++i) EXPECT_NEAR(got.at(i), i % 2 == 0 ? 2 : 0, 1e-30) << i;
  }
}

TEST(GatesDeathTest, gates_must_have_the_rows_and_columns_of_what_they_multiply) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 2, 8});
  HostTensor gate(DType::f32, {3, 20});
  HostTensor weight(DType::f32, {8});
  HostTensor out(DType::f32, {3, 2, 8});
  EXPECT_DEATH(gated_norm(backend, {x.view(), gate.view(), 5, weight.view(), out.view()}), "too few columns");
  EXPECT_DEATH(gated_norm(backend, {x.view(), gate.view().rows(0, 2), 0, weight.view(), out.view()}), "other rows than x");
  EXPECT_DEATH(gated_norm(backend, {x.view(), gate.view(), 0, weight.view(), out.view(), -1}), "eps is negative");
  EXPECT_DEATH(gated_norm(backend, {x.view(), gate.view(), 0, x.view().rows(0, 1), out.view()}), "weight has shape");
  const TensorView over{x.bytes.data(), DType::bf16, {3, 2, 8}};
  EXPECT_DEATH(gated_norm(backend, {x.view(), gate.view(), 0, weight.view(), over}), "out overlaps x, and is not x");
  HostTensor flat(DType::f32, {3, 16});
  EXPECT_DEATH(sigmoid_gate(backend, {flat.view(), gate.view(), flat.view()}), "gate has shape .*20.*expected .*16");
  HostTensor other(DType::f32, {3, 16});
  EXPECT_DEATH(sigmoid_gate(backend, {flat.view(), other.view(), other.view()}), "out overlaps the gate");
}

TEST(GatesDeathTest, rows_in_8_bits_are_of_all_heads_and_have_scales) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 2, 8}), gate(DType::f32, {3, 16}), weight(DType::f32, {8}), scales(DType::f32, {3});
  HostTensor f8(DType::f8_e4m3, {3, 16});
  GatedNormArgs args{.x = x.view(), .gate = gate.view(), .weight = weight.view(), .out = f8.view()};
  EXPECT_DEATH(gated_norm(backend, args), "gated_norm out in 8 bits without scales");
  args.out_scales = scales.view();
  args.out.shape = x.shape;
  EXPECT_DEATH(gated_norm(backend, args), "gated_norm out in 8 bits must have a multiple of 16 columns");
  args.out = {f8.bytes.data(), DType::f8_e4m3, {1, 16}};
  args.out_scales = scales.view().rows(0, 1);
  EXPECT_DEATH(gated_norm(backend, args), "gated_norm out has shape .*1, 16.*expected .*3, 16");
  args.out = {x.bytes.data(), DType::f8_e4m3, {3, 16}};
  args.out_scales = scales.view();
  EXPECT_DEATH(gated_norm(backend, args), "out overlaps x, and is not x");
  EXPECT_DEATH(sigmoid_gate(backend, {gate.view(), gate.view(), f8.view()}), "sigmoid_gate out in 8 bits without scales");
}

}  // namespace
}  // namespace baton::testing
