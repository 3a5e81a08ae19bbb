/// The cutting of tiles into pieces, in both modes.
#include "plan/pieces.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "plan/nodes.h"

namespace baton {
namespace {

std::int32_t ceil_div(std::int32_t a, std::int32_t b) { return (a + b - 1) / b; }

CutRun cut_run_of(const TileBatch& batch, std::span<const PlanTile> tiles, const AttentionShape& shape,
                  const AttentionPlanOptions& options, const AttentionCostModel& model) {
  CutRun run;
  run.pairs_a_piece = batch.n_tiles * shape.n_kv_heads;
  run.fixed_us = options.costs.item_us;
  for (const PlanTile& tile : tiles.subspan(at(batch.first_tile), at(batch.n_tiles))) {
    run.n_keys = std::max(run.n_keys, tile.kv_end - tile.kv_begin);
    run.always_partial |= !tile.alone;
  }
  const std::int32_t n_rows = tiles[at(batch.first_tile)].n_rows;
  run.key_us = model.worker_key_us(n_rows);
  run.partial_us = model.worker_partials_us(n_rows);
  run.max_pieces = std::max(1, run.n_keys / least_piece(run.n_keys, options));
  return run;
}

void set_pieces(PlanTile& tile, std::int32_t n_pieces, bool batch_invariant) {
  if (batch_invariant) {
    // States are folded chunk by chunk, and folds do not associate: only a row's first piece may have several.
    const std::int32_t n_chunks = (tile.kv_end - 1) / kAttentionChunk - tile.kv_begin / kAttentionChunk + 1;
    tile.first_chunks = tile.is_first ? ceil_div(n_chunks, n_pieces) : 1;
    tile.n_pieces = 1 + n_chunks - tile.first_chunks;
  } else {
    tile.n_pieces = std::min(n_pieces, ceil_div(tile.kv_end - tile.kv_begin, kCutGrain));
  }
}

}  // namespace

std::int32_t least_piece(std::int32_t n_keys, const AttentionPlanOptions& options) {
  const AttentionCosts& costs = options.costs;
  if (options.batch_invariant) return std::max(costs.min_piece, kAttentionChunk);
  return n_keys < costs.long_run ? costs.min_piece : costs.min_piece_of_long;
}

std::int32_t PlanTile::piece_begin(std::int32_t index, bool batch_invariant) const {
  if (index == 0) return kv_begin;
  if (index == n_pieces) return kv_end;
  if (batch_invariant) return (kv_begin / kAttentionChunk + first_chunks + index - 1) * kAttentionChunk;
  const std::int64_t n_stages = ceil_div(kv_end - kv_begin, kCutGrain);
  return kv_begin + static_cast<std::int32_t>(n_stages * index / n_pieces) * kCutGrain;
}

void PieceCutter::sort(std::size_t n_shared) {
  // The order of the cut before comes first: as long as the same sequences decode, it is the right one.
  if (order_.size() != runs_.size()) {
    order_.resize(runs_.size());
    std::iota(order_.begin(), order_.end(), std::uint64_t{0});
  }
  for (std::uint64_t& key : order_) {
    const std::uint64_t i = key & 0xffffffffu;
    // Shared runs first; in each group the longest first. The bits of positive floats sort as the floats do.
    const auto us = static_cast<float>(runs_[i].key_us * runs_[i].n_keys);
    const std::uint64_t descending = 0x7fffffffu - std::bit_cast<std::uint32_t>(us);
    key = (i < n_shared ? 0 : std::uint64_t{1} << 63) | (descending << 32) | i;
  }
  if (!std::ranges::is_sorted(order_)) std::ranges::sort(order_);
  sorted_.resize(runs_.size());
  for (std::size_t i = 0; i < runs_.size(); ++i) sorted_[i] = runs_[batch_at(i)];
}

CutResult PieceCutter::cut(std::span<PlanTile> tiles, std::span<const TileBatch> batches, std::size_t n_shared,
                           const AttentionShape& shape, const AttentionPlanOptions& options, const AttentionCostModel& model,
                           std::int32_t n_workers, double coarser) {
  runs_.resize(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) runs_[i] = cut_run_of(batches[i], tiles, shape, options, model);
  sort(n_shared);
  const CutResult result = cutter_.cut(sorted_, n_workers, coarser);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const TileBatch& batch = batches[batch_at(i)];
    for (PlanTile& tile : tiles.subspan(at(batch.first_tile), at(batch.n_tiles)))
      set_pieces(tile, sorted_[i].n_pieces, options.batch_invariant);
  }
  return result;
}

void PieceCutter::cut_nothing(std::span<PlanTile> tiles, std::size_t n_batches) {
  order_.resize(n_batches);
  std::iota(order_.begin(), order_.end(), std::uint64_t{0});
  for (PlanTile& tile : tiles) tile.n_pieces = 1;
}

std::size_t PieceCutter::n_item_major(std::size_t n_shared, std::int32_t n_kv_heads, double busy_us) const {
  const std::size_t n_batches = order_.size();
  std::size_t n = n_shared;
  if (runs_.size() != n_batches || n == n_batches) return n;
  const auto piece_us = [&](const CutRun& run) { return run.key_us * run.n_keys / run.n_pieces + run.fixed_us; };
  double shortest_us = std::numeric_limits<double>::infinity();
  for (std::size_t i = n; i < n_batches; ++i) shortest_us = std::min(shortest_us, piece_us(sorted_[i]));
  const double may_wait_us = std::max(busy_us / n_kv_heads, 1.1 * shortest_us);
  for (std::size_t i = n; i < n_batches; ++i)
    if (piece_us(sorted_[i]) > may_wait_us) n = i + 1;
  return n;
}

}  // namespace baton
