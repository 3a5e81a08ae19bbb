/// The tile GEMM's loops, with emulated tiles on every processor and with real ones on processors with AMX.
#include "kernels/cpu/gemm/tile_gemm.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cpu/gemm/tile_gemm_kernel.h"
#include "support/emulated_tiles.h"
#include "support/host_tensor.h"
#include "support/matmul_reference.h"

namespace baton::cpu {
namespace {

using baton::testing::EmulatedTiles;
using baton::testing::epsilon;
using baton::testing::HostTensor;
using baton::testing::matmul_reference;
using baton::testing::random_tensor;
using baton::testing::relative_error;

struct NamedTileKernel {
  std::string name;
  SkinnyGemmKernel run;
};

std::vector<NamedTileKernel> tile_kernels() {
  std::vector<NamedTileKernel> found{{"emulated", run_tile_gemm<EmulatedTiles>}};
  if (const SkinnyGemmKernel kernel = tile_gemm_kernel(best_cpu_isa(), DType::bf16)) found.push_back({"amx", kernel});
  return found;
}

/// A weight in panels. Memory beyond column n is NaN and must not affect the results.
struct PackedTiles {
  std::vector<std::byte> bytes;
  PanelMatrix panels;
};

PackedTiles pack(const HostTensor& weight) {
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  const std::int64_t n_panels = (n + kPanelColumns - 1) / kPanelColumns;
  PackedTiles packed;
  packed.panels = {nullptr, n, k / 2, k / 2 * kStepBytes, kStepBytes};
  packed.bytes.resize(static_cast<std::size_t>(n_panels * packed.panels.panel_stride), std::byte{0xff});
  packed.panels.data = packed.bytes.data();
  for (std::int64_t column = 0; column < n; ++column)
    for (std::int64_t i = 0; i < k; ++i)
      std::memcpy(packed.bytes.data() + column / kPanelColumns * packed.panels.panel_stride + i / 2 * kStepBytes +
                      column % kPanelColumns * 4 + i % 2 * 2,
                  weight.bytes.data() + (column * k + i) * 2, 2);
  return packed;
}

/// The first `n_rows` rows of x W^T. Rows of out are longer than n; the elements beyond n must stay NaN.
HostTensor run(const NamedTileKernel& kernel, const PanelMatrix& panels, const HostTensor& x, std::int64_t n_rows,
               int n_threads) {
  constexpr std::int64_t kBeyond = 3;
  const std::int64_t stride = panels.n + kBeyond;
  HostTensor wide(DType::f32, {n_rows, stride});
  const SkinnyGemmTask task{panels, x.bytes.data(), x.shape[1] * 2, n_rows, wide.view().elements<float>().data(), stride};
  multiply_tiles(Parallel(n_threads), kernel.run, std::span(&task, 1));
  HostTensor out(DType::f32, {n_rows, panels.n});
  for (std::int64_t row = 0; row < n_rows; ++row) {
    for (std::int64_t column = 0; column < panels.n; ++column)
      out.set(row * panels.n + column, static_cast<float>(wide.at(row * stride + column)));
    for (std::int64_t column = panels.n; column < stride; ++column) EXPECT_TRUE(std::isnan(wide.at(row * stride + column)));
  }
  return out;
}

TEST(TileGemm, equals_float64_and_has_the_same_bits_in_any_company) {
  constexpr std::int64_t kRows = 72;
  for (const NamedTileKernel& kernel : tile_kernels()) {
    std::mt19937 random(1);
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{1, 32}, {64, 32}, {65, 64}, {130, 96}, {192, 608}}) {
      const HostTensor weight = random_tensor(random, DType::bf16, {n, k});
      const HostTensor x = random_tensor(random, DType::bf16, {kRows, k});
      const PackedTiles packed = pack(weight);
      const HostTensor all = run(kernel, packed.panels, x, kRows, 2);
      const std::string where = fmt::format("{} {} x {}", kernel.name, n, k);
      // Sums of k exact products in f32: c = 4, growth = sqrt(k).
      EXPECT_LE(relative_error(all, matmul_reference(x, weight)), 4 * epsilon(DType::f32) * std::sqrt(static_cast<double>(k)))
          << where;
      for (const std::int64_t n_rows : {1, 2, 8, 15, 16, 17, 31, 32, 33, 48, 49, 64, 71}) {
        const HostTensor some = run(kernel, packed.panels, x, n_rows, 2);
        EXPECT_EQ(std::memcmp(some.bytes.data(), all.bytes.data(), some.bytes.size()), 0) << where << ", " << n_rows << " rows";
      }
    }
  }
}

TEST(TileGemm, any_number_of_threads_multiplies_all_panels_and_rows) {
  constexpr std::int64_t kRows = 530;  // more than two parts take
  for (const NamedTileKernel& kernel : tile_kernels()) {
    std::mt19937 random(2);
    const HostTensor weight = random_tensor(random, DType::bf16, {330, 32});
    const HostTensor x = random_tensor(random, DType::bf16, {kRows, 32});
    const PackedTiles packed = pack(weight);
    const std::vector<double> expected = matmul_reference(x, weight);
    for (const int n_threads : {1, 2, 5})
      EXPECT_LE(relative_error(run(kernel, packed.panels, x, kRows, n_threads), expected),
                4 * epsilon(DType::f32) * std::sqrt(32.0))
          << kernel.name << ", " << n_threads << " threads";
  }
}

TEST(TileGemm, serves_bf16_with_amx_alone_and_weights_of_whole_tiles) {
  EXPECT_NE(tile_gemm_kernel(CpuIsa::amx_bf16, DType::bf16), nullptr);
  EXPECT_EQ(tile_gemm_kernel(CpuIsa::avx512_bf16, DType::bf16), nullptr);
  EXPECT_EQ(tile_gemm_kernel(CpuIsa::amx_bf16, DType::f32), nullptr);
  const std::byte word{};
  EXPECT_TRUE(fits_tiles({&word, 64, 16, 16 * kStepBytes, kStepBytes}));
  EXPECT_FALSE(fits_tiles({nullptr, 64, 16, 16 * kStepBytes, kStepBytes}));
  EXPECT_FALSE(fits_tiles({&word, 64, 17, 32 * kStepBytes, kStepBytes}));
  EXPECT_FALSE(fits_tiles({&word, 128, 16, kStepBytes, 128 * 4}));
}

}  // namespace
}  // namespace baton::cpu
