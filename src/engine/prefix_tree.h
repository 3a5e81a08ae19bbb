/// Which blocks hold which tokens: a radix tree whose edges are runs of full blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
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
/// neither is smaller than a child's; only leaves with both counts 0 are evicted, from their end.
///
/// Eviction: the leaf whose claim is oldest goes first. A node's claim is the time of its last use, in blocks cached since, and
/// for every doubling of the times it was found again kLifeOfReuse cache sizes more: what was found again is found again more
/// often than what was computed once, but not for ever. A block that was evicted lately and is computed again counts as found:
/// it was asked for. 0 is least recently used.
///
/// Whoever holds a reference or a pin on a node may keep its pointer: a split leaves the lower end of a run in the same node.
/// Thread: engine only. Complexity: match and insert O(blocks).
class PrefixTree {
 public:
  struct Node;

  /// What a look-up found, in blocks: `n_ready` can be used by the step asked for, `n_pending` more are being filled. Of the
  /// ready ones `n_unheld` are held by nobody: whoever takes them in use makes as many fewer evictable.
  struct Found {
    std::int32_t n_ready = 0;
    std::int32_t n_pending = 0;
    std::int32_t n_unheld = 0;
  };
  /// The blocks of the longest match and the node that ends with the last of them.
  struct Match {
    Node* node = nullptr;
    std::vector<BlockId> blocks;
  };
  /// Chosen on a real trace, over cache sizes from 2% to 30% of its blocks: bench/results/schedule.md.
  static constexpr double kLifeOfReuse = 0.35;
  static constexpr std::int64_t kAnyStep = std::numeric_limits<std::int64_t>::max();

  /// `n_cache_blocks`: the size of the cache, by which claims are counted; `life_of_reuse`: cache sizes a doubling.
  explicit PrefixTree(std::int32_t block_len, std::int32_t n_cache_blocks = 0, double life_of_reuse = kLifeOfReuse);
  ~PrefixTree();

  /// Changes nothing.
  Found find(const PrefixKey& key, std::int64_t step) const;
  /// Longest run of blocks that step `step` can use. May split a node and touches its age; changes no count.
  Match match(const PrefixKey& key, std::int64_t step);
  /// Puts block `index` of the key below `node`, which must end with block index - 1 (the root for 0). The caller's reference
  /// on `node` passes to the node returned. Returns nothing, and changes nothing, if an equal block is there. Steps from
  /// `usable_from` on may read it.
  Node* insert(Node* node, const PrefixKey& key, std::int32_t index, BlockId block, std::int64_t usable_from);

  /// A sequence found the blocks up to the end of `node`: each node above counts one reuse more.
  void count_reuse(Node* node);

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
  using LeafKey = std::tuple<std::uint64_t, std::uint64_t, Node*>;  ///< claim, serial number

  /// How often evicted blocks had been found: the last n_cache_blocks of them.
  struct Evicted {
    std::uint32_t n_reuses = 0;
    std::uint64_t serial = 0;
  };

  struct Walk;
  Walk walk(const PrefixKey& key, std::int64_t step) const;
  bool equals(const Node& node, std::size_t i, const PrefixKey& key, std::size_t index) const;
  void split(Node* node, std::size_t n_upper);
  void touch(Node* node);
  std::uint64_t claim_of(const Node& node) const;
  void remember(const BlockHash& hash, std::uint32_t n_reuses);
  std::uint32_t recall(const BlockHash& hash);
  void add_to_counts(Node* node, std::int32_t references, std::int32_t pins);
  void refresh_leaf(Node* node);

  std::int32_t block_len_;
  double life_of_reuse_;  ///< in blocks
  std::unique_ptr<Node> root_;
  std::set<LeafKey> evictable_leaves_;
  std::size_t n_remembered_;
  std::unordered_map<BlockHash, Evicted> evicted_;
  std::deque<std::pair<BlockHash, std::uint64_t>> evicted_order_;  ///< with the serial numbers; some are recalled already
  std::uint64_t clock_ = 0;
  std::uint64_t next_serial_ = 0;
  std::int32_t n_blocks_ = 0;
  std::int32_t n_evictable_ = 0;
  std::int32_t n_pinned_ = 0;
};

}  // namespace baton
