/// Block tables as a tree: the order that makes sharers neighbours, and the runs of blocks that neighbours share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace baton {

/// Positions [kv_begin, kv_end) that sequences [first_sequence, first_sequence + n_sequences) share, and nobody else.
struct PrefixNode {
  std::int32_t first_sequence = 0;
  std::int32_t n_sequences = 0;
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::int32_t parent = -1;  ///< index of the node that ends at kv_begin, or -1
  std::int32_t depth = 0;    ///< nodes above it
};

/// Blocks at the front that both tables have, at most `limit`, which neither may be shorter than.
std::int32_t count_common_blocks(const BlockId* a, const BlockId* b, std::int32_t limit);

/// Makes the tree of sequences whose neighbours i and i + 1 share their first common_len[i] positions; one element for each
/// pair of neighbours. Nodes come parents first, from the first sequence to the last. Its memory is reused from call to call.
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

/// Sorts block tables lexicographically (a table before those it is the beginning of; equal ones as they stood). Compares each
/// table with one other of its group, so a long shared prefix is read once a table. Memory is reused from call to call.
class TableSorter {
 public:
  /// Fills `order` with indices into `tables`.
  void sort(std::span<const std::span<const BlockId>> tables, std::vector<std::int32_t>& order);

 private:
  struct Entry {
    std::uint64_t key;
    std::int32_t table;
  };
  struct Group {
    std::size_t begin;
    std::size_t end;
    std::int32_t n_equal;  ///< blocks that all of the group's tables share
  };
  std::vector<Entry> entries_;
  std::vector<Group> groups_;
};

}  // namespace baton
