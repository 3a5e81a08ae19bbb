/// How sequences take slots for their states in recurrent layers, and leave snapshots to the prefix tree.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "core/check.h"
#include "engine/cache/kv_cache.h"

namespace baton {

bool KvCache::can_begin_state(std::int64_t step) const {
  return states_->has_free(step) || (tree_ && tree_->has_evictable_snapshot(step));
}

std::int32_t KvCache::begin_state(BlockTable& table, std::int64_t step) {
  TableState& state = table.state;
  check(state.own == StateSlots::kNone && !table.is_empty(), "KvCache: a table begins a state twice, or before its blocks");
  const PrefixTree::Snapshot found = tree_ ? tree_->last_snapshot(table.node, table.n_cached_blocks) : PrefixTree::Snapshot{};
  if (found.slot != StateSlots::kNone) states_->count_reuse(found.slot);
  state.own = states_->allocate(step);
  if (state.own == StateSlots::kNone && tree_) state.own = tree_->evict_snapshot(step, found.slot);
  if (state.own == StateSlots::kNone) {  // the found one is the only slot there is: the run changes it
    check(tree_ && found.slot != StateSlots::kNone && states_->may_go(found.slot, step), "KvCache: no slot for a state");
    tree_->take_snapshot(found.slot);
    state.own = found.slot;
  }
  state.source = found.slot;
  state.n_tokens = state.n_to_snapshot = found.n_blocks * block_len_;
  return state.n_tokens;
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
  if (keep != KeepState::no) keep_state(table, tokens, keep == KeepState::until_next, step);
  const StateMove move{state.source, state.own, state.drafts};
  if (move.read != StateSlots::kNone) states_->read_by(move.read, step);
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

/// The table's use of its slot ends. If its state is that of cached blocks, it becomes their snapshot.
void KvCache::end_state(BlockTable& table, std::int32_t n_filled) {
  TableState& state = table.state;
  if (state.own == StateSlots::kNone) return;
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
  for (const BlockTable* table : tables) {
    const TableState& state = table->state;
    if (state.own == StateSlots::kNone) continue;
    check(states_->use(state.own) == StateSlots::Use::owned && owned.insert(state.own).second,
          "KvCache: a slot has two owners, or none");
    check(state.source == state.own, "KvCache: a state was begun without a run");
    n_kept += state.drafts.n;
  }
  check(n_kept == kept_rows_.n_taken(), "KvCache: a kept row is lost");
  check(static_cast<std::int32_t>(owned.size()) + states_->n_snapshots() + states_->n_free() == states_->n_slots(),
        "KvCache: a slot is lost");
  states_->check_invariants();
}

}  // namespace baton
