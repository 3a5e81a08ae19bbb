/// Which blocks hold which tokens: a radix tree whose edges are runs of full blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "engine/cache/block_hash.h"
#include "engine/cache/cache_group.h"
#include "engine/cache/kv_events.h"
#include "engine/cache/state_slots.h"
#include "engine/cache/window_blocks.h"

namespace baton {

class HostTier;
class StateTier;

/// The key of a look-up: the full blocks of `tokens`, with the hash of each (extend_hashes). Tokens after the last
/// hashed block are ignored. `scope` is what the hashes were made with; only events tell of it.
struct PrefixKey {
  std::span<const TokenId> tokens;
  std::span<const BlockHash> hashes;
  const CacheScope* scope = nullptr;
};

/// A block of one layer group.
struct GroupBlock {
  int group = 0;
  BlockId block;
};

/// A node is a run of entries that the same sequences share. An entry stands for the keys and values of one full block
/// of tokens: for each layer group it has a block, or none if the group's block was dropped. Two entries are equal if
/// their chained hashes and their tokens are equal, so one tree serves all cache scopes.
///
/// Layer groups. A group without a window has a block in every entry: its blocks leave the tree with their entries. A
/// group with a window may lack any block. A match ends after the last entry at which every group holds the keys that
/// the next row sees: all earlier keys in a group without a window, the last `window` - 1 of them in a group with a
/// window. A dropped block is replaced when a sequence that computed it again offers its own (fill_dropped).
///
/// Invariants (check_invariants): every block is in at most one entry; siblings begin with different hashes; a node's
/// reference count is the number of running sequences whose prefix passes through it, and its pin count the number of
/// such pins, so neither is smaller than a child's; only leaves with both counts 0 are evicted, from their end.
///
/// Eviction without a window: the leaf with the lowest eviction priority (`claim` in the code) goes first. A node's
/// priority is the time of its last use, counted in blocks cached since the start, plus kLifeOfReuse cache sizes for
/// every doubling of its reuse count: a block that was found again is more likely to be found once more than a block
/// that was only computed, but not for ever. A block that was evicted recently and is computed again counts as found,
/// because it was asked for. A kLifeOfReuse of 0 evicts the least recently used leaf. Eviction with a window: single
/// blocks are dropped, in the order of WindowBlocks; their entry stays for the other groups. Where text continues in one
/// way only, the first reuse does not count for them: a conversation continued, and its next prompt begins further on. It
/// counts for the blocks that the sequence which reused them leaves at its own ends (End::n_reuses). If every group has a
/// window, entries without blocks at the end of a leaf are removed.
///
/// States (prefix_tree_states.cpp). In a model with recurrent layers a place after an entry may have a snapshot: the state
/// after all tokens up to it. A snapshot leaves the tree with its entry, or earlier (evict_snapshot), and a StateTier may keep it.
///
/// The holder of a reference or a pin on a node may keep the node's pointer: a split leaves the lower end of a run in
/// the same node. Thread: engine only. Complexity: match and insert O(blocks).
class PrefixTree {
 public:
  struct Node;

  /// The result of a look-up, in blocks: the given step can use `n_ready`, and `n_pending` more are being computed. A
  /// sequence that takes the ready ones makes n_unheld[group] fewer blocks evictable in each group.
  struct Found {
    std::int32_t n_ready = 0;
    std::int32_t n_pending = 0;
    std::vector<std::int32_t> n_unheld;
    std::int32_t n_to_snapshot = 0;  ///< entries up to the last snapshot at or before the end of the ready ones
  };
  /// The longest match: its entries, the blocks of each (dropped ones are invalid), and the node that ends with its
  /// last entry.
  struct Match {
    Node* node = nullptr;
    std::int32_t n_blocks = 0;  ///< entries
    /// Entries equal to the key's, if the tree has other text after them; else 0. Some of them may lack blocks.
    std::int32_t n_to_fork = 0;
    bool ends_at_fork = false;    ///< the tree has other text after the match than the key
    std::vector<BlockId> blocks;  ///< [n_blocks][groups]
  };
  /// An end of text whose blocks sequences leave, in groups with a window: when, and as which one.
  struct End {
    std::uint64_t time = 0;
    std::uint64_t serial = 0;
    std::uint32_t n_reuses = 0;  ///< of the text before it, at least
    bool is_shared = false;      ///< text continues in several ways after the block that is left
  };
  /// Chosen on a real trace, with cache sizes from 2% to 30% of its blocks: bench/results/schedule.md.
  static constexpr double kLifeOfReuse = 0.35;
  static constexpr std::int64_t kAnyStep = std::numeric_limits<std::int64_t>::max();

