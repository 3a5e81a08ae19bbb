/// Activations of feed-forward blocks compared with their formulas in float64, on every backend.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
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

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16};

constexpr ActivationKind kKinds[] = {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu_squared};

double activation_of(double x, ActivationKind kind) {
  if (kind == ActivationKind::relu_squared) return x < 0 ? 0 : x * x;
  if (kind == ActivationKind::gelu) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

TEST(Activation, equals_the_formula_from_one_end_to_the_other) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(15);
    for (const ActivationKind kind : kKinds)
      for (const DType dtype : kFloats)
        for (const std::int64_t n : {1, 15, 16, 33, 4096}) {
          const HostTensor in = random_tensor(random, dtype, {3, n});
          std::vector<double> expected;
          for (std::int64_t i = 0; i < 3 * n; ++i) expected.push_back(activation_of(in.at(i), kind));
          const OnDevice out(test.backend, HostTensor(dtype, {3, n}));
          activation(test.backend, {OnDevice(test.backend, in).view(), out.view(), kind});
          EXPECT_LE(relative_error(out.to_host(), expected), 4 * testing::epsilon(dtype)) << to_string(dtype) << ' ' << n;
        }
  }
}

// Each element is compared by itself, so that errors of small results are visible beside large ones.
TEST(Activation, is_near_the_formula_in_both_tails) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    HostTensor in(DType::f32, {1, 2001});
    for (std::int64_t i = 0; i < 2001; ++i) in.set(i, static_cast<float>(i - 1000) / 128.0f);  // to 7.8 on both sides
    for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::gelu_tanh}) {
      const OnDevice out(test.backend, HostTensor(DType::f32, {1, 2001}));
      activation(test.backend, {OnDevice(test.backend, in).view(), out.view(), kind});
      const HostTensor got = out.to_host();
      for (std::int64_t i = 0; i < 2001; ++i) {
        const double x = in.at(i);
        const double expected = activation_of(x, kind);
        // exp's argument is rounded before it: an error in proportion to its size.
        EXPECT_NEAR(got.at(i), expected, (8 + 4 * x * x) * testing::epsilon(DType::f32) * std::abs(expected) + 1e-15) << x;
      }
    }
    HostTensor ends(DType::f32, {1, 4});
    for (const auto& [i, x] : {std::pair{0, 1e4f}, {1, -1e4f}, {2, 100.0f}, {3, -100.0f}}) ends.set(i, x);
    for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::gelu_tanh}) {
      const OnDevice out(test.backend, HostTensor(DType::f32, {1, 4}));
      activation(test.backend, {OnDevice(test.backend, ends).view(), out.view(), kind});
      const HostTensor got = out.to_host();
      EXPECT_EQ(got.at(0), 1e4);
      EXPECT_EQ(got.at(2), 100);
      EXPECT_NEAR(got.at(1), 0, 1e-30);
      EXPECT_NEAR(got.at(3), 0, 1e-30);
    }
  }
}

constexpr GateKind kGates[] = {GateKind::silu, GateKind::gelu, GateKind::gelu_tanh, GateKind::clamped_silu};
constexpr float kAlpha = 1.702f;
constexpr float kLimit = 1.5f;  // inside the range of N(0, 1)

double gated(double gate, double up, GateKind kind) {
  switch (kind) {
    case GateKind::silu: return gate / (1 + std::exp(-gate)) * up;
    case GateKind::gelu: return activation_of(gate, ActivationKind::gelu) * up;
    case GateKind::gelu_tanh: return activation_of(gate, ActivationKind::gelu_tanh) * up;
    case GateKind::clamped_silu: {
      const double limit = kLimit;
      const double g = std::min(gate, limit);
      return g / (1 + std::exp(-static_cast<double>(kAlpha) * g)) * (std::clamp(up, -limit, limit) + 1);
    }
  }
  return NAN;
}

GatedActivationArgs args_of(const TensorView& gate_up, const TensorView& out, GateKind kind) {
  return {gate_up, out, kind, {}, kAlpha, kLimit};
}

TEST(GatedActivation, equals_the_formula_also_for_large_arguments) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(3);
    for (const GateKind kind : kGates)
      for (const DType dtype : kFloats)
        for (const DType out_dtype : {dtype, DType::bf16})
          for (const std::int64_t n : {1, 15, 16, 33, 1024}) {
            HostTensor gate_up = random_tensor(random, dtype, {5, 2 * n});
            gate_up.set(0, 100.0f);
            gate_up.set(2 * n, -100.0f);
            std::vector<double> expected;
            for (std::int64_t r = 0; r < 5; ++r)
              for (std::int64_t i = 0; i < n; ++i)
                expected.push_back(gated(gate_up.at(r * 2 * n + i), gate_up.at(r * 2 * n + n + i), kind));
            const OnDevice out(test.backend, HostTensor(out_dtype, {5, n}));
            gated_activation(test.backend, args_of(OnDevice(test.backend, gate_up).view(), out.view(), kind));
            EXPECT_LE(relative_error(out.to_host(), expected), 4 * testing::epsilon(out_dtype))
                << to_string(dtype) << " to " << to_string(out_dtype) << ' ' << n << ", kind " << static_cast<int>(kind);
          }
  }
}

