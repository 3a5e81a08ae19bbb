/// How the broad GEMM divides a matmul among blocks, and what each way costs. This is pure arithmetic and needs no device.
///
/// An item is a tile of the weight's rows (all of them, `width` at a time) and a part of k. Blocks take items in turn. Where a
/// weight has fewer tiles than the device has multiprocessors, k has two parts, and the block of the first adds the sums of the
/// other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace baton::cuda {

inline constexpr int kBroadRowGroup = 64;  ///< rows of x that a warpgroup multiplies: wgmma's M
inline constexpr std::int64_t kFewestBroadRows = 33;
inline constexpr std::int64_t kMostBroadRows = 128;
/// Rows up to which a layout is chosen, from those after the step before on.
inline constexpr std::int64_t kBroadRowSteps[] = {48, 64, 80, 96, 112, kMostBroadRows};
inline constexpr int kBroadBoxK = 64;  ///< numbers of each row in a box, which one copy brings
inline constexpr int kBroadWidths[] = {48, 64, 80, 96, 112, 128, 144, 160, 168, 192, 224};
inline constexpr int kBroadWidthsAsM[] = {64, 128};  ///< of tiles that may be wgmma's M
inline constexpr int kMostBroadParts = 2;
inline constexpr int kMostCutWidth = 128;  ///< of tiles with several parts

/// Boxes of the weight in a stage.
constexpr int broad_boxes(int width) { return width <= 96 ? 2 : 1; }

struct BroadLayout {
  int width = 0;
  int n_parts = 1;
  bool weight_is_m = false;
  friend bool operator==(const BroadLayout&, const BroadLayout&) = default;
};

struct BroadMatmul {
  std::int64_t n_rows = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  constexpr int row_groups() const { return static_cast<int>((n_rows + kBroadRowGroup - 1) / kBroadRowGroup); }
  /// Rows of x that are multiplied.
  constexpr int tile_rows(const BroadLayout& layout) const {
    return layout.weight_is_m ? static_cast<int>((n_rows + 15) / 16 * 16) : row_groups() * kBroadRowGroup;
  }
  /// Rows of x in a box: what wgmma reads after them gives sums that are not stored.
  constexpr int x_rows(const BroadLayout& layout) const {
    return layout.weight_is_m ? tile_rows(layout) : static_cast<int>((n_rows + 7) / 8 * 8);
  }
};

/// The items of a matmul. It depends on the weight's shape and the layout alone, and so do the bits of all sums.
struct BroadSchedule {
  int n_tiles = 0;
  int k_stages = 0;  ///< of a tile
  int n_parts = 1;
  int first_part = 0;  ///< stages of the first part

  constexpr int n_items() const { return n_tiles * n_parts; }
  /// The first stage of a part; of the part after the last, the end.
  constexpr int begin(int part) const { return part == 0 ? 0 : part == n_parts ? k_stages : first_part; }
};

/// The first part has more stages than the second, whose sums have then arrived when the block of the first needs them.
constexpr BroadSchedule broad_schedule(const BroadLayout& layout, std::int64_t n, std::int64_t k) {
  constexpr int kMoreInFirst = 3;
  const std::int64_t stage_k = std::int64_t{kBroadBoxK} * broad_boxes(layout.width);
  const int n_tiles = static_cast<int>((n + layout.width - 1) / layout.width);
  const int k_stages = static_cast<int>((k + stage_k - 1) / stage_k);
  const int first = layout.n_parts == 1 ? k_stages : (k_stages + layout.n_parts - 1) / layout.n_parts + kMoreInFirst;
  return {n_tiles, k_stages, layout.n_parts, first};
}

/// Whether blocks that wait for sums get them: all items of cut tiles run at once.
constexpr bool can_run(const BroadSchedule& schedule, int n_blocks) {
  return schedule.n_parts == 1 || (schedule.n_items() <= n_blocks && schedule.first_part < schedule.k_stages);
}

