/// Matmuls by integers of 8 and 4 bits with x in 8 bits, written once for all instruction sets. Included only by files
/// compiled for one instruction set. Each of them provides a class D: vectors of words and of sums, and their product.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cpu/schemes/int8.h"
#include "kernels/cpu/schemes/kernel.h"

namespace baton::cpu {
namespace {

/// One block of one panel, for a few rows.
struct Int8Block {
  const std::byte* weight;
  std::int64_t n_steps;
  const std::int8_t* x;
  std::int64_t x_stride;
  float* sums;
  const float* scales;         ///< [kPanelColumns]
  const std::int32_t* zeros;   ///< [kPanelColumns]
  const float* x_scales;       ///< of the first row
  const std::int32_t* x_sums;  ///< of the first row
  std::int64_t n_blocks;       ///< to the next row's
};

/// The words of vector V of a step's columns.
template <class D, bool kIsI4, int V>
typename D::Words int8_word(const std::byte* step) {
  constexpr int kColumn = V * D::kLanes;
  if constexpr (!kIsI4) return D::load(step + 4 * kColumn);
  const typename D::Words both = D::load(step + kColumn / 32 * 64 + 4 * (kColumn % 16));
  return kColumn % 32 < 16 ? D::low_half_bytes(both) : D::high_half_bytes(both);
}

/// Vectors of columns that R rows process at once: the largest power of two that keeps the sums in registers.
template <class D>
constexpr int int8_columns_at_once(int n_rows) {
  int columns = kPanelColumns / D::kLanes;
  while (columns > 1 && columns * n_rows > D::kSums) columns /= 2;
  return columns;
}

template <class D, bool kIsI4, int R, int First, int... C>
void multiply_int8_columns(const Int8Block& block, std::integer_sequence<int, C...>) {
  constexpr int kColumns = sizeof...(C);
  typename D::Sum sums[R][kColumns];
#pragma GCC unroll 64
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 64
    for (int c = 0; c < kColumns; ++c) sums[r][c] = D::zero();
  const std::byte* weight = block.weight;
  const std::int8_t* x = block.x;
  for (std::int64_t step = 0; step < block.n_steps; ++step, weight += kPanelColumns * (kIsI4 ? 2 : 4), x += 4) {
    const typename D::Weight words[kColumns] = {D::weight(int8_word<D, kIsI4, First + C>(weight))...};
#pragma GCC unroll 64
    for (int r = 0; r < R; ++r) {
      const typename D::X word = D::broadcast(x + r * block.x_stride);
#pragma GCC unroll 64
      for (int c = 0; c < kColumns; ++c) sums[r][c] = D::multiply_add(sums[r][c], words[c], word);
    }
  }
#pragma GCC unroll 64
  for (int r = 0; r < R; ++r) {
    const float x_scale = block.x_scales[r * block.n_blocks];
    const std::int32_t x_sum = block.x_sums[r * block.n_blocks];
#pragma GCC unroll 64
    for (int c = 0; c < kColumns; ++c) {
      constexpr std::array<int, kColumns> kFirst{(First + C) * D::kLanes...};
      const int column = kFirst[static_cast<std::size_t>(c)];
      D::fold(block.sums + r * kPanelColumns + column, sums[r][c], block.zeros + column, x_sum, block.scales + column, x_scale);
    }
  }
}

template <class D, bool kIsI4, int R>
void multiply_int8_block(const Int8Block& block) {
  constexpr int kColumns = int8_columns_at_once<D>(R);
  constexpr int kParts = kPanelColumns / D::kLanes / kColumns;
  [&]<int... Part>(std::integer_sequence<int, Part...>) {
    (multiply_int8_columns<D, kIsI4, R, Part * kColumns>(block, std::make_integer_sequence<int, kColumns>()), ...);
  }(std::make_integer_sequence<int, kParts>());
}

template <class D, bool kIsI4, int... R>
void multiply_int8_rows(std::int64_t n_rows, const Int8Block& block, std::integer_sequence<int, R...>) {
  constexpr std::array<void (*)(const Int8Block&), sizeof...(R)> kByRows{multiply_int8_block<D, kIsI4, R + 1>...};
  kByRows[static_cast<std::size_t>(n_rows - 1)](block);
}

/// Rows in parts of nearly equal size read a block again from the cache.
template <class D, bool kIsI4>
void run_int8_gemm(const Int8Task& task) {
  const std::int64_t n_parts = (task.n_rows + D::kMaxRows - 1) / D::kMaxRows;
  alignas(64) std::array<float, kPanelColumns> scales;
  alignas(64) std::array<std::int32_t, kPanelColumns> zeros;
  zeros.fill(task.middle);
  for (std::int64_t b = 0; b < task.n_blocks; ++b) {
    if (b % task.blocks_a_group == 0) {
      const std::int64_t group = b / task.blocks_a_group;
      read_scales(task.scales, task.scale_dtype, group, 1, scales);
      if (task.zeros != nullptr) std::copy_n(task.zeros + group * kPanelColumns, kPanelColumns, zeros.begin());
    }
    const std::int64_t first = b * task.block_steps;
    for (std::int64_t part = 0; part < n_parts; ++part) {
      const std::int64_t row = task.n_rows * part / n_parts;
      const std::int64_t n_rows = task.n_rows * (part + 1) / n_parts - row;
      const Int8Block block{task.values + first * kPanelColumns * (kIsI4 ? 2 : 4),
                            std::min(task.block_steps, task.n_steps - first),
                            task.x + row * task.x_stride + 4 * first,
                            task.x_stride,
                            task.sums + row * kPanelColumns,
                            scales.data(),
                            zeros.data(),
                            task.x_scales + row * task.n_blocks + b,
                            task.x_sums + row * task.n_blocks + b,
                            task.n_blocks};
      multiply_int8_rows<D, kIsI4>(n_rows, block, std::make_integer_sequence<int, D::kMaxRows>());
    }
  }
}

template <class D>
constexpr Int8Kernels int8_kernels_of(const char* name) {
  return {name, run_int8_gemm<D, false>, run_int8_gemm<D, true>};
}

}  // namespace
}  // namespace baton::cpu
