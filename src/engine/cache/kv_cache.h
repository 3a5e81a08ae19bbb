/// The bookkeeping of the KV cache: block numbers of sequences, shared through the prefix tree. It touches no storage.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/check.h"
#include "core/ids.h"
#include "engine/cache/block_hash.h"
#include "engine/cache/block_pool.h"
#include "engine/cache/cache_group.h"
#include "engine/cache/host_tier.h"
#include "engine/cache/prefix_tree.h"
#include "engine/cache/state_slots.h"
#include "engine/cache/state_tier.h"
#include "engine/request/request.h"

namespace baton {

/// The blocks of one sequence in one layer group: blocks[i] holds positions [i * block_len, (i + 1) * block_len). The
/// first `first_block` of them have left the group's window and no longer belong to the sequence; their numbers are
/// meaningless.
struct GroupTable {
  std::vector<BlockId> blocks;
  std::int32_t first_block = 0;
  std::vector<BlockId> spare;  ///< of a table with a reserve: blocks for later positions
};

/// The state of one sequence in recurrent layers. It owns one slot from begin_state to release.
struct TableState {
  std::int32_t own = StateSlots::kNone;  ///< its next run writes this slot
  /// Its next run begins with the state in this slot; kNone: at zero. Another slot than `own` holds a snapshot, which it holds.
  std::int32_t source = StateSlots::kNone;
  std::int32_t n_tokens = 0;       ///< tokens of that state, once every planned run has run
  std::int32_t n_to_snapshot = 0;  ///< tokens up to the last snapshot that it found or left
  /// Where the drafts after that state are kept, until the next run; once they are verified, the accepted ones, which it replays.
  KeptRows::Range drafts = {};
  /// The snapshot that it made last while it decoded, and that the next one replaces unless a sequence has found it.
  std::int32_t moving = StateSlots::kNone;
  std::uint64_t moving_serial = 0;  ///< StateSlots::serial: otherwise the slot holds something else by now
};

/// Ends of text on the path of a sequence, where other prompts may continue: the tree keeps longer what a row after them sees.
struct TableEnds {
  bool found_fork = false;     ///< other text follows what `begin` found
  std::int32_t n_to_fork = 0;  ///< entries before other text in the tree, whether `begin` found them or not; 0: none
  // Of blocks that were left at these ends.
  std::optional<PrefixTree::End> prompt;
  std::optional<PrefixTree::End> fork;
  std::optional<PrefixTree::End> found;
};

/// The blocks of one sequence. The first n_cached_blocks entries of each group belong to the prefix tree; `node` ends
/// with the last of them, and the sequence holds a reference on it. The other entries are private. There are two
/// exceptions in a group with a window: an entry that belongs to the tree may hold a private block (in a table with a
/// reserve), and a private entry may hold a block that the tree holds too (it replaced a dropped one). A waiting
/// sequence has no blocks but may keep its hashes.
struct BlockTable {
  std::vector<GroupTable> groups;  ///< empty before begin and after release
  std::int32_t n_entries = 0;      ///< of the group that has fewest
  std::int32_t n_cached_blocks = 0;
  std::int32_t n_found_blocks = 0;    ///< entries that `begin` found or `load` loaded
  std::int32_t n_offered_blocks = 0;  ///< entries whose blocks were offered to the tree in place of dropped ones
  bool has_reserve = false;
  TableEnds ends;
  PrefixTree::Node* node = nullptr;  ///< null before begin and after release
  std::vector<BlockHash> hashes;     ///< of the first full blocks of the sequence's tokens
  CacheScope scope;
  TableState state;

