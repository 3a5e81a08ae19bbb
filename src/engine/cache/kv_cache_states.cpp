/// How sequences take slots for their states in recurrent layers, and leave snapshots to the prefix tree.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/check.h"
#include "engine/cache/kv_cache.h"

namespace baton {

namespace {

/// A snapshot in host memory that would save fewer tokens, or than state_interval, is not loaded: they are computed about as fast.
constexpr std::int32_t kLeastLoaded = 32;

}  // namespace

bool KvCache::can_begin_state(std::int64_t step) const {
  return states_->has_free(step) || (tree_ && tree_->has_evictable_snapshot(step));
}

void KvCache::begin_state(BlockTable& table, std::int64_t step) {
  TableState& state = table.state;
  check(state.own == StateSlots::kNone && !table.is_empty(), "KvCache: a table begins a state twice, or before its blocks");
  const PrefixTree::Snapshot found = tree_ ? tree_->last_snapshot(table.node, table.n_cached_blocks) : PrefixTree::Snapshot{};
  state.own = states_->allocate(step);
  if (state.own == StateSlots::kNone && tree_) state.own = tree_->evict_snapshot(step, found.slot);
  if (state.own != StateSlots::kNone) return;
  // The found one is the only slot there is: the run changes it.
  check(tree_ && found.slot != StateSlots::kNone && states_->may_go(found.slot, step), "KvCache: no slot for a state");
  tree_->take_snapshot(found.slot);
  state.own = state.source = found.slot;
  state.n_tokens = found.n_blocks * block_len_;
}

void KvCache::begin_empty_state(BlockTable& table, std::int64_t step) {
  check(table.state.own == StateSlots::kNone, "KvCache: a table begins a state twice");
  table.state.own = states_->allocate(step);
  if (table.state.own == StateSlots::kNone && tree_) table.state.own = tree_->evict_snapshot(step);
  check(table.state.own != StateSlots::kNone, "KvCache: no slot for a state");
}

void KvCache::fill_state(BlockTable& table, std::int32_t n_tokens) {
  check(table.state.own != StateSlots::kNone && table.state.source == StateSlots::kNone, "KvCache: a state is filled twice");
  table.state.source = table.state.own;
  table.state.n_tokens = n_tokens;
}

std::int32_t KvCache::n_blocks_on_device(const BlockTable& table) const {
  if (table.state.source != StateSlots::kNone) return table.state.n_tokens / block_len_;
  return tree_ ? tree_->last_snapshot(table.node, table.n_cached_blocks).n_blocks : 0;
}

std::int32_t KvCache::least_loaded() const { return std::min(kLeastLoaded, state_interval_); }

/// Entries up to the last snapshot in host memory, of at most `n_blocks`; 0: there is none that saves enough.
std::int32_t KvCache::n_blocks_in_state_tier(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_blocks) const {
  const std::int32_t n_least = (least_loaded() + block_len_ - 1) / block_len_;
  return state_tier_->find_last(key_of(table, tokens, n_blocks * block_len_), n_blocks_on_device(table) + n_least - 1,
                                n_blocks);
}

/// Loads the snapshot after the key's first `n_blocks` entries. It is the tree's if the tree has this place and there is a slot, so
/// that other sequences continue from it too.
void KvCache::load_state(BlockTable& table, const PrefixKey& key, std::int32_t n_blocks, std::int64_t step) {
  TableState& state = table.state;
  const std::int32_t from = state_tier_->hold(key, n_blocks);
  std::int32_t slot = StateSlots::kNone;
  if (n_blocks <= table.n_cached_blocks && state.source == StateSlots::kNone) {
    slot = states_->allocate(step);
    if (slot == StateSlots::kNone) slot = tree_->evict_snapshot(step);
  }
  const bool is_snapshot = slot != StateSlots::kNone;
  state.source = is_snapshot ? slot : state.own;
  const std::uint32_t n_reuses = state_tier_->load(from, state.source);
  state.n_tokens = n_blocks * block_len_;
  if (!is_snapshot) return;
  tree_->add_snapshot(table.node, n_blocks, slot, n_reuses);
  states_->hold(slot);
}

KvCache::FoundState KvCache::find_state(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_blocks,
                                        std::int64_t step) {
  TableState& state = table.state;
  check(state.own != StateSlots::kNone && (state.source == StateSlots::kNone || state.source == state.own),
        "KvCache: a table looks for a state twice, or without a slot");
  const std::int32_t n_on_device = n_blocks_on_device(table) * block_len_;
  const std::int32_t n_in_tier = state_tier_ ? n_blocks_in_state_tier(table, tokens, n_blocks) : 0;
  if (n_in_tier > 0) {
    load_state(table, key_of(table, tokens, n_blocks * block_len_), n_in_tier, step);
  } else if (state.source == StateSlots::kNone && n_on_device > 0) {
    state.source = tree_->last_snapshot(table.node, table.n_cached_blocks).slot;
    state.n_tokens = n_on_device;
    states_->count_reuse(state.source);
    states_->hold(state.source);
  }
  state.n_to_snapshot = state.n_tokens;
  return {state.n_tokens, n_on_device};
}

std::int32_t KvCache::n_to_snapshot(const BlockTable& table, std::span<const TokenId> tokens,
                                    const PrefixTree::Found& found) const {
  if (!state_tier_) return found.n_to_snapshot;
  const PrefixKey key{tokens, table.hashes, &table.scope};
  return std::max(found.n_to_snapshot, state_tier_->find_last(key, found.n_to_snapshot, found.n_ready));
}

std::int32_t KvCache::n_in_tier(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_match, std::int32_t first,
                                std::int32_t n_most) {
  if (!tier_) return 0;
  const PrefixKey key = key_of(table, tokens, n_match);
  if (!state_tier_) return tier_->find(key, first, n_most);
  std::int32_t end = first;
  for (std::int32_t n = first; tier_->has(key, n); ++n)
    if (state_tier_->has_after(key, n + 1)) end = n + 1;
  const std::int32_t n_without = std::max(n_blocks_on_device(table), state_tier_->find_last(key, 0, first));
  if ((end - n_without) * block_len_ < least_loaded()) return 0;
  return tier_->find(key, first, std::min(end - first, n_most));
}

/// The node on whose path the place after the state's tokens is; null: the tree does not have these tokens.
PrefixTree::Node* KvCache::node_of_state(BlockTable& table, std::span<const TokenId> tokens) {
  if (table.state.n_tokens <= table.n_cached_blocks * block_len_) return table.node;
  // An equal sequence may have published its blocks first.
  if (static_cast<std::size_t>(table.state.n_tokens) > tokens.size()) return nullptr;
  return tree_->node_of(key_of(table, tokens, table.state.n_tokens));
}

/// Leaves the state to the tree, and gives the table another slot to continue in. Whether it has done so.
bool KvCache::keep_state(BlockTable& table, std::span<const TokenId> tokens, bool is_moving, std::int64_t step) {
  TableState& state = table.state;
  if (!tree_ || state.source != state.own || state.n_tokens % block_len_ != 0) return false;
  PrefixTree::Node* const node = node_of_state(table, tokens);
  if (node == nullptr) return false;
  const std::int32_t n_blocks = state.n_tokens / block_len_;
  state.n_to_snapshot = state.n_tokens;
  if (tree_->last_snapshot(node, n_blocks).n_blocks == n_blocks) return false;
  const bool replaces = is_moving && state.moving != StateSlots::kNone && states_->may_go(state.moving, step) &&
                        states_->serial(state.moving) == state.moving_serial && states_->n_reuses(state.moving) == 0;
  std::int32_t next = StateSlots::kNone;
  if (replaces) {
    tree_->take_snapshot(state.moving);
    next = state.moving;
  } else {
    next = states_->allocate(step);
    if (next == StateSlots::kNone) next = tree_->evict_snapshot(step);
  }
  if (next == StateSlots::kNone) return false;
  tree_->add_snapshot(node, n_blocks, state.own);
  state.moving = is_moving ? state.own : StateSlots::kNone;
  state.moving_serial = states_->serial(state.own);
  state.own = next;
  return true;
}

StateMove KvCache::move_state(BlockTable& table, std::span<const TokenId> tokens, KeepState keep, std::int64_t step) {
  TableState& state = table.state;
  check(state.own != StateSlots::kNone, "KvCache: a run of a table without a state");
  let_go_of_source(state);
  if (state.source != StateSlots::kNone) states_->read_by(state.source, step);
  if (keep != KeepState::no) keep_state(table, tokens, keep == KeepState::until_next, step);
  const StateMove move{state.source, state.own, state.drafts};
  state.source = state.own;
  state.n_tokens += state.drafts.n;
  kept_rows_.give_back(std::exchange(state.drafts, {}), step);
  return move;
}

KeptRows::Range KvCache::keep_drafts(BlockTable& table, std::int32_t n_wanted, std::int64_t step) {
  check(table.state.drafts.n == 0, "KvCache: a state has drafts twice");
  return table.state.drafts = kept_rows_.take(n_wanted, step);
}

void KvCache::accept_drafts(BlockTable& table, std::int32_t n_accepted) {
  KeptRows::Range& drafts = table.state.drafts;
  check(n_accepted <= drafts.n, "KvCache: more drafts were accepted than there were");
  kept_rows_.give_back({drafts.first + n_accepted, drafts.n - n_accepted});
  drafts.n = n_accepted;
}

/// The table no longer needs the snapshot that it has found.
void KvCache::let_go_of_source(TableState& state) {
  if (state.source != StateSlots::kNone && state.source != state.own) states_->let_go(state.source);
}

/// The table's use of its slot ends. If its state is that of cached blocks, it becomes their snapshot.
void KvCache::end_state(BlockTable& table, std::int32_t n_filled) {
  TableState& state = table.state;
  if (state.own == StateSlots::kNone) return;
  let_go_of_source(state);
  const std::int32_t n_blocks = state.n_tokens / block_len_;
  const bool is_whole = tree_ && state.source == state.own && state.n_tokens > 0 && state.n_tokens % block_len_ == 0 &&
                        state.n_tokens <= std::min(n_filled, table.n_cached_blocks * block_len_);
  if (is_whole && tree_->last_snapshot(table.node, n_blocks).n_blocks < n_blocks)
    tree_->add_snapshot(table.node, n_blocks, state.own);
  else
    states_->free(state.own);
  kept_rows_.give_back(state.drafts);
  state = {};
}

void KvCache::check_states(std::span<const BlockTable* const> tables) const {
  std::set<std::int32_t> owned;
  std::int32_t n_kept = 0;
  std::map<std::int32_t, std::int32_t> n_holds;
  for (const BlockTable* table : tables) {
    const TableState& state = table->state;
    if (state.own == StateSlots::kNone) continue;
    check(states_->use(state.own) == StateSlots::Use::owned && owned.insert(state.own).second,
          "KvCache: a slot has two owners, or none");
    n_kept += state.drafts.n;
    if (state.source == StateSlots::kNone)
      check(state.n_tokens == 0, "KvCache: a state without a source has tokens");
    else if (state.source != state.own)
      ++n_holds[state.source];
  }
  check(n_kept == kept_rows_.n_taken(), "KvCache: a kept row is lost");
  for (std::int32_t slot = 0; slot < states_->n_slots(); ++slot)
    check(states_->use(slot) != StateSlots::Use::snapshot || states_->n_holds(slot) == n_holds[slot],
          "KvCache: a snapshot is held by other tables than say so");
  check(static_cast<std::int32_t>(owned.size()) + states_->n_snapshots() + states_->n_free() == states_->n_slots(),
        "KvCache: a slot is lost");
  states_->check_invariants();
}

}  // namespace baton
