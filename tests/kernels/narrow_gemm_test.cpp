/// Matmuls of 1 to 129 rows by narrow weights, for which CUDA has a GEMM of its own. The other backends run them as well.
#include <cstdint>

#include <gtest/gtest.h>

#include "support/matmul_checks.h"

namespace baton {
namespace {

using testing::WeightShape;

// A last tile without all its outputs; k that ends inside a step, and in the first one; clusters of one block and of eight.
TEST(NarrowGemm, equals_float64_for_every_number_of_rows) {
  constexpr std::int64_t kRows[] = {1, 2, 7, 8, 9, 16, 17, 24, 32, 33, 48, 63, 64, 65, 100, 128, 129};
  for (const WeightShape& shape : {WeightShape{96, 5120}, {257, 2048}, {61, 2888}, {1344, 520}, {5, 8}})
    testing::check_matmul_rows(shape, kRows);
}

// A router's bias may have 16 bits where its logits have 32.
TEST(NarrowGemm, adds_a_bias_of_any_dtype) {
  constexpr std::int64_t kRows[] = {1, 3, 16, 37, 128};
  testing::check_matmul_bias({36, 2880}, kRows);
}

TEST(NarrowGemm, matmuls_after_one_another_and_replayed_have_the_same_bits) {
  constexpr WeightShape kShapes[] = {{256, 1024}, {1024, 256}, {96, 1024}, {2048, 96}, {1024, 2048}};
  constexpr std::int64_t kRows[] = {1, 8, 13, 32, 128};
  for (const testing::TestBackend& test : testing::test_backends()) testing::check_matmul_chain(test, kShapes, kRows);
}

}  // namespace
}  // namespace baton
