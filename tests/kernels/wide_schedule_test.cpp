/// Which tiles and stages each block of the wide GEMM multiplies: pure arithmetic, which needs no device.
#include "kernels/cuda/schemes/wide_schedule.h"

#include <set>
#include <utility>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

/// Of an H100 of 132 multiprocessors.
constexpr WideClusters kClustersOfH100{0, 132, 66, 39, 30};

TEST(WideSchedule, rows_take_the_fewest_passes_and_then_the_narrowest_kernel) {
  EXPECT_EQ(wide_width(1), 160);
  EXPECT_EQ(wide_width(160), 160);
  EXPECT_EQ(wide_width(161), 192);
  EXPECT_EQ(wide_width(193), 256);
  EXPECT_EQ(wide_width(256), 256);
  EXPECT_EQ(wide_width(257), 160);
  EXPECT_EQ(wide_width(321), 192);
  EXPECT_EQ(wide_width(385), 256);
  for (int n_rows = 1; n_rows < 3000; ++n_rows) {
    const int width = wide_width(n_rows);
    EXPECT_EQ((n_rows + width - 1) / width, (n_rows + kMostWideWidth - 1) / kMostWideWidth) << n_rows;
  }
}

TEST(WideSchedule, every_tile_of_the_weight_meets_every_pass_once) {
  for (const auto& [n_row_tiles, n_passes] : {std::pair{1, 1}, {48, 1}, {3, 5}, {7, 8}, {5, 9}, {2, 33}}) {
    std::set<std::pair<int, int>> seen;
    for (int i = 0; i < n_row_tiles * n_passes; ++i) {
      const WideGemmTile tile = wide_tile(i, n_row_tiles, n_passes);
      EXPECT_TRUE(0 <= tile.weight && tile.weight < n_row_tiles && 0 <= tile.pass && tile.pass < n_passes);
      EXPECT_TRUE(seen.emplace(tile.weight, tile.pass).second);
    }
  }
}

TEST(WideSchedule, tiles_of_one_round_have_few_passes) {
  std::set<int> passes;
  for (int i = 0; i < 132; ++i) passes.insert(wide_tile(i, 224, 32).pass);
  EXPECT_EQ(passes.size(), 8u);
}

TEST(WideSchedule, blocks_of_a_cluster_divide_the_stages_of_a_tile) {
  for (const int k_stages : {1, 2, 5, 64, 224})
    for (int n_blocks = 1; n_blocks <= 4 && n_blocks <= k_stages; ++n_blocks) {
      int end = 0;
      for (int rank = 0; rank < n_blocks; ++rank) {
        const WideStages stages = wide_stages(k_stages, rank, n_blocks);
        EXPECT_EQ(stages.begin, end);
        EXPECT_LT(stages.begin, stages.end);
        end = stages.end;
      }
      EXPECT_EQ(end, k_stages);
    }
}

TEST(WideSchedule, tiles_are_divided_where_blocks_would_have_none) {
  EXPECT_EQ(wide_plan(48, 64, kClustersOfH100).n_blocks, 2);   // q, k and v of Llama-3-8B
  EXPECT_EQ(wide_plan(32, 224, kClustersOfH100).n_blocks, 3);  // down
  EXPECT_EQ(wide_plan(24, 224, kClustersOfH100).n_blocks, 4);
  EXPECT_EQ(wide_plan(224, 64, kClustersOfH100).n_blocks, 1);   // gate and up
  EXPECT_EQ(wide_plan(8, 1, kClustersOfH100).n_blocks, 1);      // one stage
  EXPECT_EQ(wide_plan(8, 200, {0, 100, 0, 0, 0}).n_blocks, 1);  // a device without clusters
}

TEST(WideSchedule, clusters_that_divide_tiles_have_one_and_run_at_once) {
  for (int n_tiles = 1; n_tiles < 600; n_tiles += 7)
    for (const int k_stages : {1, 3, 16, 64, 224}) {
      const WidePlan plan = wide_plan(n_tiles, k_stages, kClustersOfH100);
      EXPECT_EQ(plan.n_tiles, n_tiles);
      EXPECT_LE(plan.n_blocks, k_stages);
      EXPECT_LE(plan.n_clusters, kClustersOfH100[static_cast<unsigned>(plan.n_blocks)]);
      if (plan.n_blocks > 1) {
        EXPECT_EQ(plan.n_clusters, n_tiles);
      }
    }
}

TEST(WideSchedule, tiles_by_x_in_8_bits_are_divided_where_blocks_would_have_none_and_share_x_elsewhere) {
  EXPECT_EQ(f8_plan(48, 32, 128, kClustersOfH100).cluster, 2);  // q, k and v of Llama-3-8B
  EXPECT_FALSE(f8_plan(48, 32, 128, kClustersOfH100).shares_x);
  EXPECT_EQ(f8_plan(32, 112, 256, kClustersOfH100).cluster, 3);   // down
  EXPECT_TRUE(f8_plan(32, 112, 1024, kClustersOfH100).shares_x);  // the same in four tiles of x
  EXPECT_TRUE(f8_plan(224, 32, 2048, kClustersOfH100).shares_x);  // gate and up
  EXPECT_EQ(f8_plan(224, 32, 256, kClustersOfH100).cluster, 1);   // and for one tile of x
  EXPECT_EQ(f8_plan(8, 1, 64, kClustersOfH100).cluster, 1);       // one stage
  EXPECT_EQ(f8_plan(1, 1, 300, kClustersOfH100).cluster, 1);      // one tile of the weight
}

}  // namespace
}  // namespace baton::cuda
