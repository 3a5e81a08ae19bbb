/// The nodes of the prefix tree, for the files that implement it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/ids.h"
#include "engine/cache/block_hash.h"
#include "engine/cache/prefix_tree.h"

namespace baton {

/// Entry i holds tokens [i * block_len, (i + 1) * block_len) of `tokens`; steps from usable_from[i] on may read it.
struct PrefixTree::Node {
  Node* parent = nullptr;
  std::map<BlockHash, std::unique_ptr<Node>> children;  ///< by the hash of their first entry
  std::int32_t first_index = 0;                         ///< entries above, from the root on
  std::vector<BlockId> blocks;                          ///< [entries][groups]; invalid: dropped
  std::vector<BlockHash> hashes;
  std::vector<std::int64_t> usable_from;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> snapshots;  ///< slots of states at the ends of some entries, in their order
  std::int32_t n_references = 0;
  std::int32_t n_pins = 0;
  std::uint64_t last_used = 0;
  std::uint32_t n_reuses = 0;
  std::uint64_t serial = 0;
  bool is_listed = false;  ///< in evictable_leaves_, under listed_claim
  std::uint64_t listed_claim = 0;

  bool is_evictable() const { return parent != nullptr && n_references == 0 && n_pins == 0; }
  std::size_t n_entries() const { return usable_from.size(); }
  std::int32_t end_index() const { return first_index + static_cast<std::int32_t>(n_entries()); }
};

}  // namespace baton
