/// How the broad GEMM divides matmuls and chooses among its layouts: pure arithmetic, which needs no device.
#include "kernels/cuda/gemm/broad_layout.h"

#include <algorithm>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

constexpr int kBlocks = 132;  ///< multiprocessors of an H100 and an H200

std::string named(const std::optional<BroadLayout>& layout) {
  return layout ? std::to_string(layout->width) + "x" + std::to_string(layout->n_parts) : "cuBLASLt";
}

TEST(BroadLayout, parts_are_adjacent_and_hold_all_of_k) {
  for (const int width : kBroadWidths)
    for (int n_parts = 1; n_parts <= kMostBroadParts; ++n_parts)
      for (const std::int64_t k : {8, 64, 72, 128, 136, 2048, 4104, 17408}) {
        const BroadSchedule schedule = broad_schedule({width, n_parts}, 1000, k);
        if (!can_run(schedule, 1000)) continue;
        EXPECT_GE(schedule.n_tiles * width, 1000);
        EXPECT_LT((schedule.n_tiles - 1) * width, 1000);
        EXPECT_GE(schedule.k_stages * broad_boxes(width) * kBroadBoxK, k);
        EXPECT_EQ(schedule.begin(0), 0);
        EXPECT_EQ(schedule.begin(n_parts), schedule.k_stages);
        for (int part = 0; part < n_parts; ++part) EXPECT_LT(schedule.begin(part), schedule.begin(part + 1));
      }
}

// A block that waits for another's sums would wait for ever if the other could start only after it.
TEST(BroadLayout, items_of_cut_tiles_run_at_once) {
  EXPECT_TRUE(can_run(broad_schedule({64, 2}, 4096, 4096), kBlocks));
  EXPECT_FALSE(can_run(broad_schedule({64, 2}, 4096, 4096), 127));
  EXPECT_FALSE(can_run(broad_schedule({64, 2}, 4096, 512), kBlocks));  // the second part would be empty
  EXPECT_TRUE(can_run(broad_schedule({64, 1}, 4096, 512), 1));
  for (std::int64_t n = 8; n < 50000; n += 1144)
    for (const std::int64_t k : {128, 1024, 5120})
      for (const std::int64_t n_rows : {33, 64, 65, 128})
        if (const auto layout = best_broad_layout({n_rows, n, k}, kBlocks, kBroadRatesOfH200)) {
          EXPECT_TRUE(can_run(broad_schedule(*layout, n, k), kBlocks)) << n << " x " << k;
        }
}

TEST(BroadLayout, sums_of_all_cut_tiles_have_room) {
  for (const int width : kBroadWidths)
    for (std::int64_t n = 8; n < 30000 && width <= kMostCutWidth; n += 72) {
      const BroadSchedule schedule = broad_schedule({width, kMostBroadParts}, n, 4096);
      if (can_run(schedule, kBlocks)) {
        EXPECT_LE(schedule.n_tiles * width, kBlocks / kMostBroadParts * kMostCutWidth);
      }
    }
}

// Layouts that were the fastest of all on an H200, or within 2% (bench/results/streaming-gemm.md).
TEST(BroadLayout, weights_of_models_have_fast_layouts) {
  struct Row {
    std::int64_t n, k, n_rows;
    const char* layout;
  };
  for (const Row& row : {Row{12288, 4096, 64, "96x1"},
                         {4096, 4096, 48, "64x2"},

                         {22016, 4096, 64, "168x1"},
                         {4096, 11008, 64, "64x2"},
                         {4096, 11008, 128, "64x2"},
                         {6144, 4096, 64, "48x1"},
                         {28672, 4096, 48, "224x1"},
                         {28672, 4096, 128, "224x1"},
                         {4096, 14336, 64, "64x2"},
                         {10240, 8192, 48, "80x1"},
                         {8192, 8192, 48, "64x1"},
                         {8192, 22016, 96, "128x2"},
                         {5120, 17408, 128, "80x2"},
                         {3072, 8192, 96, "48x2"},
                         {44032, 8192, 128, "168x1"}})
    EXPECT_EQ(named(best_broad_layout({row.n_rows, row.n, row.k}, kBlocks, kBroadRatesOfH200)), row.layout)
        << row.n << " x " << row.k << ", " << row.n_rows << " rows";
}

// cuBLASLt was faster there.
TEST(BroadLayout, weights_that_cublas_multiplies_faster_stay_with_it) {
  for (const BroadMatmul& of :
       {BroadMatmul{128, 128256, 4096}, {128, 5120, 5120}, {128, 8192, 8192}, {128, 3072, 3072}, {128, 5120, 3072}})
    EXPECT_EQ(named(best_broad_layout(of, kBlocks, kBroadRatesOfH200)), "cuBLASLt") << of.n << " x " << of.k;
}

// A few tiles leave most of the device idle.
TEST(BroadLayout, small_weights_stay_with_cublas) {
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{512, 8192}, {768, 768}, {1024, 4096}, {8, 8}})
    EXPECT_EQ(named(best_broad_layout({64, n, k}, kBlocks, kBroadRatesOfH200)), "cuBLASLt") << n << " x " << k;
}

TEST(BroadLayout, costs_grow_with_rows_and_with_the_weight) {
  for (const int width : kBroadWidths) {
    const BroadLayout layout{width, 1};
    const auto cost = [&](std::int64_t n_rows, std::int64_t n, std::int64_t k) {
      return broad_cost_us({n_rows, n, k}, layout, kBlocks, kBroadRatesOfH200);
    };
    EXPECT_LT(cost(64, 8192, 4096), cost(128, 8192, 4096));
    EXPECT_LT(cost(64, 8192, 4096), cost(64, 16384, 4096));
    EXPECT_LT(cost(64, 8192, 4096), cost(64, 8192, 8192));
  }
  EXPECT_LT(cublas_cost_us({64, 8192, 4096}, kBroadRatesOfH200), cublas_cost_us({64, 8192, 8192}, kBroadRatesOfH200));
}

}  // namespace
}  // namespace baton::cuda
