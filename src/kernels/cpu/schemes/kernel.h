/// Matmuls by weights in 8 and 4 bits, written once for all instruction sets. Included only by files compiled for one
/// instruction set. Each of them provides a class for each scheme: `word<V>(step)` are the words of vector V of a
/// step's columns, made in registers from packed bits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/cpu/gemm/word_vectors.h"
#include "kernels/cpu/schemes/panels.h"

namespace baton::cpu {
namespace {

/// Words that a tile of the cache holds, as steps of a panel of PanelMatrix.
template <class P>
struct WidenedWords {
  using Products = P;
  static constexpr std::int64_t kBytes = kStepBytes;
  template <int V>
  static typename P::Words word(const std::byte* step) {
    return P::load_words(step + 4 * V * P::kLanes);
  }
};

/// Steps of one group of one panel, for a few rows.
struct GroupSteps {
  const std::byte* weight;
  std::int64_t n_steps;
  const std::byte* x;
  std::int64_t x_stride;
  float* partial;
  float* sums;
  const float* scales;   ///< [kPanelColumns]
  const float* offsets;  ///< [kPanelColumns], or null
  const float* x_sums;   ///< of the first row
  std::int64_t x_sums_stride;
  bool begins, ends;  ///< the group; otherwise its sums are taken from, or left in, `partial`
};

/// Vectors of columns that R rows process at once: the largest power of two that keeps the sums in registers.
template <class P>
constexpr int scheme_columns_at_once(int n_rows) {
  int columns = kPanelColumns / P::kLanes;
  while (columns > 1 && columns * n_rows > P::kSums) columns /= 2;
  return columns;
}

template <class W, int R, int First, int... C>
void multiply_columns(const GroupSteps& group, std::integer_sequence<int, C...>) {
  using P = typename W::Products;
  constexpr int kColumns = sizeof...(C);
  typename P::Sum sums[R][kColumns];
  const auto place = [](float* at, int r, int c) { return at + r * kPanelColumns + (First + c) * P::kLanes; };
#pragma GCC unroll 64
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 64
    for (int c = 0; c < kColumns; ++c) sums[r][c] = group.begins ? P::zero() : P::load_sum(place(group.partial, r, c));
  const std::byte* weight = group.weight;
  const std::byte* x = group.x;
  for (std::int64_t step = 0; step < group.n_steps; ++step, weight += W::kBytes, x += 4) {
    const typename P::Words words[kColumns] = {W::template word<First + C>(weight)...};
#pragma GCC unroll 64
    for (int r = 0; r < R; ++r) {
      const typename P::Words word = P::broadcast(x + r * group.x_stride);
#pragma GCC unroll 64
      for (int c = 0; c < kColumns; ++c) sums[r][c] = P::multiply_add(sums[r][c], word, words[c]);
    }
  }
  if (group.ends && group.offsets != nullptr) {
#pragma GCC unroll 64
    for (int r = 0; r < R; ++r) {
      const typename P::Sum x_sum = P::all(group.x_sums[r * group.x_sums_stride]);
#pragma GCC unroll 64
      for (int c = 0; c < kColumns; ++c)
        sums[r][c] = P::fold(sums[r][c], P::load_sum(group.offsets + (First + c) * P::kLanes), x_sum);
    }
  }
#pragma GCC unroll 64
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 64
    for (int c = 0; c < kColumns; ++c) {
      float* const to = place(group.ends ? group.sums : group.partial, r, c);
      const typename P::Sum scales = P::load_sum(group.scales + (First + c) * P::kLanes);
      P::store_sum(to, group.ends ? P::fold(P::load_sum(to), scales, sums[r][c]) : sums[r][c]);
    }
}

template <class W, int R>
void multiply_group(const GroupSteps& group) {
  constexpr int kColumns = scheme_columns_at_once<typename W::Products>(R);
  constexpr int kBlocks = kPanelColumns / W::Products::kLanes / kColumns;
  [&]<int... Block>(std::integer_sequence<int, Block...>) {
    (multiply_columns<W, R, Block * kColumns>(group, std::make_integer_sequence<int, kColumns>()), ...);
  }(std::make_integer_sequence<int, kBlocks>());
}

template <class W, int... R>
void multiply_group_rows(std::int64_t n_rows, const GroupSteps& group, std::integer_sequence<int, R...>) {
  constexpr std::array<void (*)(const GroupSteps&), sizeof...(R)> kByRows{multiply_group<W, R + 1>...};
  kByRows[static_cast<std::size_t>(n_rows - 1)](group);
}

template <class W>
void widen_steps(const std::byte* packed, std::int64_t n_steps, std::byte* tile) {
  using P = typename W::Products;
  for (std::int64_t step = 0; step < n_steps; ++step, packed += W::kBytes, tile += kStepBytes)
    [&]<int... V>(std::integer_sequence<int, V...>) {
      // All words before the first store: vectors of one step share look-ups.
      const typename P::Words words[] = {W::template word<V>(packed)...};
      (P::store_words(tile + 4 * V * P::kLanes, words[V]), ...);
    }(std::make_integer_sequence<int, kPanelColumns / P::kLanes>());
}

/// f32 scales, and what is added to integers, of a panel's columns in one group.
struct GroupNumbers {
  alignas(64) std::array<float, kPanelColumns> scales, offsets;
};

/// Scales of a panel's columns in one group, times `factor`.
inline void read_scales(const std::byte* scales, DType dtype, std::int64_t group, float factor,
                        std::array<float, kPanelColumns>& to) {
  const std::int64_t first = group * kPanelColumns;
  constexpr std::size_t kColumns = kPanelColumns;
  if (dtype == DType::f32) {
    const float* from = reinterpret_cast<const float*>(scales) + first;
    for (std::size_t c = 0; c < kColumns; ++c) to[c] = from[c] * factor;
  } else if (dtype == DType::bf16) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(scales) + first;
    for (std::size_t c = 0; c < kColumns; ++c) to[c] = std::bit_cast<float>(static_cast<std::uint32_t>(from[c]) << 16) * factor;
  } else if (dtype == DType::f8_e4m3) {
    // The bits, moved to those of f32, are the number divided by 2^120.
    const auto* from = reinterpret_cast<const std::uint8_t*>(scales) + first;
    for (std::size_t c = 0; c < kColumns; ++c) {
      const std::uint32_t code = from[c];
      to[c] = std::bit_cast<float>((code & 0x80u) << 24 | (code & 0x7fu) << 20) * (0x1p120f * factor);
    }
  } else if (dtype == DType::u8) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(scales) + first;
    for (std::size_t c = 0; c < kColumns; ++c) to[c] = e8m0_value(from[c]) * factor;
  } else {
    const auto* from = reinterpret_cast<const Float16*>(scales) + first;
#ifdef __F16C__
    for (std::size_t c = 0; c < kColumns; c += 8)
      _mm256_store_ps(&to[c], _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + c))),
                                            _mm256_set1_ps(factor)));