/// Rates in bytes and floating-point operations per microsecond.
struct BroadRates {
  double start_us = 0;             ///< of a kernel
  double memory_bytes_per_us = 0;  ///< weights from memory, all blocks
  double arrive_bytes_per_us = 0;  ///< weights and x into one multiprocessor
  double flops_per_us = 0;         ///< of one multiprocessor
  double sum_bytes_per_us = 0;     ///< sums that one block passes to another
  double cublas_start_us = 0;
  double cublas_bytes_per_us = 0;
  double cublas_flops_per_us = 0;  ///< of the device
  double cublas_split_us = 0;      ///< where it splits k, which it does for weights with many more columns than rows
};

/// Fitted to the times of 25 weights on an H200: bench/results/streaming-gemm.md.
inline constexpr BroadRates kBroadRatesOfH200{2.2, 4.32e6, 135e3, 7.3e6, 27e3, 4.4, 4.17e6, 1.05e9, 3.4};

/// The time of what overlaps: more than the longest, where others are nearly as long.
inline double overlapped(double a, double b, double c = 0) { return std::cbrt(a * a * a + b * b * b + c * c * c); }

/// Microseconds of a matmul whose weight comes from memory and x from the L2.
inline double broad_cost_us(const BroadMatmul& of, const BroadLayout& layout, int n_blocks, const BroadRates& rates) {
  const BroadSchedule schedule = broad_schedule(layout, of.n, of.k);
  const int n_waves = (schedule.n_items() + n_blocks - 1) / n_blocks;
  const double busiest_k = static_cast<double>(schedule.first_part) * n_waves * kBroadBoxK * broad_boxes(layout.width);
  const double reading = static_cast<double>(of.n * of.k) * 2 / rates.memory_bytes_per_us;
  const double arriving = busiest_k * (layout.width + of.x_rows(layout)) * 2 / rates.arrive_bytes_per_us;
  const double rows = of.tile_rows(layout);
  const double multiplying = busiest_k * layout.width * rows * 2 / rates.flops_per_us;
  const double sums = (layout.n_parts - 1) * rows * layout.width * 4 / rates.sum_bytes_per_us;
  return rates.start_us + overlapped(reading, arriving, multiplying) + sums;
}

/// The same for cuBLASLt's first choice.
inline double cublas_cost_us(const BroadMatmul& of, const BroadRates& rates) {
  const auto weights = static_cast<double>(of.n * of.k);
  const double rows = of.row_groups() * kBroadRowGroup;
  return rates.cublas_start_us +
         overlapped(weights * 2 / rates.cublas_bytes_per_us, weights * rows * 2 / rates.cublas_flops_per_us) +
         (2 * of.n < of.k ? rates.cublas_split_us : 0);
}

/// The cheapest layout that keeps most of the blocks busy to the end; nothing where cuBLASLt costs less.
inline std::optional<BroadLayout> best_broad_layout(const BroadMatmul& of, int n_blocks, const BroadRates& rates) {
  constexpr double kFewestBusy = 0.75;
  constexpr double kAdvantageAsM =
      1.02;  // what must be gained, because such tiles cannot end with the activation of a gated block
  std::optional<BroadLayout> best;
  double least = cublas_cost_us(of, rates);
  const auto rank = [&](int width, bool weight_is_m) {
    for (int n_parts = 1; n_parts <= (width <= kMostCutWidth ? kMostBroadParts : 1); ++n_parts) {
      const BroadLayout layout{width, n_parts, weight_is_m};
      const BroadSchedule schedule = broad_schedule(layout, of.n, of.k);
      const int n_waves = (schedule.n_items() + n_blocks - 1) / n_blocks;
      if (!can_run(schedule, n_blocks) || schedule.n_items() < kFewestBusy * n_waves * n_blocks) continue;
      const double cost = broad_cost_us(of, layout, n_blocks, rates) * (weight_is_m ? kAdvantageAsM : 1);
      if (cost >= least) continue;
      least = cost;
      best = layout;
    }
  };
  for (const int width : kBroadWidths) rank(width, false);
  if (of.n_rows > kBroadRowGroup)
    for (const int width : kBroadWidthsAsM) rank(width, true);
  return best;
}

}  // namespace baton::cuda