  bool is_empty() const { return groups.empty(); }
  std::span<const BlockId> blocks_of(int group) const {
    return is_empty() ? std::span<const BlockId>() : groups[static_cast<std::size_t>(group)].blocks;
  }
};

struct KvCacheOptions {
  std::int32_t block_len = 16;  ///< tokens, in every group
  std::vector<CacheGroup> groups = {};
  /// Positions that a sequence may have in steps that are enqueued and not committed. Used for groups with a window
  /// only.
  std::int32_t max_rows_in_flight = 0;
  bool enable_prefix_caching = true;
  double life_of_reuse = PrefixTree::kLifeOfReuse;  ///< see PrefixTree; 0 evicts the least recently used block
  bool records_events = false;                      ///< see take_events
  /// Entries that were evicted and stay in host memory; 0: none. It takes prefix caching, and groups without a window.
  std::int32_t n_tier_slots = 0;
  /// Snapshots that were evicted and stay in host memory; with state slots and a tier of blocks at least one.
  std::int32_t n_tier_states = 0;
  /// Slots for states of recurrent layers: at least one for each running sequence, the others for snapshots; 0: the model has
  /// none. With prefix caching they take groups without a window: rows that are replayed see keys before the window.
  std::int32_t n_state_slots = 0;
  std::int32_t n_state_owners = 0;  ///< sequences that may run; pins leave as many slots
  std::int32_t n_kept_rows = 0;     ///< for their drafts; 0: they have none
  /// The most tokens that a sequence computes again for want of a snapshot: see scheduler_states.cpp. A multiple of block_len, or
  /// block_len if that is longer.
  std::int32_t state_interval = 64;
};

/// The slots of a run, and its kept rows (kernels/batch.h, StateRun).
struct StateMove {
  std::int32_t read = StateSlots::kNone;  ///< kNone: it begins at zero
  std::int32_t write = StateSlots::kNone;
  KeptRows::Range replayed = {};
  KeptRows::Range kept = {};  ///< of its drafts
};
/// Whether a run leaves the state that it begins with as a snapshot, and for how long.
enum class KeepState : std::uint8_t {
  no,
  yes,
  until_next,  ///< of the same sequence; for ever if a sequence finds it before
};

/// A BlockPool for each layer group, and one PrefixTree for all of them. The holders of a block are the tree (once)
/// and every table that contains it.
///
/// A sequence's table has one entry for every block_len positions, in every group. In a group without a window it
/// holds the blocks of all entries. In a group with a window it gives back, as its steps are committed, the blocks
/// that no later row sees (free_behind_window), so it holds at most n_held_at_once of them, however long it is. The
/// tree may keep such a block, and drops it before others (WindowBlocks).
///
/// Invariants (check_invariants): the pools' counts equal the number of these holders; the tree counts every table's
/// reference; no other block is in use. Without prefix caching there is no tree: nothing is matched, published or
/// pinned. Thread: engine only.
class KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);
  /// One group without a window.
  KvCache(std::int32_t n_blocks, std::int32_t block_len, bool enable_prefix_caching,
          double life_of_reuse = PrefixTree::kLifeOfReuse);

  std::int32_t block_len() const { return block_len_; }
  int n_groups() const { return static_cast<int>(groups_.size()); }
  bool has_prefix_caching() const { return tree_.has_value(); }

  // For one group.
  std::int32_t n_blocks(int group) const { return groups_[at(group)].n_blocks; }
  /// Blocks that could be allocated now: free ones, and cached ones that no sequence uses and no pin covers.
  std::int32_t n_available(int group) const { return pools_[at(group)].n_free() + (tree_ ? tree_->n_evictable(group) : 0); }
  /// Blocks that neither a sequence nor the tree holds.
  std::span<const BlockId> free_blocks(int group) const { return pools_[at(group)].free_blocks(); }
  std::int32_t n_pinned(int group) const { return tree_ ? tree_->n_pinned(group) : 0; }
  std::int32_t n_cached(int group) const { return tree_ ? tree_->n_blocks(group) : 0; }

  // For all groups together.
  std::int32_t n_blocks() const;
  std::int32_t n_available() const;
  /// Blocks held by sequences or pinned.
  std::int32_t n_used() const { return n_blocks() - n_available(); }
  std::int32_t n_pinned() const;
  std::int32_t n_cached() const;

  /// Entries of a table that covers `n_positions`.
  std::int32_t n_blocks_for(std::int32_t n_positions) const { return CacheGroup::n_blocks_for(n_positions, block_len_); }
  /// See CacheGroup::n_needed_alone.
  std::int32_t n_needed_alone(int group, std::int32_t n_positions) const {
    return groups_[at(group)].n_needed_alone(n_positions, max_rows_in_flight_, block_len_);
  }
  /// A table with `n_entries` entries holds `n_held` of their blocks. Returns how many more blocks it needs at once at
  /// most until it covers `n_positions`.
  std::int32_t n_lacking(int group, std::int32_t n_entries, std::int32_t n_held, std::int32_t n_positions) const;
  std::int32_t n_lacking(const BlockTable& table, int group, std::int32_t n_positions) const;
  bool covers(const BlockTable& table, std::int32_t n_positions) const { return table.n_entries >= n_blocks_for(n_positions); }

  /// Stores the hashes of the full blocks of the first `n_tokens` tokens in `table`; none without prefix caching.
  void hash(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_tokens) const {
    if (tree_) key_of(table, tokens, n_tokens);
  }
  /// Looks up what `begin` would find for the first `n_match` tokens, and the blocks after it that are being computed.
  /// Stores hashes in `table` and changes nothing else.
  PrefixTree::Found find(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_match, std::int64_t step) const;
  /// Gives an empty table the cached blocks of the longest prefix of the first `n_match` tokens that step `step` can
  /// use; in a group with a window only what the next row sees. Counts one more reuse of them, which eviction
  /// takes into account.
  void begin(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_match, std::int64_t step);
  /// Adds private blocks until the table covers `n_positions`, and evicts cached blocks for them. Returns false, and
  /// changes nothing, if there are not enough.
  bool extend(BlockTable& table, std::int32_t n_positions) {
    check(!table.is_empty(), "KvCache: extend before begin");
    return covers(table, n_positions) || add_blocks(table, n_positions);
  }
  /// Takes all blocks that a newly begun table can need at once until it covers `n_positions`, so that extend does not
  /// fail up to there. In a group with a window the table keeps them until release and publishes none of them earlier.
  /// Returns false, and changes nothing, if there are not enough.
  bool reserve(BlockTable& table, std::int32_t n_positions);
  /// Gives back private blocks that the first `n_positions` positions do not need.
  void shorten(BlockTable& table, std::int32_t n_positions);
  /// Gives back the blocks that no row from `position` on sees, nor a row after the last full block before it, where the
  /// next prompt begins if the answer ends here. No enqueued step may have a row before `position`. The tree keeps longer
  /// what a row sees after the first `prompt_len` tokens, because the prompt may be asked for again, and what a row sees
  /// where the sequence's text leaves that of others.
  void free_behind_window(BlockTable& table, std::int32_t position, std::int32_t prompt_len) {
    if (has_windows_) free_unseen(table, position, prompt_len);
  }
  /// Inserts the table's private entries that `n_filled` tokens fill into the tree, for steps from `usable_from` on.
  /// Stops at an entry that the tree already has: this entry and those after it stay private until release. If the
  /// tree's entry lacks the block of a group with a window, the tree takes the table's block.
  void publish(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_filled, std::int64_t usable_from) {
    if (tree_ && n_filled >= (table.n_cached_blocks + 1) * block_len_) publish_full(table, tokens, n_filled, usable_from);
  }
  /// Ends the table's use of its blocks. Full entries of the first `n_filled` tokens that the tree lacks are inserted;
  /// the other blocks are freed.
  void release(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_filled, std::int64_t usable_from);

  // States of recurrent layers (kv_cache_states.cpp). Only for caches with state slots.

  /// The slots; null: the model has no recurrent layers.
  const StateSlots* states() const { return states_.get(); }
  const KeptRows& kept_rows() const { return kept_rows_; }
  std::int32_t state_interval() const { return state_interval_; }
  /// Slots that are left for snapshots when all sequences run: so many may be pinned.
  std::int32_t n_snapshot_slots() const { return states_ ? states_->n_slots() - n_state_owners_ : 0; }
  /// Whether begin_state would find a slot for a run of step `step`.
  bool can_begin_state(std::int64_t step) const;
  /// Gives a table that `begin` has filled a slot.
  void begin_state(BlockTable& table, std::int64_t step);
  /// The same, but without the snapshot that find_state could find: the state will be written by others than a run. / It was
  /// written, and is that after `n_tokens` tokens.
  void begin_empty_state(BlockTable& table, std::int64_t step);
  void fill_state(BlockTable& table, std::int32_t n_tokens);
  /// Entries up to the last state that the table can continue from without a load.
  std::int32_t n_blocks_on_device(const BlockTable& table) const;
  /// Gives it the last snapshot up to the end of its first `n_blocks` entries, whose keys it has, as the source. One in host memory
  /// is loaded if it saves enough, for step `step`. Tokens after the snapshot are to be replayed: computed for their states, without
  /// writing their keys.
  struct FoundState {
    std::int32_t n_tokens = 0;     ///< of the snapshot; 0: there is none, the sequence begins at zero
    std::int32_t n_on_device = 0;  ///< of the last one that needed no load
  };
  FoundState find_state(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_blocks, std::int64_t step);
  /// Whether find_state would load one.
  bool loads_state(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_blocks) const {
    return state_tier_ && n_blocks_in_state_tier(table, tokens, n_blocks) > 0;
  }
  /// Entries up to the last snapshot on the device or in host memory, of the ready entries of the look-up `found`. `tokens`: of
  /// `table`, whose hashes `find` has stored.
  std::int32_t n_to_snapshot(const BlockTable& table, std::span<const TokenId> tokens, const PrefixTree::Found& found) const;
  /// The slots of the table's run in step `step`, and the accepted drafts that it replays. Its state, without these, may stay as a
  /// snapshot for steps from this one on: not if the place
  /// has one, is inside a block or is not cached, or if there is no slot to continue in.
  StateMove move_state(BlockTable& table, std::span<const TokenId> tokens, KeepState keep, std::int64_t step);
  /// Step `step` does not write the slot with the state that the table continues from.
  void protect_source(const BlockTable& table, std::int64_t step) {
    if (table.state.source != StateSlots::kNone) states_->read_by(table.state.source, step);
  }
  /// The run has `n_rows` rows (more) that are no drafts.
  void advance_state(BlockTable& table, std::int32_t n_rows) { table.state.n_tokens += n_rows; }
  /// The run of step `step`, for which move_state was called, has drafts. Returns where they are kept: at most `n_wanted` of them,
  /// because others may have the rest.
  KeptRows::Range keep_drafts(BlockTable& table, std::int32_t n_wanted, std::int64_t step);
  /// `n_accepted` of the table's drafts have become tokens: its next run replays them.
  void accept_drafts(BlockTable& table, std::int32_t n_accepted);

  /// The host tier, of blocks and of snapshots; null: there is none.
  const HostTier* tier() const { return tier_ ? &*tier_ : nullptr; }
  const StateTier* state_tier() const { return state_tier_ ? &*state_tier_ : nullptr; }
  /// How many entries from `first` on, at most `n_most`, the host tier has of the first `n_match` tokens. With state slots only
  /// entries up to a snapshot in host memory that saves enough: tokens after it are computed again in any case.
  std::int32_t n_in_tier(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_match, std::int32_t first,
                         std::int32_t n_most);
  /// Loads entries from `first` on, at most `n_most`, from the host tier into the table's private blocks, which must
  /// cover them, and publishes them for steps from `usable_from` on. Returns how many there were.
  std::int32_t load(BlockTable& table, std::span<const TokenId> tokens, std::int32_t first, std::int32_t n_most,
                    std::int64_t usable_from);
  /// The copies of the host tier since the last call. They must be carried out in this order, after the steps planned
  /// before and before the next one.
  std::vector<TierCopy> take_copies();

  /// What was stored in the prefix cache and removed from it since the last call, if KvCacheOptions::records_events.
  std::vector<KvEvent> take_events() { return tree_ ? tree_->take_events() : std::vector<KvEvent>(); }

  /// Frees all cached blocks that no sequence uses and no pin covers, and forgets what was evicted before; the host tier
  /// forgets all it has.
  void drop_cached();

  /// Protects the cached full blocks of `tokens` from eviction until unpin; in a group with a window only what
  /// the row after them sees. A snapshot after the last of them is protected too.
  struct Pin {
    PrefixTree::Node* node = nullptr;
    std::int32_t n_blocks = 0;  ///< entries
    std::int32_t snapshot = StateSlots::kNone;
  };
  Pin pin(const CacheScope& scope, std::span<const TokenId> tokens);
  void unpin(const Pin& pin);

  /// Aborts if an invariant does not hold. `tables` must contain all tables that hold blocks.
  void check_invariants(std::span<const BlockTable* const> tables) const;

 private:
  static std::size_t at(int group) { return static_cast<std::size_t>(group); }
  PrefixKey key_of(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_tokens) const;
  std::int32_t n_held_at_once(int group) const { return groups_[at(group)].n_held_at_once(max_rows_in_flight_, block_len_); }
  bool add_blocks(BlockTable& table, std::int32_t n_positions);
  std::int32_t first_block_kept(const BlockTable& table, int group, std::int32_t position) const;
  void free_unseen(BlockTable& table, std::int32_t position, std::int32_t prompt_len);
  std::optional<PrefixTree::End>* end_with(BlockTable& table, int group, std::int32_t entry, std::int32_t prompt_len) const;
  void leave(BlockTable& table, int group, std::int32_t entry, std::int32_t prompt_len);
  void publish_full(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_filled, std::int64_t usable_from);
  void make_free(int group, std::int32_t n_blocks);
  BlockId take(int group);
  PrefixTree::End new_end(const BlockTable& table);
  void give_back(const BlockTable& table, int group, std::int32_t entry, bool is_behind_window, PrefixTree::End end);
  std::vector<BlockId> blocks_to_publish(const BlockTable& table, std::int32_t first, std::int32_t end) const;
  void offer(BlockTable& table, const PrefixKey& key, std::int32_t first, std::int64_t usable_from);
  bool keep_state(BlockTable& table, std::span<const TokenId> tokens, bool is_moving, std::int64_t step);
  PrefixTree::Node* node_of_state(BlockTable& table, std::span<const TokenId> tokens);
  void end_state(BlockTable& table, std::int32_t n_filled);
  void let_go_of_source(TableState& state);
  std::int32_t least_loaded() const;
  std::int32_t n_blocks_in_state_tier(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_blocks) const;
  void load_state(BlockTable& table, const PrefixKey& key, std::int32_t n_blocks, std::int64_t step);
  void check_table(const BlockTable& table) const;
  void check_states(std::span<const BlockTable* const> tables) const;

  std::int32_t block_len_;
  std::int32_t max_rows_in_flight_;
  std::vector<CacheGroup> groups_;
  bool has_windows_ = false;
  std::vector<BlockPool> pools_;        ///< of each group
  std::unique_ptr<StateSlots> states_;  ///< the tree points to it
  KeptRows kept_rows_;
  std::int32_t n_state_owners_ = 0;
  std::int32_t state_interval_ = 0;
  std::optional<StateTier> state_tier_;  ///< the same
  std::optional<PrefixTree> tree_;
  std::optional<HostTier> tier_;
};

}  // namespace baton
