/// Which blocks hold which tokens: a radix tree whose edges are runs of full blocks.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "core/ids.h"
#include "engine/block_hash.h"

namespace baton {

/// What the tree is asked for: the full blocks of `tokens`, with the hash of each (extend_hashes). Tokens after the last hashed
/// block are ignored.
struct PrefixKey {
  std::span<const TokenId> tokens;
  std::span<const BlockHash> hashes;
};

/// A node is a run of full blocks with one set of sharers. Two blocks are equal if their chained hashes and their tokens are,
/// so one tree serves all scopes.
///
/// Invariants (check_invariants): every block occurs in at most one node; siblings begin with different hashes; a node's
/// reference count is the number of running sequences whose prefix passes through it, its pin count that of the pins, so
/// neither is smaller than a child's; only leaves with both counts 0 are evicted, least recently used first, from their end.
/// Whoever holds a reference or a pin on a node may keep its pointer: a split leaves the lower end of a run in the same node.
/// Thread: engine only. Complexity: match and insert O(blocks).
class PrefixTree {
 public:
  struct Node;

  /// What a look-up found, in blocks: `n_ready` can be used by the step asked for, `n_pending` more are being filled.
  struct Found {
    std::int32_t n_ready = 0;
    std::int32_t n_pending = 0;
  };
  /// The blocks of the longest match and the node that ends with the last of them.
  struct Match {
    Node* node = nullptr;
    std::vector<BlockId> blocks;
  };
  static constexpr std::int64_t kAnyStep = std::numeric_limits<std::int64_t>::max();

  explicit PrefixTree(std::int32_t block_len);
  ~PrefixTree();

  /// Changes nothing.
  Found find(const PrefixKey& key, std::int64_t step) const;
  /// Longest run of blocks that step `step` can use. May split a node and touches its age; changes no count.
  Match match(const PrefixKey& key, std::int64_t step);
  /// Puts block `index` of the key below `node`, which must end with block index - 1 (the root for 0). The caller's reference
  /// on `node` passes to the node returned. Returns nothing, and changes nothing, if an equal block is there. Steps from
  /// `usable_from` on may read it.
  Node* insert(Node* node, const PrefixKey& key, std::int32_t index, BlockId block, std::int64_t usable_from);

  void acquire(Node* node);
  void release(Node* node);  ///< touches its age
  void pin(Node* node);
  void unpin(Node* node);

  /// Takes up to `n_blocks` blocks out of the tree and returns them.
  std::vector<BlockId> evict(std::int32_t n_blocks);

  Node* root() { return root_.get(); }
  std::int32_t n_blocks() const { return n_blocks_; }
  std::int32_t n_evictable() const { return n_evictable_; }  ///< blocks that evict could return
  std::int32_t n_pinned() const { return n_pinned_; }        ///< blocks that a pin covers
  /// Blocks from the root to the end of `node`.
  std::int32_t depth(const Node* node) const;
  std::vector<BlockId> blocks() const;

  /// Recomputes every count and aborts if one differs. `references` names the node of each reference held, as often as it is
  /// held.
  void check_invariants(std::span<const Node* const> references) const;

 private:
  using LeafKey = std::tuple<std::uint64_t, std::uint64_t, Node*>;  ///< age, serial number

  struct Walk;
  Walk walk(const PrefixKey& key, std::int64_t step) const;
  bool equals(const Node& node, std::size_t i, const PrefixKey& key, std::size_t index) const;
  void split(Node* node, std::size_t n_upper);
  void touch(Node* node);
  void add_to_counts(Node* node, std::int32_t references, std::int32_t pins);
  void refresh_leaf(Node* node);

  std::int32_t block_len_;
  std::unique_ptr<Node> root_;
  std::set<LeafKey> evictable_leaves_;
  std::uint64_t clock_ = 0;
  std::uint64_t next_serial_ = 0;
  std::int32_t n_blocks_ = 0;
  std::int32_t n_evictable_ = 0;
  std::int32_t n_pinned_ = 0;
};

}  // namespace baton