#else
    for (std::size_t c = 0; c < kColumns; ++c) to[c] = static_cast<float>(from[c]) * factor;
#endif
  }
}

template <class W>
void read_numbers(const SchemeTask& task, std::int64_t group, GroupNumbers& numbers) {
  const std::int64_t first = group * kPanelColumns;
  constexpr std::size_t kColumns = kPanelColumns;
  read_scales(task.scales, task.scale_dtype, group, W::kFactor, numbers.scales);
  if (task.zeros != nullptr) {
    const std::uint8_t* from = task.zeros + first;
    for (std::size_t c = 0; c < kColumns; ++c) numbers.offsets[c] = W::kMiddle - static_cast<float>(from[c]);
  } else {
    numbers.offsets.fill(W::kMiddle - W::kDefaultZero);
  }
}

/// Most rows that multiply by words made in registers, a few rows at a time. On Zen 4 that takes 0.6 to 0.7 of the time
/// of a tile at 8 rows, and as long at 64.
constexpr std::int64_t kMostRegisterRows = 32;

/// Few rows multiply by words that are made in registers. For more, a group is widened into the cache a tile at a
/// time, and rows in parts of nearly equal size read it there: the same words, summed in the same order.
template <class W>
void run_scheme_gemm(const SchemeTask& task) {
  using P = typename W::Products;
  const bool has_offsets = task.zeros != nullptr || W::kMiddle != W::kDefaultZero;
  const std::int64_t n_groups = (task.n_steps + task.group_steps - 1) / task.group_steps;
  const bool widens = task.n_rows > kMostRegisterRows;
  const std::int64_t tile_steps = widens ? kTileSteps : task.n_steps;
  const std::int64_t n_parts = (task.n_rows + P::kMaxRows - 1) / P::kMaxRows;
  GroupNumbers numbers;
  for (std::int64_t g = 0; g < n_groups; ++g) {
    read_numbers<W>(task, g, numbers);
    const std::int64_t begin = g * task.group_steps;
    const std::int64_t end = std::min(task.n_steps, begin + task.group_steps);
    for (std::int64_t step = begin; step < end; step += tile_steps) {
      const std::int64_t n_steps = std::min(tile_steps, end - step);
      const std::byte* const packed = task.values + step * W::kBytes;
      if (widens) widen_steps<W>(packed, n_steps, task.tile);
      for (std::int64_t part = 0; part < n_parts; ++part) {
        const std::int64_t row = task.n_rows * part / n_parts;
        const std::int64_t n_rows = task.n_rows * (part + 1) / n_parts - row;
        const GroupSteps group{widens ? task.tile : packed,
                               n_steps,
                               task.x + row * task.x_stride + 4 * step,
                               task.x_stride,
                               task.partial + row * kPanelColumns,
                               task.sums + row * kPanelColumns,
                               numbers.scales.data(),
                               has_offsets ? numbers.offsets.data() : nullptr,
                               has_offsets ? task.x_sums + row * n_groups + g : nullptr,
                               n_groups,
                               step == begin,
                               step + n_steps == end};
        constexpr std::make_integer_sequence<int, P::kMaxRows> kRows;
        if (widens) {
          multiply_group_rows<WidenedWords<P>>(n_rows, group, kRows);
        } else {
          multiply_group_rows<W>(n_rows, group, kRows);
        }
      }
    }
  }
}

template <class W>
constexpr SchemeKernel scheme_kernel_of() {
  return {run_scheme_gemm<W>, W::kMiddle};
}

/// What the bits of a scheme mean; see panels.h.
struct F8Bits {
  static constexpr float kMiddle = 0;
  static constexpr float kDefaultZero = 0;
};
struct I8Bits {
  static constexpr float kFactor = 1;
  static constexpr float kMiddle = 128;
  static constexpr float kDefaultZero = 128;
};
struct I4Bits {
  static constexpr float kFactor = 1;
  static constexpr float kMiddle = 8;
  static constexpr float kDefaultZero = 8;
};
struct F4Bits {
  static constexpr float kFactor = 1;
  static constexpr float kMiddle = 0;
  static constexpr float kDefaultZero = 0;
};

}  // namespace
}  // namespace baton::cpu
