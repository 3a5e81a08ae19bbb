/// Matmuls of 1 to 49 rows by weights large enough for the streaming GEMM of CUDA, and after its 32 rows for the chain
/// GEMM (to 48). The other backends run them as well.
#include <cstdint>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/matmul_checks.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::OnDevice;
using testing::random_tensor;
using testing::test_backends;
using testing::TestBackend;
using testing::WeightShape;

// Weights have at least 4 stages (64 x 128) for each of up to 132 multiprocessors. Tiles of one block and of many; a tile of one stage,
// of few, and of more than a block's run; a last stage that is not whole.
TEST(StreamGemm, equals_float64_for_every_number_of_rows) {
  constexpr std::int64_t kRows[] = {1, 2, 7, 8, 9, 16, 17, 24, 31, 32, 33, 40, 47, 48, 49};
  for (const WeightShape& shape : {WeightShape{4224, 1024}, {34048, 128}, {128, 33792}, {1088, 4096}, {1536, 2888}})
    testing::check_matmul_rows(shape, kRows);
}

TEST(StreamGemm, adds_the_bias) {
  constexpr std::int64_t kRows[] = {1, 3, 5, 16, 29, 37, 48};
  testing::check_matmul_bias({4224, 1024}, kRows);
}

// Matmuls of several shapes and widths share the memory of partial sums.
TEST(StreamGemm, matmuls_after_one_another_and_replayed_have_the_same_bits) {
  constexpr WeightShape kShapes[] = {{1152, 4096}, {4224, 1152}, {1024, 4224}, {4224, 1024}, {4096, 4224}};
  constexpr std::int64_t kRows[] = {1, 8, 13, 32, 45};
  for (const TestBackend& test : test_backends()) testing::check_matmul_chain(test, kShapes, kRows);
}

// A matmul on CUDA may start before the norm or activation before it does, and reads weights meanwhile.
TEST(StreamGemm, between_norms_and_activations_has_the_bits_of_operations_one_by_one) {
  for (const TestBackend& test : test_backends()) {
    const DType dtype = DType::bf16;
    if (!testing::multiplies(test, dtype) || !test.backend.capabilities().rounds_matmul_outputs) continue;
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
      const OnDevice x(test.backend, HostTensor(DType::f32, {rows, d}));
      const OnDevice normed(test.backend, HostTensor(dtype, {rows, d}));
      const OnDevice gate_up(test.backend, HostTensor(dtype, {rows, 2 * d_ff}));
      const OnDevice activated(test.backend, HostTensor(dtype, {rows, d_ff}));
      const OnDevice delta(test.backend, HostTensor(dtype, {rows, d}));
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
