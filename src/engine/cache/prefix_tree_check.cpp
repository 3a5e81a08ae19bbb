/// Checks the invariants of the prefix tree.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "engine/cache/prefix_tree.h"
#include "engine/cache/prefix_tree_node.h"

namespace baton {

/// Checks the arrays of one node, the blocks that its entries must have, and the recorded places of blocks of groups
/// with a window.
void PrefixTree::check_node(const Node& node) const {
  const std::size_t n = node.n_entries();
  check(n > 0 && node.hashes.size() == n && node.blocks.size() == n * groups_.size() &&
            node.tokens.size() == n * static_cast<std::size_t>(block_len_),
        "PrefixTree: a node's arrays differ in length");
  check(node.first_index == node.parent->end_index(), "PrefixTree: a node does not begin where its parent ends");
  for (std::size_t i = 0; i < node.blocks.size(); ++i) {
    const std::size_t g = i % groups_.size();
    const BlockId block = node.blocks[i];
    if (!groups_[g].has_window()) {
      check(block.is_valid(), "PrefixTree: an entry lacks the block of a group without a window");
    } else if (block.is_valid()) {
      const Location& location = locations_[g][static_cast<std::size_t>(block.value)];
      check(windows_[g].has(block) && location.node == &node &&
                location.index == node.first_index + static_cast<std::int32_t>(i / groups_.size()),
            "PrefixTree: a block is elsewhere than where it is said to be");
    }
  }
}

void PrefixTree::check_invariants(std::span<const Node* const> references) const {
  std::unordered_map<const Node*, std::int32_t> n_references;
  for (const Node* node : references) {
    for (const Node* up = node; up->parent != nullptr; up = up->parent) ++n_references[up];
  }
  std::set<std::pair<int, BlockId>> seen;
  for (const auto& [group, block] : blocks()) check(seen.emplace(group, block).second, "PrefixTree: a block occurs twice");
  std::vector<std::int32_t> n_of_group(groups_.size(), 0);
  for (const auto& [group, block] : seen) ++n_of_group[at(group)];
  std::int32_t n_entries = 0;
  std::int32_t n_evictable = 0, n_pinned = 0;
  std::size_t n_leaves = 0;
  std::vector<const Node*> nodes;
  std::vector<const Node*> pending{root_.get()};
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    nodes.push_back(node);
    std::int32_t child_pins = 0;
    for (const auto& [hash, child] : node->children) {
      check(child->parent == node && child->hashes.front() == hash, "PrefixTree: a child is filed under another hash");
      check((child->last_used <= node->last_used && child->n_reuses <= node->n_reuses) || node->parent == nullptr,
            "PrefixTree: a child was used after its parent, or more often");
      child_pins += child->n_pins;
      pending.push_back(child.get());
    }
    if (node->parent == nullptr) {
      check(node->blocks.empty() && node->n_entries() == 0, "PrefixTree: the root holds blocks");
      continue;
    }
    check_node(*node);
    n_entries += static_cast<std::int32_t>(node->n_entries());
    check(node->n_references == n_references[node], "PrefixTree: a reference count is wrong");
    check(node->n_pins >= child_pins, "PrefixTree: a node has fewer pins than its children");
    if (node->is_evictable()) n_evictable += static_cast<std::int32_t>(node->n_entries());
    if (node->n_pins > 0) n_pinned += static_cast<std::int32_t>(node->n_entries());
    const bool belongs = node->is_evictable() && node->children.empty();
    check(belongs == node->is_listed, "PrefixTree: an evictable leaf is not listed, or another node is");
    if (!belongs) continue;
    check(has_full_group_ || std::ranges::any_of(std::span(node->blocks).last(groups_.size()), &BlockId::is_valid),
          "PrefixTree: a leaf without holders ends with an entry without blocks");
    ++n_leaves;
    check(node->listed_claim == claim_of(*node) &&
              evictable_leaves_.contains({node->listed_claim, node->serial, const_cast<Node*>(node)}),
          "PrefixTree: a leaf is listed under another priority");
  }
  check(evicted_.size() <= evicted_order_.size() && evicted_order_.size() <= n_remembered_,
        "PrefixTree: more is remembered than fits the cache");
  check(n_leaves == evictable_leaves_.size(), "PrefixTree: the list of evictable leaves holds strangers");
  check(n_entries == n_entries_, "PrefixTree: the number of entries is wrong");
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    windows_[g].check_invariants();
    check(n_of_group[g] == n_blocks(static_cast<int>(g)), "PrefixTree: a group's number of blocks is wrong");
  }
  check(n_evictable == n_evictable_, "PrefixTree: the number of evictable blocks is wrong");
  check(n_pinned == n_pinned_, "PrefixTree: the number of pinned blocks is wrong");
  check_snapshots(nodes);
}

}  // namespace baton
