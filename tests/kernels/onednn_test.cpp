#include "kernels/cpu/gemm/onednn.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "support/host_tensor.h"
#include "support/matmul_reference.h"

namespace baton::cpu {
namespace {

using baton::testing::epsilon;
using baton::testing::HostTensor;
using baton::testing::random_tensor;
using baton::testing::relative_error;

TEST(OneDnn, slices_are_whole_panels_side_by_side_and_enough_for_every_thread) {
  std::mt19937 random(1);
  for (const int n_threads : {1, 2, 5}) {
    const Parallel parallel(n_threads);
    OneDnn onednn(parallel);
    for (const std::int64_t n : {1, 63, 64, 65, 768, 1001, 4096}) {
      SlicedMatrix matrix;
      ASSERT_TRUE(onednn.pack(random_tensor(random, DType::f32, {n, 16}).view(), DType::f32, "w", matrix));
      std::int64_t next = 0;
      for (const WeightSlice& slice : matrix.slices) {
        EXPECT_EQ(slice.first, next);
        EXPECT_GE(slice.n, 1);
        next += slice.n;
        EXPECT_TRUE(next == n || slice.n % kPanelColumns == 0);
      }
      EXPECT_EQ(next, n);
      const auto n_slices = static_cast<std::int64_t>(matrix.slices.size());
      EXPECT_GE(n_slices,
                n_threads == 1 ? 1 : std::min<std::int64_t>(3 * n_threads, std::max<std::int64_t>(1, n / kPanelColumns)));
    }
  }
}

TEST(OneDnn, drops_rows_of_padding_with_any_number_of_threads) {
  std::mt19937 random(2);
  const HostTensor weight = random_tensor(random, DType::f32, {1001, 40});
  const HostTensor x = random_tensor(random, DType::f32, {5, 40});
  const std::vector<double> expected = baton::testing::matmul_reference(x, weight);
  for (const int n_threads : {1, 2, 5}) {
    const Parallel parallel(n_threads);
    OneDnn onednn(parallel);
    SlicedMatrix matrix;
    ASSERT_TRUE(onednn.pack(weight.view(), DType::f32, "w", matrix));
    HostTensor out(DType::f32, {5, 1001});
    onednn.multiply(8, x.view(), matrix, out.view());
    EXPECT_LE(relative_error(out, expected), 4 * epsilon(DType::f32) * std::sqrt(40.0)) << n_threads << " threads";
  }
}

}  // namespace
}  // namespace baton::cpu
