/// Matmuls of 1 to 49 rows by weights large enough for the streaming GEMM of CUDA, and after its 32 rows for the chain
/// GEMM (to 48). The other backends run them as well.
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

/// Weights [n, k] of at least 4 stages (64 x 128) for each of up to 132 multiprocessors.
struct WeightShape {
  std::int64_t n = 0;
  std::int64_t k = 0;
};

bool multiplies(const TestBackend& test, DType dtype) {
  const BackendCapabilities capabilities = test.backend.capabilities();
  return dtype == DType::bf16 ? capabilities.has_bf16_matmul : capabilities.has_f16_matmul;
}

/// All ones: NaN in every float dtype.
HostTensor poisoned(DType dtype, std::int64_t n_rows, std::int64_t n) {
  HostTensor out(dtype, {n_rows, n});
  std::memset(out.bytes.data(), 0xff, out.bytes.size());
  return out;
}

struct Case {
  HostTensor weight;
  HostTensor x;                  ///< [49, k]
  std::vector<double> expected;  ///< [49, n]
};

/// Compares matmuls of the first rows of x with float64, and sees that nothing is written after the last row of out.
void check_rows(const TestBackend& test, const Case& of) {
  const DType dtype = of.weight.dtype;
  const std::int64_t n = of.weight.shape[0];
  const std::int64_t k = of.weight.shape[1];
  const auto packed = test.backend.pack_matrix(of.weight.view(), dtype, "w");
  ASSERT_TRUE(packed) << packed.error().message;
  for (const std::int64_t rows : {1, 2, 7, 8, 9, 16, 17, 24, 31, 32, 33, 40, 47, 48, 49}) {
    SCOPED_TRACE(test.name + ", " + std::string(to_string(dtype)) + ", " + std::to_string(rows) + " rows, " +
                 std::to_string(n) + " x " + std::to_string(k));
    const OnDevice x(test.backend, first_rows(of.x, rows));
    const std::vector<double> expected(of.expected.begin(), of.expected.begin() + rows * n);
    const double sums = 4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k));
    for (const DType out_dtype : {DType::f32, dtype}) {
      if (out_dtype != DType::f32 && !test.backend.capabilities().rounds_matmul_outputs) continue;
      const OnDevice out(test.backend, poisoned(out_dtype, rows + 1, n));
      matmul(test.backend, {x.view(), packed->get(), out.view().rows(0, rows)});
      const HostTensor got = out.to_host();
      EXPECT_LE(testing::relative_error(first_rows(got, rows), expected),
                sums + (out_dtype == DType::f32 ? 0 : testing::epsilon(out_dtype)));
      const HostTensor untouched = poisoned(out_dtype, 1, n);
      EXPECT_EQ(std::memcmp(got.view().rows(rows, rows + 1).data, untouched.bytes.data(), untouched.bytes.size()), 0);
    }
  }
}

// Tiles of one block and of many; a tile of one stage, of few, and of more than a block's run; a last stage that is not whole.
TEST(StreamGemm, equals_float64_for_every_number_of_rows) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const WeightShape& shape : {WeightShape{4224, 1024}, {34048, 128}, {128, 33792}, {1088, 4096}, {1536, 2888}}) {
      std::mt19937 random(1);
      Case of{random_tensor(random, dtype, {shape.n, shape.k}), random_tensor(random, dtype, {49, shape.k}), {}};
      for (const TestBackend& test : test_backends()) {
        if (!multiplies(test, dtype)) continue;
        if (of.expected.empty()) of.expected = matmul_reference(of.x, of.weight);
        check_rows(test, of);
      }
    }
}

/// Compares matmuls with a bias of out's dtype.
void check_bias(const WeightShape& of) {
  for (const TestBackend& test : test_backends()) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      if (!multiplies(test, dtype)) continue;
      std::mt19937 random(2);
      const auto [n, k] = of;
      const HostTensor weight = random_tensor(random, dtype, {n, k});
      const auto packed = test.backend.pack_matrix(weight.view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      for (const DType out_dtype : {DType::f32, dtype}) {
        if (out_dtype != DType::f32 && !test.backend.capabilities().rounds_matmul_outputs) continue;
        const HostTensor bias = random_tensor(random, out_dtype, {n});
        for (const std::int64_t rows : {1, 3, 5, 16, 29, 37, 48}) {
          const HostTensor x = random_tensor(random, dtype, {rows, k});
          std::vector<double> expected = matmul_reference(x, weight);
          for (std::int64_t i = 0; i < rows * n; ++i) expected[static_cast<std::size_t>(i)] += bias.at(i % n);
          const OnDevice out(test.backend, poisoned(out_dtype, rows, n));
          matmul(test.backend,
                 {OnDevice(test.backend, x).view(), packed->get(), out.view(), OnDevice(test.backend, bias).view()});
          EXPECT_LE(testing::relative_error(out.to_host(), expected),
                    4 * testing::epsilon(DType::f32) * std::sqrt(static_cast<double>(k)) +
                        (out_dtype == DType::f32 ? 0 : testing::epsilon(out_dtype)))
              << test.name << ' ' << to_string(dtype) << " to " << to_string(out_dtype) << ", " << rows << " rows";
        }
      }
    }
  }
}

TEST(StreamGemm, adds_the_bias) { check_bias({4224, 1024}); }

