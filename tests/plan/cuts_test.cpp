#include "plan/cuts.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

CutRun run_of(std::int32_t n_keys, std::int32_t pairs) {
  return {
      .n_keys = n_keys, .max_pieces = n_keys / 64, .pairs_a_piece = pairs, .key_us = 0.01, .fixed_us = 0.1, .partial_us = 0.1};
}

TEST(AttentionCuts, leaves_whole_what_fills_the_workers_evenly) {
  std::vector<CutRun> runs(16, run_of(1000, 2));
  RunCutter cutter;
  const CutResult result = cutter.cut(runs, 8, 1);
  for (const CutRun& run : runs) EXPECT_EQ(run.n_pieces, 1);
  EXPECT_NEAR(result.busy_us, 4 * 10.1, 1e-9);
  EXPECT_NEAR(result.makespan_us, result.busy_us, 0.2);
}

TEST(AttentionCuts, cuts_one_run_over_all_workers) {
  std::vector<CutRun> runs(1, run_of(64 * 100, 1));
  RunCutter cutter;
  const CutResult result = cutter.cut(runs, 10, 1);
  EXPECT_EQ(runs[0].n_pieces, 10);
  EXPECT_NEAR(result.makespan_us, 6.4 + 0.2, 0.05);
}

TEST(AttentionCuts, cuts_only_items_that_find_no_room) {
  std::vector<CutRun> runs(9, run_of(64 * 32, 1));
  RunCutter cutter;
  const CutResult result = cutter.cut(runs, 8, 1);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(runs[i].n_pieces, 1) << i;
  EXPECT_GE(runs[8].n_pieces, 4);
  EXPECT_LT(result.makespan_us, 1.1 * result.busy_us);
}

TEST(AttentionCuts, makes_no_more_pieces_than_allowed_and_says_how_it_ends) {
  std::vector<CutRun> runs(1, run_of(64 * 100, 1));
  runs[0].max_pieces = 3;
  RunCutter cutter;
  const CutResult result = cutter.cut(runs, 10, 1);
  EXPECT_EQ(runs[0].n_pieces, 3);
  EXPECT_NEAR(result.makespan_us, 34 * 0.64 + 0.2, 0.05);
  runs[0] = run_of(10, 1);
  cutter.cut(runs, 10, 1);
  EXPECT_EQ(runs[0].n_pieces, 1);
}

TEST(AttentionCuts, a_run_whose_room_is_billions_of_stages_too_small_has_the_pieces_it_may) {  // float-cast-overflow
  std::vector<CutRun> runs(9, run_of(64 * 100, 1));
  for (CutRun& run : runs) {
    run.key_us = 1e-9;
    run.fixed_us = 1000;
  }
  RunCutter cutter;
  const CutResult result = cutter.cut(runs, 8, 1);
  for (const CutRun& run : runs) {
    EXPECT_GE(run.n_pieces, 1);
    EXPECT_LE(run.n_pieces, run.max_pieces);
  }
  EXPECT_GE(result.makespan_us, 1000);
}

TEST(AttentionCuts, coarser_makes_fewer_pieces) {
  std::vector<CutRun> runs(3, run_of(64 * 100, 2));
  RunCutter cutter;
  cutter.cut(runs, 30, 1);
  const std::int32_t fine = runs[0].n_pieces;
  cutter.cut(runs, 30, 4);
  EXPECT_LT(runs[0].n_pieces, fine);
  EXPECT_EQ(cutter.cut({}, 30, 1).makespan_us, 0);
}

}  // namespace
}  // namespace baton
