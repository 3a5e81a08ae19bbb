/// Snapshots of recurrent states at places of the prefix tree.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/check.h"
#include "engine/cache/prefix_tree.h"
#include "engine/cache/prefix_tree_node.h"

namespace baton {
namespace {

/// Snapshots whose worth is compared to evict one.
constexpr std::int32_t kMostCompared = 1024;

}  // namespace

void PrefixTree::use_states(StateSlots& slots) {
  states_ = &slots;
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

void PrefixTree::add_snapshot(Node* node, std::int32_t n_blocks, std::int32_t slot) {
  check(states_ != nullptr && n_blocks > 0 && n_blocks <= node->end_index(), "PrefixTree: a snapshot at no place of the path");
  while (n_blocks <= node->first_index) node = node->parent;
  const std::int32_t index = n_blocks - 1;
  const auto after =
      std::ranges::find_if(node->snapshots, [&](std::int32_t other) { return snapshot_places_[at(other)].index >= index; });
  check(after == node->snapshots.end() || snapshot_places_[at(*after)].index != index, "PrefixTree: a place has two snapshots");
  node->snapshots.insert(after, slot);
  snapshot_places_[at(slot)] = {node, index};
  states_->freeze(slot);
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

/// Takes the snapshot of least worth from the tree. A large pool is searched in parts of kMostCompared snapshots, one an eviction, so
/// that an eviction takes as long in any pool.
std::int32_t PrefixTree::evict_snapshot(std::int64_t step, std::int32_t kept) {
  std::int32_t least = StateSlots::kNone;
  double least_worth = 0;
  const std::int32_t n_slots = states_->n_slots();
  std::int32_t n_compared = 0;
  for (std::int32_t i = 0; i < n_slots && n_compared < kMostCompared; ++i) {
    const std::int32_t slot = std::exchange(next_compared_, (next_compared_ + 1) % n_slots);
    if (slot == kept || !states_->may_go(slot, step)) continue;
    ++n_compared;
    const double worth = states_->worth(slot, n_saved_by(slot));
    if (least != StateSlots::kNone && worth >= least_worth) continue;
    least = slot;
    least_worth = worth;
  }
  if (least == StateSlots::kNone) return least;
  states_->evicts(least_worth);
  take_snapshot(least);
  return least;
}

bool PrefixTree::has_evictable_snapshot(std::int64_t step) const {
  for (std::int32_t slot = 0; slot < states_->n_slots(); ++slot)
    if (states_->may_go(slot, step)) return true;
  return false;
}

/// Frees the snapshot after the leaf's last entry, `index`, if there is one.
void PrefixTree::drop_snapshot_after(Node* leaf, std::int32_t index) {
  if (leaf->snapshots.empty()) return;
  const std::int32_t slot = leaf->snapshots.back();
  if (snapshot_places_[at(slot)].index != index) return;
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
