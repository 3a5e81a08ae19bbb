#include "kernels/cpu/gemm/skinny_gemm.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/host_tensor.h"
#include "support/matmul_reference.h"

namespace baton::cpu {
namespace {

using baton::testing::epsilon;
using baton::testing::HostTensor;
using baton::testing::matmul_reference;
using baton::testing::random_tensor;
using baton::testing::relative_error;

/// A kernel that this processor can run.
struct NamedKernel {
  std::string name;
  DType dtype;
  SkinnyGemmKernel run;
};

std::vector<NamedKernel> kernels() {
  std::vector<NamedKernel> found;
  for (const CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16})
    for (const DType dtype : {DType::f32, DType::bf16})
      if (const SkinnyGemmKernel kernel = skinny_gemm_kernel(isa, dtype); isa <= best_cpu_isa() && kernel != nullptr)
        found.push_back({std::string(to_string(isa)) + ' ' + std::string(to_string(dtype)), dtype, kernel});
  return found;
}

/// A weight in panels, either contiguous as oneDNN packs it, or with the panels of a step side by side as in a [k, n]
/// matrix.
struct Packed {
  std::vector<std::byte> bytes;
  PanelMatrix panels;
};

Packed pack(const HostTensor& weight, bool is_contiguous) {
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  const auto element_bytes = static_cast<std::int64_t>(size_bytes(weight.dtype));
  const std::int64_t per_word = 4 / element_bytes;
  const std::int64_t n_panels = (n + kPanelColumns - 1) / kPanelColumns;
  Packed packed;
  PanelMatrix& panels = packed.panels;
  panels.n = n;
  panels.n_steps = (k + per_word - 1) / per_word;
  panels.step_stride = is_contiguous ? kStepBytes : n * 4;
  panels.panel_stride = is_contiguous ? (panels.n_steps + 3) * kStepBytes : kStepBytes;
  // Memory beyond column n is NaN and must not affect the results.
  packed.bytes.resize(static_cast<std::size_t>((panels.n_steps + 3) * n_panels * kStepBytes), std::byte{0xff});
  panels.data = packed.bytes.data();
  for (std::int64_t column = 0; column < n; ++column)
    for (std::int64_t i = 0; i < panels.n_steps * per_word; ++i) {
      std::byte* to = packed.bytes.data() + column / kPanelColumns * panels.panel_stride + i / per_word * panels.step_stride +
                      column % kPanelColumns * 4 + i % per_word * element_bytes;
      if (i < k) {
        std::memcpy(to, weight.bytes.data() + (column * k + i) * element_bytes, static_cast<std::size_t>(element_bytes));
      } else {
        std::memset(to, 0, static_cast<std::size_t>(element_bytes));
      }
    }
  return packed;
}

/// x W^T by the kernel, with the panels in two parts.
HostTensor run(const NamedKernel& kernel, const PanelMatrix& panels, const HostTensor& x) {
  const std::int64_t n_rows = x.shape[0];
  HostTensor out(DType::f32, {n_rows, panels.n});
  std::vector<std::byte> words(static_cast<std::size_t>(n_rows * panels.n_steps * 4));
  const std::size_t row_bytes = x.bytes.size() / static_cast<std::size_t>(n_rows);
  for (std::size_t row = 0; row < static_cast<std::size_t>(n_rows); ++row)
    std::memcpy(words.data() + row * static_cast<std::size_t>(panels.n_steps) * 4, x.bytes.data() + row * row_bytes, row_bytes);
  const SkinnyGemmTask task{panels, words.data(), panels.n_steps * 4, n_rows, out.view().elements<float>().data(), panels.n};
  multiply_skinny(Parallel(2), kernel.run, std::span(&task, 1));
  return out;
}

TEST(SkinnyGemm, equal_float64_in_both_layouts_and_have_the_same_bits_in_any_company) {
  for (const NamedKernel& kernel : kernels()) {
    std::mt19937 random(1);
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {64, 32}, {65, 33}, {127, 2}, {130, 601}}) {
      const HostTensor weight = random_tensor(random, kernel.dtype, {n, k});
      const HostTensor x = random_tensor(random, kernel.dtype, {kMaxSkinnyRows, k});
      const std::vector<double> expected = matmul_reference(x, weight);
      for (const bool is_contiguous : {true, false}) {
        if (!is_contiguous && kernel.dtype != DType::f32) continue;  // pairs exist in panels only
        const std::string where = fmt::format("{} {} x {} in {}", kernel.name, n, k, is_contiguous ? "panels" : "rows");
        const Packed packed = pack(weight, is_contiguous);
        const HostTensor all = run(kernel, packed.panels, x);
        // Sums of k exact products in f32: c = 4, growth = sqrt(k).
        EXPECT_LE(relative_error(all, expected), 4 * epsilon(DType::f32) * std::sqrt(static_cast<double>(k))) << where;
        for (std::int64_t n_rows = 1; n_rows < kMaxSkinnyRows; ++n_rows) {
          const HostTensor some = run(kernel, packed.panels, first_rows(x, n_rows));
          EXPECT_EQ(std::memcmp(some.bytes.data(), all.bytes.data(), some.bytes.size()), 0) << where << ' ' << n_rows;
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::cpu
