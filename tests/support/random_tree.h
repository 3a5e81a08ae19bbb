/// Random batches of sequences whose block tables form a tree, for tests of the planner and of attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "plan/attention_plan.h"

namespace baton::testing {

/// Block tables and the sequences that view them, in depth-first order.
struct Batch {
  std::vector<std::vector<BlockId>> tables;
  std::vector<SequenceRows> sequences;
  std::int32_t n_blocks = 0;

  /// Appends a sequence whose table begins with `shared` and continues with new blocks up to kv_len.
  void add(std::vector<BlockId> shared, std::int32_t kv_len, std::int32_t n_rows, std::int32_t block_len) {
    const auto n_needed = static_cast<std::size_t>((kv_len + block_len - 1) / block_len);
    while (shared.size() < n_needed) shared.push_back(BlockId{n_blocks++});
    tables.push_back(std::move(shared));
    lens.push_back({kv_len, n_rows});
  }
  std::vector<BlockId> fresh_blocks(std::int32_t n) {
    std::vector<BlockId> made;
    for (std::int32_t i = 0; i < n; ++i) made.push_back(BlockId{n_blocks++});
    return made;
  }
  /// Renumbers blocks at random and sorts the sequences in depth-first order.
  void finish(std::mt19937& random) {
    std::vector<std::int32_t> name(static_cast<std::size_t>(n_blocks));
    for (std::int32_t i = 0; i < n_blocks; ++i) name[static_cast<std::size_t>(i)] = i;
    std::shuffle(name.begin(), name.end(), random);
    for (auto& table : tables)
      for (BlockId& block : table) block.value = name[static_cast<std::size_t>(block.value)];
    std::vector<SequenceRows> unordered;
    for (std::size_t i = 0; i < tables.size(); ++i)
      unordered.push_back({SlotId{static_cast<std::int32_t>(i)}, tables[i], lens[i].first, lens[i].second});
    sequences.clear();
    for (const std::int32_t index : depth_first_order(unordered))
      sequences.push_back(unordered[static_cast<std::size_t>(index)]);
  }

  std::vector<std::pair<std::int32_t, std::int32_t>> lens;
};

/// `n` sequences of one row that share a prefix of `shared_len` positions (full blocks) and have `own_len` of their
/// own, and one sequence of `long_len` that shares nothing, unless that is 0.
inline Batch prefix_batch(std::int32_t n, std::int32_t own_len, std::int32_t shared_len, std::int32_t block_len,
                          std::int32_t long_len = 0) {
  Batch batch;
  const std::vector<BlockId> prefix = batch.fresh_blocks(shared_len / block_len);
  for (std::int32_t i = 0; i < n; ++i) batch.add(prefix, shared_len + own_len, 1, block_len);
  if (long_len > 0) batch.add({}, long_len, 1, block_len);
  std::mt19937 random(1);
  batch.finish(random);
  return batch;
}

/// A tree of at most `max_depth` levels and `max_sequences` sequences, each with 1 to max_rows rows.
inline Batch random_batch(std::mt19937& random, int max_depth, int max_sequences, int max_rows, std::int32_t block_len) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Batch batch;
  std::vector<std::vector<BlockId>> prefixes{{}};
  const int n_nodes = pick(0, 2 * max_depth);
  std::vector<int> depth{0};
  for (int i = 0; i < n_nodes; ++i) {
    const auto parent = static_cast<std::size_t>(pick(0, static_cast<int>(prefixes.size()) - 1));
    if (depth[parent] >= max_depth) continue;
    std::vector<BlockId> path = prefixes[parent];
    const std::vector<BlockId> own = batch.fresh_blocks(pick(1, 40));
    path.insert(path.end(), own.begin(), own.end());
    prefixes.push_back(std::move(path));
    depth.push_back(depth[parent] + 1);
  }
  const int n_sequences = pick(1, max_sequences);
  for (int i = 0; i < n_sequences; ++i) {
    const std::vector<BlockId>& prefix = prefixes[static_cast<std::size_t>(pick(0, static_cast<int>(prefixes.size()) - 1))];
    const int n_rows = pick(0, 3) == 0 ? pick(1, max_rows) : 1;
    const int kv_len = static_cast<int>(prefix.size()) * block_len + n_rows + (pick(0, 2) == 0 ? 0 : pick(0, 300));
    batch.add(prefix, kv_len, n_rows, block_len);
  }
  batch.finish(random);
  return batch;
}

}  // namespace baton::testing
