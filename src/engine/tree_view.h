/// A picture of the prefix tree: which runs of tokens are in use, and by how many sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/kv_cache.h"

namespace baton {

/// A run of cached tokens. Its tokens follow those of its parent.
struct TreeViewNode {
  std::int32_t parent = -1;  ///< an earlier node of the list; -1: it begins at position 0
  std::int32_t n_tokens = 0;
  std::int32_t n_sequences = 0;  ///< running sequences whose cached tokens go through it
  bool is_pinned = false;        ///< a registered prefix goes through it
  std::uint64_t hash = 0;        ///< of its last block and all before it; two contents differ in it
};

/// The nodes that running sequences use or registered prefixes pin, parents before their children. Of the tree's other
/// nodes only the tokens are known.
struct TreeView {
  std::vector<TreeViewNode> nodes;
  std::int64_t n_cached_tokens = 0;  ///< of the whole tree
  std::int32_t n_left_out = 0;       ///< nodes that the limit left out
};

/// The most nodes of a view; the most used ones are kept.
inline constexpr std::size_t kMostViewNodes = 512;

/// `tables`: of the running sequences; `pins`: of the registered prefixes. A few microseconds for each. Thread: engine.
TreeView view_tree(std::span<const BlockTable* const> tables, std::span<const KvCache::Pin> pins, const KvCache& cache);

}  // namespace baton
