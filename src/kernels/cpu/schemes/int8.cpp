/// Rounds rows of x to 8 bits, and chooses the kernels that multiply them.
#include "kernels/cpu/schemes/int8.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <span>

#include "kernels/cpu/elements.h"

namespace baton::cpu {
namespace {

constexpr float kLargestCode = 127;

/// The largest magnitude: infinity or NaN if a number is.
float largest_of(std::span<const float> numbers) {
  std::uint32_t largest = 0;
  for (const float number : numbers) largest = std::max(largest, std::bit_cast<std::uint32_t>(number) & 0x7fffffffu);
  return std::bit_cast<float>(largest);
}

/// Codes of numbers times `factor`, to nearest even; numbers near 1.5 * 2^23 are integers. Returns their sum.
std::int32_t write_codes(std::span<const float> numbers, float factor, std::int8_t* codes) {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    codes[i] = static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(numbers[i] * factor + 0x1.8p23f));
    sum += codes[i];
  }
  return sum;
}

void round_row(std::span<const float> numbers, std::int64_t block_columns, std::int8_t* codes, float* scales,
               std::int32_t* sums) {
  const auto length = static_cast<std::size_t>(block_columns);
  for (std::size_t begin = 0, b = 0; begin < numbers.size(); begin += length, ++b) {
    const std::span<const float> block = numbers.subspan(begin, std::min(length, numbers.size() - begin));
    const float largest = largest_of(block);
    // A factor that is not finite would make codes of numbers that are all too small for it.
    const float factor = largest > kLargestCode / std::numeric_limits<float>::max() ? kLargestCode / largest : 0;
    scales[b] = factor == 0 && largest <= std::numeric_limits<float>::max() ? 0 : largest / kLargestCode;
    sums[b] = write_codes(block, factor, codes + begin);
  }
}

}  // namespace

std::int64_t int8_block_columns(std::int64_t k, std::int64_t group) {
  return group >= k ? std::min(k, kMostBlockColumns) : std::gcd(group, kMostBlockColumns);
}

void round_to_int8(const Parallel& parallel, const ConstTensorView& x, std::int64_t block_columns, Int8Rows& rows) {
  constexpr std::int64_t kRowsPerTask = 4;
  const std::int64_t k = x.shape[1];
  rows.row_bytes = (k + 3) / 4 * 4;
  rows.n_blocks = (k + block_columns - 1) / block_columns;
  rows.values.resize(static_cast<std::size_t>(x.shape[0] * rows.row_bytes));
  rows.scales.resize(static_cast<std::size_t>(x.shape[0] * rows.n_blocks));
  rows.sums.resize(rows.scales.size());
  parallel.for_ranges(x.shape[0], kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> numbers(static_cast<std::size_t>(k));
    for (std::int64_t r = begin; r < end; ++r) {
      load_f32(x, r * k, k, numbers.data());
      std::int8_t* const codes = rows.values.data() + r * rows.row_bytes;
      std::fill(codes + k, codes + rows.row_bytes, std::int8_t{0});
      round_row(numbers, block_columns, codes, rows.scales.data() + r * rows.n_blocks, rows.sums.data() + r * rows.n_blocks);
    }
  });
}

bool has_vnni() { return __builtin_cpu_supports("avx512vnni"); }

const Int8Kernels& int8_kernels(CpuIsa isa, bool has_vnni) {
  if (isa >= CpuIsa::avx512 && has_vnni) return kInt8Vnni;
  return isa >= CpuIsa::avx2 ? kInt8Avx2 : kInt8Baseline;
}

}  // namespace baton::cpu
