/// gated_matmul has the bits of matmul and gated_activation, on every backend. The shapes are large enough for the broad and the chain
/// GEMM of CUDA, which do both in one pass.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/matmul_checks.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::multiplies;
using testing::OnDevice;
using testing::test_backends;
using testing::TestBackend;
using testing::WeightShape;

constexpr GateKind kGates[] = {GateKind::silu, GateKind::gelu, GateKind::gelu_tanh, GateKind::clamped_silu};
constexpr std::int64_t kRows[] = {1, 8, 9, 16, 17, 32, 33, 48, 64, 65, 96, 128, 129};
constexpr std::int64_t kMostRows = 129;

/// Multiples of 1/64 between -2 and 2, times `scale`.
HostTensor numbers(std::uint64_t seed, DType dtype, const Shape& shape, float scale) {
  HostTensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < shape.n_elements(); ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    tensor.set(i, static_cast<float>(static_cast<std::int8_t>(seed >> 56)) / 64 * scale);
  }
  return tensor;
}

/// So that gates are between -6 and 6 or so. Some rows of gate and of up have a NaN or an infinity.
HostTensor gate_up_weight(DType dtype, const WeightShape& of) {
  HostTensor weight = numbers(1, dtype, {of.n, of.k}, 1.5f / std::sqrt(static_cast<float>(of.k)));
  const std::int64_t half = of.n / 2;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  weight.set(3 * of.k + 5, NAN);
  weight.set((half - 1) * of.k, kInfinity);
  weight.set((half + 9) * of.k + 1, -kInfinity);
  weight.set((of.n - 2) * of.k + of.k - 1, NAN);
  return weight;
}

GatedActivationArgs args_of(const TensorView& gate_up, const TensorView& out, GateKind kind) {
  return {gate_up, out, kind, {}, 1.702f, 7.0f};
}

/// How many matmuls a backend has run in one pass with the activation.
struct Passes {
  int n = 0;
  int n_single = 0;
};

void check_shape(const TestBackend& test, DType dtype, const WeightShape& of, std::span<const std::int64_t> all_rows,
                 Passes& passes) {
  Backend& backend = test.backend;
  const auto packed = backend.pack_matrix(gate_up_weight(dtype, of).view(), dtype, "w");
  ASSERT_TRUE(packed) << packed.error().message;
  const OnDevice all_x(backend, numbers(2, dtype, {kMostRows, of.k}, 1));
  const DType made = backend.capabilities().rounds_matmul_outputs ? dtype : DType::f32;
  for (const std::int64_t rows : all_rows) {
    const ConstTensorView x = all_x.view().rows(0, rows);
    const HostTensor untouched(made, {rows, of.n});
    const OnDevice gate_up(backend, untouched);
    matmul(backend, {x, packed->get(), gate_up.view()});
    for (const GateKind kind : kGates) {
      const OnDevice expected(backend, HostTensor(dtype, {rows + 1, of.n / 2}));  // all ones: NaN
      gated_activation(backend, args_of(gate_up.view(), expected.view().rows(0, rows), kind));
      const OnDevice room(backend, untouched);
      const OnDevice got(backend, HostTensor(dtype, {rows + 1, of.n / 2}));
      const GatedMatmulArgs args{{x, packed->get(), room.view()}, args_of(room.view(), got.view().rows(0, rows), kind)};
      for (int i = 0; i < 2; ++i) gated_matmul(backend, args);
      EXPECT_TRUE(got.to_host().bytes == expected.to_host().bytes)
          << test.name << ", " << to_string(dtype) << ", " << rows << " rows, " << of.n << " x " << of.k << ", kind "
          << static_cast<int>(kind);
      ++passes.n;
      passes.n_single += room.to_host().bytes == untouched.bytes;
    }
  }
}

// On CUDA: for the broad GEMM tiles of several widths, the last with rows of the weight missing, also of 168 rows, which are an odd
// number of groups of eight, and k in two parts; fewer rows are the streaming GEMM's, which has no gate.
TEST(GatedMatmul, has_the_bits_of_matmul_and_activation) {
  constexpr WeightShape kLarge[] = {{4224, 1024},           {34048, 128},  {128, 33792}, {7168, 4096}, {80 * 66 - 24, 4104},
                                    {112 * 132 - 40, 1024}, {22016, 1024}, {29528, 328}, {14336, 2048}};
  constexpr WeightShape kSmall[] = {{192, 64}, {48, 40}};
  constexpr std::int64_t kFewRows[] = {1, 17, 129};
  for (const TestBackend& test : test_backends())
    for (const DType dtype : {DType::bf16, DType::f16}) {
      if (!multiplies(test, dtype)) continue;
      Passes passes;
      for (const WeightShape& of : kSmall) check_shape(test, dtype, of, kFewRows, passes);
      if (test.is_cuda())
        for (const WeightShape& of : kLarge) check_shape(test, dtype, of, kRows, passes);
      std::printf("%s, %s: %d of %d in one pass\n", test.name.c_str(), std::string(to_string(dtype)).c_str(), passes.n_single,
                  passes.n);
    }
}

