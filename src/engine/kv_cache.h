/// The KV cache as bookkeeping: block numbers for sequences, shared through the prefix tree. It touches no storage.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "engine/block_hash.h"
#include "engine/block_pool.h"
#include "engine/prefix_tree.h"
#include "engine/request.h"

namespace baton {

/// The blocks of one sequence. The first n_cached_blocks belong to the prefix tree, whose `node` ends with the last of them and
/// on which the sequence holds a reference; the rest are private. While it waits it has no blocks, but may keep its hashes.
struct BlockTable {
  CacheScope scope;
  std::vector<BlockId> blocks;
  std::int32_t n_cached_blocks = 0;
  PrefixTree::Node* node = nullptr;  ///< null before begin and after release
  std::vector<BlockHash> hashes;     ///< of the first full blocks of the sequence's tokens
};

/// BlockPool and PrefixTree joined. A block is held by the tree (once) and by every table that names it.
///
/// Invariants (check_invariants): the pool's counts are exactly those holders; every table's reference is counted in the tree;
/// nothing else is in use. Without prefix caching there is no tree: nothing is matched, published or pinned. Thread: engine
/// only.
class KvCache {
 public:
  /// `life_of_reuse`: see PrefixTree; 0 evicts what was used least recently.
  KvCache(std::int32_t n_blocks, std::int32_t block_len, bool enable_prefix_caching,
          double life_of_reuse = PrefixTree::kLifeOfReuse);

  std::int32_t block_len() const { return block_len_; }
  std::int32_t n_blocks() const { return pool_.n_blocks(); }
  bool has_prefix_caching() const { return tree_.has_value(); }
  /// Blocks that could be handed out now: free ones, and cached ones that nobody holds.
  std::int32_t n_available() const { return pool_.n_free() + (tree_ ? tree_->n_evictable() : 0); }
  /// Blocks that neither a sequence nor the tree holds.
  std::span<const BlockId> free_blocks() const { return pool_.free_blocks(); }
  /// Blocks held by sequences or pinned.
  std::int32_t n_used() const { return n_blocks() - n_available(); }
  std::int32_t n_pinned() const { return tree_ ? tree_->n_pinned() : 0; }
  std::int32_t n_cached() const { return tree_ ? tree_->n_blocks() : 0; }
  std::int32_t n_blocks_for(std::int32_t n_positions) const { return (n_positions + block_len_ - 1) / block_len_; }

  /// What `begin` would find for the first `n_match` tokens, and what is being filled beyond it. Keeps hashes in `table`,
  /// changes nothing else.
  PrefixTree::Found find(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_match, std::int64_t step) const;
  /// Gives an empty table the cached blocks of the longest prefix of the first `n_match` tokens that step `step` can use. They
  /// count as found once more, which eviction goes by.
  void begin(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_match, std::int64_t step);
  /// Adds private blocks until the table covers `n_positions`, evicting what is needed. False, and nothing changed, if there
  /// are not enough.
  bool extend(BlockTable& table, std::int32_t n_positions);
  /// Gives back private blocks that the first `n_positions` do not need.
  void shorten(BlockTable& table, std::int32_t n_positions);
  /// Puts the table's private blocks that `n_filled` tokens fill into the tree, for steps from `usable_from` on. Stops at a
  /// block whose equal is there: that one, and those after it, stay private until release.
  void publish(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_filled, std::int64_t usable_from);
  /// Ends the table's use of its blocks. Full blocks of the first `n_filled` tokens that the tree lacks go into it; the others
  /// are freed.
  void release(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_filled, std::int64_t usable_from);

  /// Keeps the cached whole blocks of `tokens` from being evicted, until unpin.
  struct Pin {
    PrefixTree::Node* node = nullptr;
    std::int32_t n_blocks = 0;
  };
  Pin pin(const CacheScope& scope, std::span<const TokenId> tokens);
  void unpin(const Pin& pin);

  /// Aborts if an invariant does not hold. `tables` are all that hold blocks.
  void check_invariants(std::span<const BlockTable* const> tables) const;

 private:
  PrefixKey key_of(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_tokens) const;

  std::int32_t block_len_;
  BlockPool pool_;
  std::optional<PrefixTree> tree_;
};

}  // namespace baton