// Matmuls of several shapes and widths share the memory of partial sums and overlap. Each must find it as at first.
TEST(StreamGemm, matmuls_after_one_another_and_replayed_have_the_same_bits) {
  for (const TestBackend& test : test_backends()) {
    const DType dtype = DType::bf16;
    if (!multiplies(test, dtype) || !test.backend.capabilities().rounds_matmul_outputs) continue;
    std::mt19937 random(3);
    // A chain of matmuls: the out of each is the x of the next.
    const std::vector<WeightShape> shapes{{1152, 4096}, {4224, 1152}, {1024, 4224}, {4224, 1024}, {4096, 4224}};
    std::vector<std::unique_ptr<PackedMatrix>> weights;
    for (const WeightShape& of : shapes) {
      auto packed = test.backend.pack_matrix(random_tensor(random, dtype, {of.n, of.k}).view(), dtype, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      weights.push_back(std::move(*packed));
    }
    for (const std::int64_t rows : {1, 8, 13, 32, 45}) {
      const OnDevice x(test.backend, random_tensor(random, dtype, {rows, shapes[0].k}));
      std::vector<std::unique_ptr<OnDevice>> outs;
      for (const WeightShape& of : shapes)
        outs.push_back(std::make_unique<OnDevice>(test.backend, poisoned(dtype, rows, of.n)));
      const auto chain = [&] {
        for (std::size_t i = 0; i < shapes.size(); ++i)
          matmul(test.backend, {i == 0 ? ConstTensorView(x.view()) : ConstTensorView(outs[i - 1]->view()), weights[i].get(),
                                outs[i]->view()});
      };
      chain();
      const HostTensor expected = outs.back()->to_host();
      const auto graph = test.backend.capture([&] {
        for (int i = 0; i < 4; ++i) chain();
      });
      ASSERT_TRUE(graph) << graph.error().message;
      for (int replay = 0; replay < 50; ++replay) {
        (*graph)->replay();
        ASSERT_EQ(outs.back()->to_host().bytes, expected.bytes) << test.name << ", " << rows << " rows, replay " << replay;
      }
    }
  }
}

// A matmul on CUDA may start before the norm or activation before it does, and reads weights meanwhile.
TEST(StreamGemm, between_norms_and_activations_has_the_bits_of_operations_one_by_one) {
  for (const TestBackend& test : test_backends()) {
    const DType dtype = DType::bf16;
    if (!multiplies(test, dtype) || !test.backend.capabilities().rounds_matmul_outputs) continue;
    std::mt19937 random(4);
    const std::int64_t d = 1024;
    const std::int64_t d_ff = 4224;
    const auto up = test.backend.pack_matrix(random_tensor(random, dtype, {2 * d_ff, d}).view(), dtype, "up");
    const auto down = test.backend.pack_matrix(random_tensor(random, dtype, {d, d_ff}).view(), dtype, "down");
    ASSERT_TRUE(up && down);
    const OnDevice norm_weight(test.backend, random_tensor(random, DType::f32, {d}));
    for (const std::int64_t rows : {1, 9, 32}) {
      const OnDevice table(test.backend, random_tensor(random, dtype, {rows, d}));
      HostTensor ids(DType::i32, {rows});
      for (std::int32_t i = 0; i < rows; ++i) std::memcpy(ids.bytes.data() + 4 * i, &i, 4);
      const OnDevice token_ids(test.backend, ids);
      const OnDevice x(test.backend, poisoned(DType::f32, rows, d));
      const OnDevice normed(test.backend, poisoned(dtype, rows, d));
      const OnDevice gate_up(test.backend, poisoned(dtype, rows, 2 * d_ff));
      const OnDevice activated(test.backend, poisoned(dtype, rows, d_ff));
      const OnDevice delta(test.backend, poisoned(dtype, rows, d));
      const auto layers = [&](bool one_by_one) {
        const auto end_operation = [&] {
          if (one_by_one) test.backend.synchronize();
        };
        embedding(test.backend, {x.view(), table.view(), token_ids.view()});
        for (int layer = 0; layer < 4; ++layer) {
          end_operation();
          rms_norm(test.backend, {x.view(), layer == 0 ? Deltas{} : Deltas{delta.view(), {}, 0.5f, {}}, norm_weight.view(),
                                  normed.view(), 1e-5f});
          end_operation();
          matmul(test.backend, {normed.view(), up->get(), gate_up.view()});
          end_operation();
          gated_activation(test.backend, {gate_up.view(), activated.view(), GateKind::silu});
          end_operation();
          matmul(test.backend, {activated.view(), down->get(), delta.view()});
        }
      };
      layers(/*one_by_one=*/true);
      const HostTensor expected_delta = delta.to_host();
      const HostTensor expected_x = x.to_host();
      const auto graph = test.backend.capture([&] { layers(/*one_by_one=*/false); });
      ASSERT_TRUE(graph) << graph.error().message;
      for (int replay = 0; replay < 50; ++replay) {
        (*graph)->replay();
        ASSERT_EQ(delta.to_host().bytes, expected_delta.bytes) << test.name << ", " << rows << " rows, replay " << replay;
        ASSERT_EQ(x.to_host().bytes, expected_x.bytes) << test.name << ", " << rows << " rows, replay " << replay;
      }
    }
  }
}

}  // namespace
}  // namespace baton