// Of so many elements that a CUDA device reads them in its widest accesses; the last block of a row is not full.
TEST(GatedActivation, a_row_is_the_same_bits_in_any_company) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(8);
    constexpr std::int64_t kRows = 800;
    constexpr std::int64_t kWidth = 4104;
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const OnDevice gate_up(test.backend, random_tensor(random, dtype, {kRows, 2 * kWidth}));
      for (const GateKind kind : kGates) {
        const OnDevice all(test.backend, HostTensor(dtype, {kRows, kWidth}));
        gated_activation(test.backend, args_of(gate_up.view(), all.view(), kind));
        const HostTensor together = all.to_host();
        for (const std::int64_t row : {0, 399, 799}) {
          const OnDevice one(test.backend, HostTensor(dtype, {1, kWidth}));
          gated_activation(test.backend, args_of(gate_up.view().rows(row, row + 1), one.view(), kind));
          const HostTensor alone = one.to_host();
          EXPECT_EQ(std::memcmp(alone.bytes.data(), together.view().rows(row, row + 1).data, alone.bytes.size()), 0)
              << to_string(dtype) << ", kind " << static_cast<int>(kind) << ", row " << row;
        }
      }
    }
  }
}

TEST(GatedActivation, no_rows_are_no_work) {
  for (const TestBackend& test : test_backends()) {
    const OnDevice gate_up(test.backend, HostTensor(DType::f32, {0, 8}));
    const OnDevice out(test.backend, HostTensor(DType::f32, {0, 4}));
    for (const GateKind kind : kGates) gated_activation(test.backend, args_of(gate_up.view(), out.view(), kind));
    EXPECT_TRUE(out.to_host().bytes.empty()) << test.name;
  }
}

// The CPU's exp is defined for what f32 can hold; far beyond that the gate is closed all the same.
TEST(GatedActivation, is_zero_far_below_zero) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    HostTensor gate_up(DType::f32, {1, 2 * 17});
    for (std::int64_t i = 0; i < 17; ++i) {
      gate_up.set(i, -89.0f * std::pow(2.0f, static_cast<float>(i)));
      gate_up.set(17 + i, 1);
    }
    for (const GateKind kind : kGates) {
      const OnDevice out(test.backend, HostTensor(DType::f32, {1, 17}));
      gated_activation(test.backend, args_of(OnDevice(test.backend, gate_up).view(), out.view(), kind));
      const HostTensor got = out.to_host();
      for (std::int64_t i = 0; i < 17; ++i) EXPECT_NEAR(got.at(i), 0, 1e-30) << gate_up.at(i);
    }
  }
}

TEST(GatedActivation, a_clamp_hides_no_nan_and_bounds_infinities) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    constexpr std::int64_t n = 19;  // whole vectors and a rest
    for (const std::int64_t at : {std::int64_t{0}, n - 1}) {
      HostTensor gate_up(DType::f32, {2, 2 * n});
      for (std::int64_t i = 0; i < 4 * n; ++i) gate_up.set(i, 0.5f);
      gate_up.set(at, NAN);
      gate_up.set(3 * n + at, NAN);
      gate_up.set(1, INFINITY);
      gate_up.set(2 * n + 1, -INFINITY);
      gate_up.set(n + 2, -INFINITY);
      gate_up.set(3 * n + 2, INFINITY);
      const OnDevice out(test.backend, HostTensor(DType::f32, {2, n}));
      gated_activation(test.backend, args_of(OnDevice(test.backend, gate_up).view(), out.view(), GateKind::clamped_silu));
      const HostTensor got = out.to_host();
      EXPECT_TRUE(std::isnan(got.at(at)) && std::isnan(got.at(n + at)));
      EXPECT_NEAR(got.at(1), gated(kLimit, 0.5, GateKind::clamped_silu), 1e-6);
      EXPECT_NEAR(got.at(2), gated(0.5, -static_cast<double>(kLimit), GateKind::clamped_silu), 1e-6);
      EXPECT_NEAR(got.at(n + 2), gated(0.5, kLimit, GateKind::clamped_silu), 1e-6);
    }
  }
}

}  // namespace
}  // namespace baton