  /// Eviction priorities are counted in the cache size of the first group without a window (of the first group if all
  /// have one); `life_of_reuse` is the number of such sizes that a doubling of the reuse count adds.
  explicit PrefixTree(std::int32_t block_len, std::vector<CacheGroup> groups = {{}}, double life_of_reuse = kLifeOfReuse);
  ~PrefixTree();

  /// Looks up a key and changes nothing.
  Found find(const PrefixKey& key, std::int64_t step) const;
  /// The longest match that step `step` can use. May split a node and updates its time of use; changes no count.
  Match match(const PrefixKey& key, std::int64_t step);
  /// The longest run of entries equal to the key's, whatever blocks they hold. Splits and updates as `match` does.
  Match trace(const PrefixKey& key);
  /// Inserts entry `index` of the key below `node`, which must end with entry index - 1 (the root for 0). `blocks` has
  /// one block for each group; only those of groups with a window may be invalid. The caller uses the blocks, and its
  /// reference on `node` moves to the returned node. Returns null, and changes nothing, if an equal entry exists.
  /// Steps from `usable_from` on may read the entry.
  Node* insert(Node* node, const PrefixKey& key, std::int32_t index, std::span<const BlockId> blocks, std::int64_t usable_from);
  /// Gives entries of the key, from entry `first` on, the blocks that they lack: `blocks` [entries][groups] as in
  /// `insert`. Returns the blocks taken, which the caller still uses. Steps from `usable_from` on may read them.
  std::vector<GroupBlock> fill_dropped(const PrefixKey& key, std::int32_t first, std::span<const BlockId> blocks,
                                       std::int64_t usable_from);

  /// Counts one more reuse of each node from the root to `node`: a sequence found its blocks.
  void count_reuse(Node* node);

  void acquire(Node* node);
  void release(Node* node);  ///< also updates its time of use
  /// Protects the entries up to the end of `node`, and in groups with a window the blocks that a row after it sees.
  /// None of these blocks may have been dropped.
  void pin(Node* node);
  void unpin(Node* node);

  /// An end that is left now, or a block that is left behind a window.
  End new_end(std::uint32_t n_reuses) { return {clock_, ++next_serial_, n_reuses, /*is_shared=*/false}; }
  /// For blocks in the tree of a group with a window: a sequence begins to use the block / its last user left it, at
  /// `end` or (`is_behind_window`) before its window.
  bool has(int group, BlockId block) const { return windows_[at(group)].has(block); }
  bool is_held(int group, BlockId block) const { return windows_[at(group)].is_held(block); }
  void hold(int group, BlockId block) { windows_[at(group)].hold(block); }
  void unhold(int group, BlockId block, bool is_behind_window, const End& end);

  /// Removes up to `n_blocks` blocks of a group from the tree. Returns them, with the blocks of other groups that were
  /// in the same entries. `tier`, if there is one, keeps the entries; no group may have a window then.
  std::vector<GroupBlock> evict(int group, std::int32_t n_blocks, HostTier* tier = nullptr);
  /// Removes all blocks that evict could return, of every group, and forgets which blocks were evicted.
  std::vector<GroupBlock> evict_all();

  /// A snapshot on a path: the state after its first n_blocks entries.
  struct Snapshot {
    std::int32_t slot = StateSlots::kNone;
    std::int32_t n_blocks = 0;
  };
  /// From now on the tree may own snapshots in these slots. `tier` (null: none) may keep what leaves it. Both must outlive it.
  void use_states(StateSlots& slots, StateTier* tier);
  /// The node that ends with the last of the key's entries or contains it; null: the tree lacks one of them.
  Node* node_of(const PrefixKey& key);
  /// The last snapshot after at most `n_blocks` entries of the path to `node`.
  Snapshot last_snapshot(const Node* node, std::int32_t n_blocks) const;
  /// Makes an owned slot the snapshot after the first `n_blocks` (at least 1) entries of the path to `node`, where there is
  /// none. It was found `n_reuses` times before.
  void add_snapshot(Node* node, std::int32_t n_blocks, std::int32_t slot, std::uint32_t n_reuses = 0);
  /// Takes a snapshot that no pin covers out of the tree: the caller owns the slot.
  void take_snapshot(std::int32_t slot);
  /// Takes out the snapshot of the least worth that step `step` may write to, but not `kept`; kNone: there is none. The host tier
  /// may keep it.
  std::int32_t evict_snapshot(std::int64_t step, std::int32_t kept = StateSlots::kNone);
  /// Whether evict_snapshot would find one.
  bool has_evictable_snapshot(std::int64_t step) const;

