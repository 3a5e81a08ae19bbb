/// The skinny GEMM, written once for all instruction sets. Included only by files compiled for one instruction set.
/// Each of them provides its own `Products` class: the vector of words, and how two are multiplied.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/cpu/gemm/skinny_gemm.h"

namespace baton::cpu {
namespace {

/// Number of steps after which the next group of rows reads the same steps again, from the second-level cache: 64 KB,
/// the best of 32 to 256 on Zen 4 (bench/results/cpu-skinny-gemm.md).
constexpr std::int64_t kBlockSteps = 256;
/// The same if steps of a panel are far apart: adjacent panels then share the pages of a block.
constexpr std::int64_t kScatteredSteps = 32;

/// Number of column vectors that R rows process at once: the largest power of two that keeps the sums in registers.
template <class P>
constexpr int columns_at_once(int n_rows) {
  int columns = kPanelColumns / P::kLanes;
  while (columns > 1 && columns * n_rows > P::kSums) columns /= 2;
  return columns;
}

/// A block of steps of one panel.
struct Block {
  const std::byte* weight;
  std::int64_t step_stride;
  std::int64_t n_steps;
  const std::byte* x;
  std::int64_t x_stride;
  float* out;
  std::int64_t out_stride;
  bool continues;  ///< adds to the values in out
};

/// R rows of a block, one group of columns after the other.
template <class P, int R>
void multiply_rows(const Block& block) {
  constexpr int kColumns = columns_at_once<P>(R);
  for (int first = 0; first < kPanelColumns; first += kColumns * P::kLanes) {
    typename P::Sum sums[R][kColumns];
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < kColumns; ++c)
        sums[r][c] = block.continues ? P::load_sum(block.out + r * block.out_stride + first + c * P::kLanes) : P::zero();
    const std::byte* weight = block.weight + 4 * first;
    const std::byte* x = block.x;
    for (std::int64_t step = 0; step < block.n_steps; ++step, weight += block.step_stride, x += 4) {
      typename P::Words words[kColumns];
      for (int c = 0; c < kColumns; ++c) words[c] = P::load_words(weight + 4 * c * P::kLanes);
      for (int r = 0; r < R; ++r) {
        const typename P::Words word = P::broadcast(x + r * block.x_stride);
        for (int c = 0; c < kColumns; ++c) sums[r][c] = P::multiply_add(sums[r][c], word, words[c]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < kColumns; ++c) P::store_sum(block.out + r * block.out_stride + first + c * P::kLanes, sums[r][c]);
  }
}

template <class P, int... R>
void multiply_rows(int n_rows, const Block& block, std::integer_sequence<int, R...>) {
  constexpr std::array<void (*)(const Block&), sizeof...(R)> kByRows{multiply_rows<P, R + 1>...};
  kByRows[static_cast<std::size_t>(n_rows - 1)](block);
}

/// All rows of a block, in groups of nearly equal size.
template <class P>
void multiply_block(Block block, std::int64_t n_rows, std::int64_t n_groups) {
  for (std::int64_t group = 0; group < n_groups; ++group) {
    const auto rows = static_cast<int>(n_rows * (group + 1) / n_groups - n_rows * group / n_groups);
    multiply_rows<P>(rows, block, std::make_integer_sequence<int, P::kMaxRows>());
    block.x += rows * block.x_stride;
    block.out += rows * block.out_stride;
  }
}

template <class P>
void run_skinny_gemm(const SkinnyGemmTask& task) {
  const PanelMatrix& weight = task.weight;
  const std::int64_t n_groups = (task.n_rows + P::kMaxRows - 1) / P::kMaxRows;
  const bool reads_once = n_groups == 1 && columns_at_once<P>(static_cast<int>(task.n_rows)) * P::kLanes == kPanelColumns;
  const bool is_scattered = weight.step_stride != kStepBytes;
  const std::int64_t block_steps = is_scattered ? kScatteredSteps : reads_once ? weight.n_steps : kBlockSteps;
  // Sums of a panel that extends beyond n: the rows of out are too short for it.
  std::array<float, kMaxSkinnyRows * kPanelColumns> cut;
  const std::int64_t n_cut = weight.n % kPanelColumns;
  const std::int64_t cut_panel = n_cut == 0 ? -1 : weight.n / kPanelColumns;
  const auto multiply = [&](std::int64_t panel, std::int64_t first_step) {
    const bool is_cut = panel == cut_panel;
    multiply_block<P>({weight.data + panel * weight.panel_stride + first_step * weight.step_stride, weight.step_stride,
                       std::min(block_steps, weight.n_steps - first_step), task.x + 4 * first_step, task.x_stride,
                       is_cut ? cut.data() : task.out + panel * kPanelColumns, is_cut ? kPanelColumns : task.out_stride,
                       first_step > 0 || task.adds},
                      task.n_rows, n_groups);
  };
  if (is_scattered) {
    for (std::int64_t step = 0; step < weight.n_steps; step += block_steps)
      for (std::int64_t panel = task.first_panel; panel < task.end_panel; ++panel) multiply(panel, step);
  } else {
    for (std::int64_t panel = task.first_panel; panel < task.end_panel; ++panel)
      for (std::int64_t step = 0; step < weight.n_steps; step += block_steps) multiply(panel, step);
  }
  if (cut_panel < task.first_panel || cut_panel >= task.end_panel) return;
  for (std::int64_t row = 0; row < task.n_rows; ++row)
    std::memcpy(task.out + row * task.out_stride + cut_panel * kPanelColumns, cut.data() + row * kPanelColumns,
                static_cast<std::size_t>(n_cut) * sizeof(float));
}

}  // namespace
}  // namespace baton::cpu
