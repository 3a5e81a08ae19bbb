#include "plan/pieces.h"

#include <array>

#include <gtest/gtest.h>

namespace baton {
namespace {

const AttentionShape kPieceShape = {.n_heads = 8, .n_kv_heads = 2, .head_dim = 64};

PlanTile tile_of(std::int32_t kv_begin, std::int32_t kv_end) {
  PlanTile tile;
  tile.n_rows = 1;
  tile.kv_begin = kv_begin;
  tile.kv_end = kv_end;
  tile.alone = tile.is_first = true;
  return tile;
}

AttentionPlanOptions piece_options(bool batch_invariant) {
  AttentionPlanOptions options;
  options.batch_invariant = batch_invariant;
  options.costs.n_workers = 64;
  options.costs.item_us = 0.01;
  options.costs.min_piece = 64;
  return options;
}

/// Cuts tiles of which each is a batch.
template <std::size_t n>
void cut(PieceCutter& cutter, std::array<PlanTile, n>& tiles, bool batch_invariant, std::size_t n_shared = 0) {
  std::array<TileBatch, n> batches;
  for (std::size_t i = 0; i < n; ++i) batches[i] = {static_cast<std::int32_t>(i), 1};
  const AttentionPlanOptions options = piece_options(batch_invariant);
  const AttentionCostModel model(kPieceShape, options.costs);
  cutter.cut(tiles, batches, n_shared, kPieceShape, options, model, options.costs.n_workers, 1);
}

TEST(AttentionPieces, cover_a_tile_without_gaps_and_begin_where_their_mode_cuts) {
  for (const bool invariant : {false, true}) {
    std::array tiles = {tile_of(300, 9000)};
    PieceCutter cutter;
    cut(cutter, tiles, invariant);
    const PlanTile& tile = tiles[0];
    ASSERT_GT(tile.n_pieces, 4);
    EXPECT_FALSE(tile.is_direct());
    EXPECT_EQ(tile.piece_begin(0, invariant), 300);
    EXPECT_EQ(tile.piece_begin(tile.n_pieces, invariant), 9000);
    for (std::int32_t i = 1; i < tile.n_pieces; ++i) {
      const std::int32_t begin = tile.piece_begin(i, invariant);
      EXPECT_GT(begin, tile.piece_begin(i - 1, invariant));
      EXPECT_EQ(invariant ? begin % kAttentionChunk : (begin - 300) % kCutGrain, 0) << begin;
    }
  }
}

TEST(AttentionPieces, are_as_short_as_the_costs_allow_for_the_length_of_the_run) {
  AttentionPlanOptions options = piece_options(false);
  options.costs.min_piece = 256;
  options.costs.min_piece_of_long = 128;
  options.costs.long_run = 2048;
  EXPECT_EQ(least_piece(2047, options), 256);
  EXPECT_EQ(least_piece(2048, options), 128);
  options.batch_invariant = true;
  EXPECT_EQ(least_piece(2048, options), kAttentionChunk);
  options.costs.min_piece = options.costs.min_piece_of_long = 512;
  for (const bool invariant : {false, true}) {
    options.batch_invariant = invariant;
    EXPECT_EQ(least_piece(4096, options), 512);
  }
}

TEST(AttentionPieces, in_batch_invariant_mode_only_a_first_piece_has_several_chunks) {
  std::array tiles = {tile_of(0, 8192), tile_of(8192, 16384)};
  tiles[1].is_first = tiles[0].alone = tiles[1].alone = false;
  PieceCutter cutter;
  cut(cutter, tiles, true);
  EXPECT_GT(tiles[0].first_chunks, 1);
  EXPECT_EQ(tiles[0].first_chunks + tiles[0].n_pieces - 1, 32);
  EXPECT_EQ(tiles[1].first_chunks, 1);
  EXPECT_EQ(tiles[1].n_pieces, 32);
}

TEST(AttentionPieces, shared_batches_start_first_and_of_the_others_the_longest) {
  std::array tiles = {tile_of(0, 64), tile_of(0, 100), tile_of(0, 900), tile_of(0, 400)};
  PieceCutter cutter;
  cut(cutter, tiles, false, 1);
  EXPECT_EQ(cutter.batch_at(0), 0u);
  EXPECT_EQ(cutter.batch_at(1), 2u);
  EXPECT_EQ(cutter.batch_at(2), 3u);
  EXPECT_EQ(cutter.batch_at(3), 1u);
  cutter.cut_nothing(tiles, 4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(cutter.batch_at(i), i);
    EXPECT_TRUE(tiles[i].is_direct());
  }
}

TEST(AttentionPieces, a_piece_longer_than_a_heads_share_of_the_work_starts_with_all_heads_at_once) {
  std::array tiles = {tile_of(0, 6400), tile_of(0, 640), tile_of(0, 640)};
  PieceCutter cutter;
  cut(cutter, tiles, false);
  EXPECT_EQ(cutter.n_item_major(0, 2, 1e9), 0u);
  for (PlanTile& tile : tiles) tile.kv_end = 64;  // too short to cut
  tiles[0].kv_end = 127;
  cut(cutter, tiles, false);
  EXPECT_EQ(cutter.n_item_major(0, 2, 0), 1u);
}

}  // namespace
}  // namespace baton
