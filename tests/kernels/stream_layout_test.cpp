/// Which stages each block of the streaming GEMM multiplies: pure arithmetic, which needs no device.
#include "kernels/cuda/gemm/stream_layout.h"

#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

TEST(StreamLayout, every_stage_has_one_block_and_runs_differ_by_one_stage) {
  for (const StreamSchedule& schedule : {StreamSchedule{1, 1, 1}, StreamSchedule{2, 264, 132}, StreamSchedule{64, 32, 132},
                                         StreamSchedule{7, 5, 3}, StreamSchedule{448, 32, 132}, StreamSchedule{66, 8, 132}}) {
    const int n_stages = schedule.n_tiles * schedule.k_stages;
    std::set<std::pair<int, int>> seen;
    EXPECT_EQ(schedule.begin(0), 0);
    EXPECT_EQ(schedule.begin(schedule.n_blocks), n_stages);
    for (int block = 0; block < schedule.n_blocks; ++block) {
      const int length = schedule.begin(block + 1) - schedule.begin(block);
      EXPECT_GE(length, n_stages / schedule.n_blocks);
      EXPECT_LE(length, (n_stages + schedule.n_blocks - 1) / schedule.n_blocks);
      StreamStage stage{schedule.begin(block) / schedule.k_stages, schedule.begin(block) % schedule.k_stages};
      StreamWalk walk(schedule, block);
      StreamSegment segment;
      int n_seen = 0;
      while (walk.next(segment)) {
        // Only a block's first segment gives its sums away: each block has room for one.
        if (n_seen > 0) {
          EXPECT_EQ(segment.begin, 0);
        }
        EXPECT_LE(segment.end, schedule.k_stages);
        for (int k = segment.begin; k < segment.end; ++k, ++n_seen, stage.advance(schedule.k_stages)) {
          EXPECT_TRUE(seen.emplace(segment.tile, k).second);
          EXPECT_EQ(stage.tile, segment.tile);
          EXPECT_EQ(stage.k, k);
        }
      }
      EXPECT_EQ(n_seen, length);
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(n_stages));
    EXPECT_EQ(seen.rbegin()->first, schedule.n_tiles - 1);
  }
}

TEST(StreamLayout, every_sum_has_one_thread_before_and_after_the_transposition) {
  constexpr int kGroups = 4;
  constexpr int kThreads = 128;
  std::set<std::pair<int, int>> places;
  std::set<std::pair<int, int>> transposed;
  for (int thread = 0; thread < kThreads; ++thread)
    for (int group = 0; group < kGroups; ++group) {
      for (int i = 0; i < 4; ++i) places.emplace(stream_row(thread, i), stream_column(thread, group, i));
      for (int half = 0; half < 2; ++half)
        for (int neighbour = 0; neighbour < 2; ++neighbour)
          transposed.emplace(stream_transposed_row(thread, half) + neighbour, stream_transposed_column(thread, group));
    }
  EXPECT_EQ(places.size(), static_cast<std::size_t>(kStreamTileRows * kGroups * 8));
  EXPECT_EQ(places, transposed);
  EXPECT_EQ(*places.rbegin(), std::make_pair(kStreamTileRows - 1, kGroups * 8 - 1));
}

// Lane l holds the values (l / 4, 2 (l % 4)) and their neighbours of an 8 x 8 matrix, before and after.
TEST(StreamLayout, a_transposed_pair_is_the_transposed_matrix) {
  for (int warp = 0; warp < 4; ++warp)
    for (int half = 0; half < 2; ++half)
      for (int lane = 0; lane < 32; ++lane) {
        const int thread = warp * 32 + lane;
        // Row and column of the matrix that come to this lane: before, they were column and row.
        const int from_lane = lane % 4 * 2 * 4 + lane / 4 / 2;
        const int from = warp * 32 + from_lane;
        EXPECT_EQ(stream_transposed_row(thread, half), stream_row(from, 2 * half));
        EXPECT_EQ(stream_transposed_column(thread, 1), stream_column(from, 1, 2 * half + lane / 4 % 2));
      }
}

}  // namespace
}  // namespace baton::cuda