TEST(GatedMatmul, adds_the_bias_before_the_activation) {
  const WeightShape of{4224, 1024};
  for (const TestBackend& test : test_backends())
    for (const DType dtype : {DType::bf16, DType::f16}) {
      if (!multiplies(test, dtype) || !test.backend.capabilities().rounds_matmul_outputs) continue;
      const auto packed = test.backend.pack_matrix(gate_up_weight(dtype, of).view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      const OnDevice bias(test.backend, numbers(3, dtype, {of.n}, 1));
      for (const std::int64_t rows : {1, 20, 64}) {
        const OnDevice x(test.backend, numbers(4, dtype, {rows, of.k}, 1));
        const OnDevice gate_up(test.backend, HostTensor(dtype, {rows, of.n}));
        const OnDevice expected(test.backend, HostTensor(dtype, {rows, of.n / 2}));
        const OnDevice got(test.backend, HostTensor(dtype, {rows, of.n / 2}));
        matmul(test.backend, {x.view(), packed->get(), gate_up.view(), bias.view()});
        gated_activation(test.backend, {gate_up.view(), expected.view()});
        gated_matmul(test.backend, {{x.view(), packed->get(), gate_up.view(), bias.view()}, {gate_up.view(), got.view()}});
        EXPECT_TRUE(got.to_host().bytes == expected.to_host().bytes) << test.name << ", " << rows << " rows";
      }
    }
}

// On CUDA a matmul may start before the operation before it ends, and reads weights meanwhile.
TEST(GatedMatmul, in_a_captured_chain_has_the_bits_of_operations_one_by_one) {
  for (const TestBackend& test : test_backends()) {
    const DType dtype = DType::bf16;
    if (!multiplies(test, dtype) || !test.backend.capabilities().rounds_matmul_outputs) continue;
    const std::int64_t d = 1024;
    const std::int64_t d_ff = 7392;
    const float scale = 1.5f / std::sqrt(static_cast<float>(d));
    const auto up = test.backend.pack_matrix(numbers(5, dtype, {2 * d_ff, d}, scale).view(), dtype, "up");
    const auto down = test.backend.pack_matrix(numbers(6, dtype, {d, d_ff}, scale).view(), dtype, "down");
    ASSERT_TRUE(up && down);
    for (const std::int64_t rows : {1, 9, 32, 64, 128}) {
      const OnDevice first(test.backend, numbers(7, dtype, {rows, d}, 1));
      const OnDevice gate_up(test.backend, HostTensor(dtype, {rows, 2 * d_ff}));
      const OnDevice activated(test.backend, HostTensor(dtype, {rows, d_ff}));
      const OnDevice x(test.backend, HostTensor(dtype, {rows, d}));
      const auto layers = [&](bool one_by_one) {
        for (int layer = 0; layer < 4; ++layer) {
          const MatmulArgs of_up{layer == 0 ? first.view() : x.view(), up->get(), gate_up.view()};
          const GatedActivationArgs of_gate{gate_up.view(), activated.view()};
          if (one_by_one) {
            matmul(test.backend, of_up);
            test.backend.synchronize();
            gated_activation(test.backend, of_gate);
            test.backend.synchronize();
          } else {
            gated_matmul(test.backend, {of_up, of_gate});
          }
          matmul(test.backend, {activated.view(), down->get(), x.view()});
          if (one_by_one) test.backend.synchronize();
        }
      };
      layers(/*one_by_one=*/true);
      const HostTensor expected = x.to_host();
      const auto graph = test.backend.capture([&] { layers(/*one_by_one=*/false); });
      ASSERT_TRUE(graph) << graph.error().message;
      for (int replay = 0; replay < 30; ++replay) {
        (*graph)->replay();
        ASSERT_TRUE(x.to_host().bytes == expected.bytes) << test.name << ", " << rows << " rows, replay " << replay;
      }
    }
  }
}

}  // namespace
}  // namespace baton
