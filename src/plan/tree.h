/// Block tables as a tree: sorts sequences so that sequences with common blocks are neighbours, and finds the runs
/// they share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace baton {

/// Positions [kv_begin, kv_end), shared by exactly the sequences [first_sequence, first_sequence + n_sequences).
struct PrefixNode {
  std::int32_t first_sequence = 0;
  std::int32_t n_sequences = 0;
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::int32_t parent = -1;  ///< index of the node that ends at kv_begin, or -1
  std::int32_t depth = 0;    ///< number of nodes above it
};

/// Length of the common beginning of two tables in blocks, at most `limit`. Both tables have at least `limit` blocks.
/// `likely` is a guess of the result, 0 for none; a right one saves time.
std::int32_t count_common_blocks(const BlockId* a, const BlockId* b, std::int32_t limit, std::int32_t likely);

/// Builds the tree of sequences of which neighbours i and i + 1 share their first common_len[i] positions. Nodes are
/// listed parents first, from the first sequence to the last. Reuses its memory from call to call.
class PrefixTreeBuilder {
 public:
  void build(std::span<const std::int32_t> common_len, std::vector<PrefixNode>& nodes);

 private:
  struct Open {
    std::int32_t kv_end;
    std::int32_t last_sequence;
  };
  std::vector<Open> open_;
  std::vector<std::int32_t> path_;
};

/// Sorts block tables lexicographically. A table comes before longer tables that begin with it; equal tables keep
/// their order. Each table is compared with one other table of its group, so a long shared prefix is read once for
/// each table. Where the order of the call before still sorts as many tables, they are only compared with their
/// neighbours. Reuses its memory from call to call.
class TableSorter {
 public:
  /// Indices into `tables`, valid until the next call.
  std::span<const std::int32_t> sort(std::span<const std::span<const BlockId>> tables);

 private:
  struct Entry {
    std::uint64_t key;
    std::int32_t table;
  };
  struct Group {
    std::size_t begin;
    std::size_t end;
    std::int32_t n_equal;  ///< number of blocks that all tables of the group share
  };
  bool is_still_sorted(std::span<const std::span<const BlockId>> tables) const;
  void sort_anew(std::span<const std::span<const BlockId>> tables);

  std::vector<std::int32_t> order_;  ///< of the last call: each index once
  std::vector<Entry> entries_;
  std::vector<Group> groups_;
};

}  // namespace baton
