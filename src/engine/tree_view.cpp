/// Walks from the nodes in use up to the root.
#include "engine/tree_view.h"

#include <algorithm>
#include <unordered_map>

#include "engine/cache/prefix_tree_node.h"

namespace baton {
namespace {

using Node = PrefixTree::Node;

struct Use {
  std::int32_t n_sequences = 0;
  bool is_pinned = false;
};

/// Nodes above others come first, then nodes that more sequences use.
bool is_more_used(const std::pair<const Node*, Use>& a, const std::pair<const Node*, Use>& b) {
  if (a.second.n_sequences != b.second.n_sequences) return a.second.n_sequences > b.second.n_sequences;
  if (a.first->first_index != b.first->first_index) return a.first->first_index < b.first->first_index;
  return a.first->serial < b.first->serial;
}

}  // namespace

TreeView view_tree(std::span<const BlockTable* const> tables, std::span<const KvCache::Pin> pins, const KvCache& cache) {
  std::unordered_map<const Node*, Use> uses;
  for (const BlockTable* table : tables)
    for (const Node* node = table->node; node != nullptr && node->parent != nullptr; node = node->parent)
      ++uses[node].n_sequences;
  for (const KvCache::Pin& pin : pins)
    for (const Node* node = pin.node; node != nullptr && node->parent != nullptr; node = node->parent)
      uses[node].is_pinned = true;

  // A node is used by all that use its children, so the most used ones include the parents of each.
  std::vector<std::pair<const Node*, Use>> chosen(uses.begin(), uses.end());
  std::ranges::sort(chosen, is_more_used);
  TreeView view;
  view.n_cached_tokens = static_cast<std::int64_t>(cache.n_cached()) * cache.block_len();
  if (chosen.size() > kMostViewNodes) {
    view.n_left_out = static_cast<std::int32_t>(chosen.size() - kMostViewNodes);
    chosen.resize(kMostViewNodes);
  }
  std::ranges::stable_sort(chosen, {}, [](const auto& entry) { return entry.first->first_index; });
  std::unordered_map<const Node*, std::int32_t> places;
  for (const auto& [node, use] : chosen) {
    const auto parent = places.find(node->parent);
    places[node] = static_cast<std::int32_t>(view.nodes.size());
    view.nodes.push_back({.parent = parent == places.end() ? -1 : parent->second,
                          .n_tokens = static_cast<std::int32_t>(node->n_entries()) * cache.block_len(),
                          .n_sequences = use.n_sequences,
                          .is_pinned = use.is_pinned,
                          .hash = node->hashes.back().low});
  }
  return view;
}

}  // namespace baton
