/// Matmuls of 33 to 128 rows by weights large enough for the broad GEMM of CUDA. The other backends run the small ones as well.
///
/// Operands are multiples of 1/128 between -1 and 1. Their sums are multiples of 2^-14 and stay below 2^10, so that f32 holds
/// them in any order, and the reference is exact in integers.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/cuda/gemm/broad_layout.h"
#include "support/host_tensor.h"
#include "support/matmul_checks.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::multiplies;
using testing::multiply;
using testing::OnDevice;
using testing::test_backends;
using testing::TestBackend;
using testing::WeightShape;

constexpr std::int64_t kRows[] = {33, 48, 63, 64, 65, 96, 107, 128};
constexpr std::int64_t kMostRows = 128;
/// Units of the matrix units' last bits, where they drop what is small beside the largest term.
constexpr double kMostError = 0x1p-12;

/// For each width of tiles one that 132 multiprocessors have at once, the last with rows of the weight missing, and k that ends
/// inside a stage; the same with two parts of k; and weights of models.
std::vector<WeightShape> weight_shapes() {
  std::vector<WeightShape> shapes;
  for (const int width : cuda::kBroadWidths) shapes.push_back({width * 132 - 40, 328});
  for (const int width : cuda::kBroadWidths)
    if (width <= 80) shapes.push_back({width * 66 - 24, 4104});
  for (const WeightShape& shape : {WeightShape{5312, 10752},
                                   {6400, 13312},
                                   {7424, 15360},
                                   {4096, 4096},
                                   {6144, 4096},
                                   {4096, 11008},
                                   {5120, 5120},
                                   {5120, 17408},
                                   {3072, 8192},
                                   {9216, 3072},
                                   {11264, 2048},
                                   {6400, 2048},
                                   {14848, 3072},
                                   {7512, 16384}})
    shapes.push_back(shape);
  return shapes;
}

/// Numerators of a matrix.
struct Numbers {
  Shape shape;
  std::vector<std::int8_t> numbers;

  Numbers(std::uint64_t seed, Shape sizes) : shape(sizes), numbers(static_cast<std::size_t>(sizes.n_elements())) {
    for (std::int8_t& number : numbers) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      number = static_cast<std::int8_t>(seed >> 56);
    }
  }
  double at(std::int64_t index) const { return numbers[static_cast<std::size_t>(index)] / 128.0; }
  HostTensor as(DType dtype) const {
    HostTensor tensor(dtype, shape);
    visit_float(dtype, [&](auto zero) {
      std::array<decltype(zero), 256> values;
      for (int i = 0; i < 256; ++i)
        values[static_cast<std::size_t>(i)] =
            static_cast<decltype(zero)>(static_cast<float>(static_cast<std::int8_t>(i)) / 128);
      for (std::size_t i = 0; i < numbers.size(); ++i)
        std::memcpy(tensor.bytes.data() + i * sizeof(zero), &values[static_cast<std::uint8_t>(numbers[i])], sizeof(zero));
    });
    return tensor;
  }
};

/// Columns of out that are compared: the first, the last, and some between.
std::vector<std::int64_t> places(std::int64_t n) {
  std::vector<std::int64_t> columns;
  for (std::int64_t i = 0; i < 16; ++i) columns.push_back(i), columns.push_back(n - 1 - i);
  for (std::int64_t i = 0; i < 64; ++i) columns.push_back(i * 1009 % n);
  return columns;
}

/// x W^T in some columns of out: [rows, columns].
std::vector<double> reference(const Numbers& x, const Numbers& weight, const std::vector<std::int64_t>& columns) {
  const std::int64_t k = x.shape[1];
  std::vector<double> out;
  for (std::int64_t row = 0; row < x.shape[0]; ++row)
    for (const std::int64_t column : columns) {
      const std::int8_t* const a = x.numbers.data() + row * k;
      const std::int8_t* const b = weight.numbers.data() + column * k;
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += a[i] * b[i];
      out.push_back(static_cast<double>(sum) / (128 * 128));
    }
  return out;
}

/// Numbers of out that are not those of the f32 sums, rounded. NaN is none of them.
std::int64_t n_wrongly_rounded(const HostTensor& out, const HostTensor& sums) {
  const double epsilon = testing::epsilon(out.dtype);
  std::int64_t n_wrong = 0;
  for (std::int64_t i = 0; i < out.shape.n_elements(); ++i)
    n_wrong += !(std::fabs(out.at(i) - sums.at(i)) <= epsilon / 2 * std::fabs(sums.at(i)));
  return n_wrong;
}