  /// From now on the tree records what it stores and removes.
  void record_events() { recorder_.emplace(); }
  /// The events since the last call; none without record_events.
  std::vector<KvEvent> take_events() { return recorder_ ? recorder_->take() : std::vector<KvEvent>(); }

  Node* root() { return root_.get(); }
  std::int32_t n_entries() const { return n_entries_; }
  /// For one group: the blocks in the tree, the blocks that evict could return, the blocks that a pin covers.
  std::int32_t n_blocks(int group) const;
  std::int32_t n_evictable(int group) const;
  std::int32_t n_pinned(int group) const;
  /// Entries from the root to the end of `node`.
  std::int32_t depth(const Node* node) const;
  std::vector<GroupBlock> blocks() const;

  /// Recomputes every count and aborts if one differs. `references` has the node of each reference, once per
  /// reference.
  void check_invariants(std::span<const Node* const> references) const;

 private:
  using LeafKey = std::tuple<std::uint64_t, std::uint64_t, Node*>;  ///< priority, serial number

  /// Reuse counts of recently evicted blocks, for as many blocks as the cache holds.
  struct Evicted {
    std::uint32_t n_reuses = 0;
    std::uint64_t serial = 0;
  };
  /// A place in the tree: after `n_in_node` entries of `node`, n_blocks entries after the root.
  struct Place {
    Node* node = nullptr;
    std::size_t n_in_node = 0;
    std::int32_t n_blocks = 0;
  };
  struct Walk {
    Place ready;  ///< the end of the longest match that the step can use
    Place last;   ///< the last place that the key leads to
    std::int32_t n_pending = 0;
  };
  /// The place of a block of a group with a window, or of a snapshot: entry `index` of its path.
  struct Location {
    Node* node = nullptr;
    std::int32_t index = 0;
  };

  static std::size_t at(int group) { return static_cast<std::size_t>(group); }
  Walk walk(const PrefixKey& key, std::int64_t step) const;
  bool can_end_after(const Node& node, std::size_t i, std::vector<std::int32_t>& n_kept) const;
  bool equals(const Node& node, std::size_t i, const PrefixKey& key, std::size_t index) const;
  template <class Visit>
  void visit_window(Place end, int group, const Visit& visit) const;
  static std::size_t n_continuations(Place place);
  Match end_at(Place place);
  void split(Node* node, std::size_t n_upper);
  void touch(Node* node);
  std::uint64_t claim_of(const Node& node) const;
  std::uint64_t claim_after(std::uint64_t last_used, std::uint32_t n_reuses) const;
  void remember(const BlockHash& hash, std::uint32_t n_reuses);
  std::uint32_t recall(const BlockHash& hash);
  void add_to_counts(Node* node, std::int32_t references, std::int32_t pins);
  void refresh_leaf(Node* node);
  void put_block(Node* node, std::size_t i, int group, BlockId block);
  void record_stored(const PrefixKey& key, std::int32_t index, int group);
  void remove_last_entry(Node* leaf, std::vector<GroupBlock>& removed, HostTier* tier);
  Node* remove_leaf(Node* leaf);
  void forget_empty_end(Node* node);
  void save_snapshot(std::int32_t slot);
  void drop_snapshot_after(Node* leaf, std::int32_t index, bool keeps);
  void split_snapshots(Node& upper, Node& lower);
  std::int32_t n_saved_by(std::int32_t slot) const;
  void check_node(const Node& node) const;
  void check_snapshots(std::span<const Node* const> nodes) const;

  std::int32_t block_len_;
  std::vector<CacheGroup> groups_;
  bool has_full_group_ = false;                   ///< one without a window
  std::vector<WindowBlocks> windows_;             ///< of each group; empty without a window
  std::vector<std::vector<Location>> locations_;  ///< [group][block]; empty without a window
  std::size_t n_remembered_;
  double life_of_reuse_;  ///< in blocks
  std::unique_ptr<Node> root_;
  std::set<LeafKey> evictable_leaves_;
  std::unordered_map<BlockHash, Evicted> evicted_;
  std::deque<std::pair<BlockHash, std::uint64_t>> evicted_order_;  ///< some of them may have been computed again
  std::uint64_t clock_ = 0;
  std::uint64_t next_serial_ = 0;
  std::int32_t n_entries_ = 0;
  std::int32_t n_evictable_ = 0;  ///< entries of nodes without references and pins
  std::int32_t n_pinned_ = 0;     ///< entries of nodes with pins
  std::optional<KvEventRecorder> recorder_;
  StateSlots* states_ = nullptr;           ///< null: the model has none
  StateTier* state_tier_ = nullptr;        ///< null: there is none
  std::vector<Location> snapshot_places_;  ///< [slot]: a snapshot is the state after entry `index` of `node`
};

}  // namespace baton
