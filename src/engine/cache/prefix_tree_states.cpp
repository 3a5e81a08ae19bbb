/// Snapshots of recurrent states at places of the prefix tree.
#include <algorithm>
#include <cstddef>

#include "core/check.h"
#include "engine/cache/prefix_tree.h"
#include "engine/cache/prefix_tree_node.h"
#include "engine/cache/state_tier.h"

namespace baton {
void PrefixTree::use_states(StateSlots& slots, StateTier* tier) {
  states_ = &slots;
  state_tier_ = tier;
  snapshot_places_.resize(static_cast<std::size_t>(slots.n_slots()));
}

PrefixTree::Node* PrefixTree::node_of(const PrefixKey& key) {
  const Place last = walk(key, kAnyStep).last;
  return static_cast<std::size_t>(last.n_blocks) == key.hashes.size() ? last.node : nullptr;
}

PrefixTree::Snapshot PrefixTree::last_snapshot(const Node* node, std::int32_t n_blocks) const {
  for (; node->parent != nullptr; node = node->parent) {
    for (std::size_t i = node->snapshots.size(); i-- > 0;) {
      const std::int32_t slot = node->snapshots[i];
      const std::int32_t end = snapshot_places_[at(slot)].index + 1;
      if (end <= n_blocks) return {slot, end};
    }
  }
  return {};
}

void PrefixTree::add_snapshot(Node* node, std::int32_t n_blocks, std::int32_t slot, std::uint32_t n_reuses) {
  check(states_ != nullptr && n_blocks > 0 && n_blocks <= node->end_index(), "PrefixTree: a snapshot at no place of the path");
  while (n_blocks <= node->first_index) node = node->parent;
  const std::int32_t index = n_blocks - 1;
  const auto after =
      std::ranges::find_if(node->snapshots, [&](std::int32_t other) { return snapshot_places_[at(other)].index >= index; });
  check(after == node->snapshots.end() || snapshot_places_[at(*after)].index != index, "PrefixTree: a place has two snapshots");
  node->snapshots.insert(after, slot);
  snapshot_places_[at(slot)] = {node, index};
  states_->freeze(slot, n_reuses);
}

void PrefixTree::take_snapshot(std::int32_t slot) {
  Location& place = snapshot_places_[at(slot)];
  states_->thaw(slot);
  std::erase(place.node->snapshots, slot);
  place = {};
}

/// Tokens that are computed again without the snapshot: those after the snapshot before it on its path.
std::int32_t PrefixTree::n_saved_by(std::int32_t slot) const {
  const auto [node, index] = snapshot_places_[at(slot)];
  return (index + 1 - last_snapshot(node, index).n_blocks) * block_len_;
}

/// Gives the host tier a snapshot that is about to leave the tree.
void PrefixTree::save_snapshot(std::int32_t slot) {
  const auto [node, index] = snapshot_places_[at(slot)];
  const auto i = static_cast<std::size_t>(index - node->first_index);
  const auto len = static_cast<std::size_t>(block_len_);
  StateTier::Leaving leaving{.hash = node->hashes[i],
                             .tokens = std::span(node->tokens).subspan(i * len, len),
                             .n_reuses = states_->n_reuses(slot),
                             .device_slot = slot};
  std::int32_t n_before = last_snapshot(node, index).n_blocks;
  const Node* up = node;
  for (std::int32_t n = index; n > 0 && !leaving.before; --n) {
    while (n <= up->first_index) up = up->parent;
    const BlockHash& hash = up->hashes[static_cast<std::size_t>(n - 1 - up->first_index)];
    if (n != n_before && !state_tier_->has(hash)) continue;
    leaving.before = hash;
    n_before = n;
  }
  leaving.n_saved = (index + 1 - n_before) * block_len_;
  state_tier_->save(leaving);
}

/// Takes the snapshot of least worth from the tree.
std::int32_t PrefixTree::evict_snapshot(std::int64_t step, std::int32_t kept) {
  const StateSlots::Least least = states_->find_least(step, kept, [this](std::int32_t slot) { return n_saved_by(slot); });
  if (least.slot == StateSlots::kNone) return least.slot;
  states_->evicts(least.worth);
  if (state_tier_ != nullptr) save_snapshot(least.slot);
  take_snapshot(least.slot);
  return least.slot;
}

bool PrefixTree::has_evictable_snapshot(std::int64_t step) const {
  for (std::int32_t slot = 0; slot < states_->n_slots(); ++slot)
    if (states_->may_go(slot, step)) return true;
  return false;
}

/// Frees the snapshot after the leaf's last entry, `index`, if there is one. `keeps`: the host tier may keep it, if there is one.
void PrefixTree::drop_snapshot_after(Node* leaf, std::int32_t index, bool keeps) {
  if (leaf->snapshots.empty()) return;
  const std::int32_t slot = leaf->snapshots.back();
  if (snapshot_places_[at(slot)].index != index) return;
  if (keeps && state_tier_ != nullptr) save_snapshot(slot);
  take_snapshot(slot);
  states_->free(slot);
}

/// Gives the upper end of a split node the snapshots of its entries.
void PrefixTree::split_snapshots(Node& upper, Node& lower) {
  const auto first_kept = std::ranges::find_if(
      lower.snapshots, [&](std::int32_t slot) { return snapshot_places_[at(slot)].index >= lower.first_index; });
  upper.snapshots.assign(lower.snapshots.begin(), first_kept);
  lower.snapshots.erase(lower.snapshots.begin(), first_kept);
  for (const std::int32_t slot : upper.snapshots) snapshot_places_[at(slot)].node = &upper;
}

void PrefixTree::check_snapshots(std::span<const Node* const> nodes) const {
  std::int32_t n_snapshots = 0;
  for (const Node* const node : nodes) {
    std::int32_t before = node->first_index - 1;
    for (const std::int32_t slot : node->snapshots) {
      const Location& place = snapshot_places_[at(slot)];
      check(states_->use(slot) == StateSlots::Use::snapshot && place.node == node,
            "PrefixTree: a snapshot is said to be elsewhere");
      check(place.index > before && place.index < node->end_index(), "PrefixTree: snapshots are out of order");
      check(states_->n_pins(slot) == 0 || node->n_pins > 0, "PrefixTree: a pinned snapshot of a node without pins");
      before = place.index;
      ++n_snapshots;
    }
  }
  if (states_ == nullptr) return check(n_snapshots == 0, "PrefixTree: snapshots without slots");
  check(n_snapshots == states_->n_snapshots(), "PrefixTree: a snapshot is lost");
  states_->check_invariants();
}

}  // namespace baton