void check_shape(const TestBackend& test, DType dtype, const WeightShape& of) {
  const Numbers weight(1, {of.n, of.k});
  const Numbers x(2, {kMostRows, of.k});
  const std::vector<std::int64_t> columns = places(of.n);
  const std::vector<double> expected = reference(x, weight, columns);
  const auto packed = test.backend.pack_matrix(weight.as(dtype).view(), dtype, "w");
  ASSERT_TRUE(packed) << packed.error().message;
  const OnDevice all_x(test.backend, x.as(dtype));
  for (const std::int64_t rows : kRows) {
    SCOPED_TRACE(test.name + ", " + std::string(to_string(dtype)) + ", " + std::to_string(rows) + " rows, " +
                 std::to_string(of.n) + " x " + std::to_string(of.k));
    const ConstTensorView some_x = all_x.view().rows(0, rows);
    const HostTensor sums = multiply(test.backend, **packed, some_x, DType::f32);
    std::int64_t n_wrong = 0;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const double right = expected[static_cast<std::size_t>(row) * columns.size() + i];
        n_wrong += !(std::fabs(sums.at(row * of.n + columns[i]) - right) <= kMostError);
      }
    EXPECT_EQ(n_wrong, 0);
    EXPECT_EQ(multiply(test.backend, **packed, some_x, DType::f32).bytes, sums.bytes) << "other bits in the second run";
    if (!test.backend.capabilities().rounds_matmul_outputs) continue;
    EXPECT_EQ(n_wrongly_rounded(multiply(test.backend, **packed, some_x, dtype), sums), 0);
  }
}

TEST(BroadGemm, equals_exact_sums_for_numbers_of_rows_around_its_tiles) {
  for (const TestBackend& test : test_backends())
    for (const WeightShape& shape : weight_shapes()) {
      if (!test.is_cuda() && shape.n * shape.k > 4 << 20) continue;
      for (const DType dtype : {DType::bf16, DType::f16})
        if (multiplies(test, dtype) && (dtype == DType::bf16 || shape.k < 4096)) check_shape(test, dtype, shape);
    }
}

TEST(BroadGemm, adds_the_bias) {
  for (const TestBackend& test : test_backends())
    for (const DType dtype : {DType::bf16, DType::f16}) {
      if (!multiplies(test, dtype)) continue;
      for (const WeightShape& of : {WeightShape{6296, 328}, {9240, 264}, {3144, 2056}}) {
        const Numbers weight(3, {of.n, of.k});
        const Numbers x(4, {kMostRows, of.k});
        const Numbers bias(5, {of.n});
        const auto packed = test.backend.pack_matrix(weight.as(dtype).view(), dtype, "w");
        ASSERT_TRUE(packed) << packed.error().message;
        const OnDevice all_x(test.backend, x.as(dtype));
        for (const std::int64_t rows : {37, 64, 101, 128})
          for (const DType out_dtype : {DType::f32, dtype}) {
            if (out_dtype != DType::f32 && !test.backend.capabilities().rounds_matmul_outputs) continue;
            const OnDevice added(test.backend, bias.as(out_dtype));
            const ConstTensorView some_x = all_x.view().rows(0, rows);
            HostTensor sums = multiply(test.backend, **packed, some_x, DType::f32);
            for (std::int64_t i = 0; i < rows * of.n; ++i) sums.set(i, static_cast<float>(sums.at(i) + bias.at(i % of.n)));
            EXPECT_EQ(n_wrongly_rounded(multiply(test.backend, **packed, some_x, out_dtype, added.view()), sums), 0)
                << test.name << ' ' << to_string(dtype) << " to " << to_string(out_dtype) << ", " << rows << " rows, " << of.n
                << " x " << of.k;
          }
      }
    }
}

// Matmuls of several shapes share the memory of partial sums.
TEST(BroadGemm, matmuls_after_one_another_and_replayed_have_the_same_bits) {
  constexpr WeightShape kShapes[] = {{4096, 4096}, {6144, 4096}, {4096, 6144}, {5120, 4096}, {4096, 5120}};
  constexpr std::int64_t kChainRows[] = {40, 64, 90, 128};
  for (const TestBackend& test : test_backends())
    if (test.is_cuda()) testing::check_matmul_chain(test, kShapes, kChainRows);
}

// So that the tests above see every kernel, and sums that are passed on, where a device has 132 multiprocessors.
TEST(BroadGemm, the_tested_shapes_have_every_width_for_few_and_many_rows) {
  std::set<std::pair<int, int>> whole;
  std::set<std::pair<int, int>> cut;
  std::set<std::tuple<int, int, int>> as_m;  // width, parts of k, rows of x that are multiplied
  for (const WeightShape& shape : weight_shapes())
    for (const std::int64_t rows : cuda::kBroadRowSteps) {
      const cuda::BroadMatmul of{rows, shape.n, shape.k};
      const auto layout = cuda::best_broad_layout(of, 132, cuda::kBroadRatesOfH200);
      if (layout && layout->weight_is_m)
        as_m.emplace(layout->width, layout->n_parts, of.tile_rows(*layout));
      else if (layout)
        (layout->n_parts == 1 ? whole : cut).emplace(layout->width, rows > 64);
    }
  for (const int width : cuda::kBroadWidths)
    for (const int is_many : {0, 1}) {
      EXPECT_TRUE(whole.contains({width, is_many})) << width << ' ' << is_many;
      EXPECT_TRUE(width > cuda::kMostCutWidth || cut.contains({width, is_many})) << width << ' ' << is_many;
    }
  for (const int width : cuda::kBroadWidthsAsM)
    for (const int n_parts : {1, 2})
      for (const int rows : {80, 96, 112})
        EXPECT_TRUE(as_m.contains({width, n_parts, rows}) || std::tuple(width, n_parts, rows) == std::tuple(64, 1, 112))
            << width << 'x' << n_parts << ' ' << rows;  // but the one that is never the best
}

}  // namespace
}  // namespace baton
