/// Look-up, insertion, split, counts and eviction of the radix tree.
#include "engine/prefix_tree.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/check.h"

namespace baton {

/// blocks[i] holds tokens [i * block_len, (i + 1) * block_len) of `tokens`; steps from usable_from[i] on may read it.
struct PrefixTree::Node {
  Node* parent = nullptr;
  std::map<BlockHash, std::unique_ptr<Node>> children;  ///< by the hash of their first block
  std::vector<BlockId> blocks;
  std::vector<BlockHash> hashes;
  std::vector<std::int64_t> usable_from;
  std::vector<TokenId> tokens;
  std::int32_t n_references = 0;
  std::int32_t n_pins = 0;
  std::uint64_t last_used = 0;
  std::uint32_t n_reuses = 0;
  std::uint64_t serial = 0;
  bool is_listed = false;  ///< in evictable_leaves_, under listed_claim
  std::uint64_t listed_claim = 0;

  bool is_evictable() const { return parent != nullptr && n_references == 0 && n_pins == 0; }
  std::int32_t n_blocks() const { return static_cast<std::int32_t>(blocks.size()); }
};

/// How far a key can be followed: to block n_in_node of `node`.
struct PrefixTree::Walk {
  Node* node = nullptr;
  std::size_t n_in_node = 0;
  std::size_t n_ready = 0;
  std::size_t n_pending = 0;
};

PrefixTree::PrefixTree(std::int32_t block_len, std::int32_t n_cache_blocks, double life_of_reuse)
    : block_len_(block_len),
      life_of_reuse_(life_of_reuse * n_cache_blocks),
      root_(std::make_unique<Node>()),
      n_remembered_(static_cast<std::size_t>(n_cache_blocks)) {
  check(block_len > 0 && n_cache_blocks >= 0 && life_of_reuse >= 0, "PrefixTree: the block length must be positive");
}

PrefixTree::~PrefixTree() {
  // Children are moved out first: a chain of nodes as long as a prompt must not be freed by recursion.
  std::vector<std::unique_ptr<Node>> pending;
  pending.push_back(std::move(root_));
  while (!pending.empty()) {
    const std::unique_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    for (auto& [hash, child] : node->children) pending.push_back(std::move(child));
  }
}

bool PrefixTree::equals(const Node& node, std::size_t i, const PrefixKey& key, std::size_t index) const {
  if (node.hashes[i] != key.hashes[index]) return false;
  const auto len = static_cast<std::size_t>(block_len_);
  return std::ranges::equal(std::span(node.tokens).subspan(i * len, len), key.tokens.subspan(index * len, len));
}

PrefixTree::Walk PrefixTree::walk(const PrefixKey& key, std::int64_t step) const {
  check(key.hashes.size() * static_cast<std::size_t>(block_len_) <= key.tokens.size(), "PrefixTree: more hashes than blocks");
  Walk at{root_.get(), 0, 0, 0};
  const Node* node = root_.get();
  std::size_t i = 0;
  for (std::size_t index = 0; index < key.hashes.size(); ++index, ++i) {
    if (i == node->blocks.size()) {
      const auto child = node->children.find(key.hashes[index]);
      if (child == node->children.end()) break;
      node = child->second.get();
      i = 0;
    }
    if (!equals(*node, i, key, index)) break;
    if (at.n_pending > 0 || node->usable_from[i] > step) {
      ++at.n_pending;
    } else {
      at = {const_cast<Node*>(node), i + 1, index + 1, 0};
    }
  }
  return at;
}

PrefixTree::Found PrefixTree::find(const PrefixKey& key, std::int64_t step) const {
  const Walk at = walk(key, step);
  // What is above a node that is held is held too, so those that nobody holds are the last ones.
  std::size_t n_unheld = 0;
  std::size_t n_in_node = at.n_in_node;
  for (const Node* up = at.node; up->is_evictable(); up = up->parent) {
    n_unheld += n_in_node;
    n_in_node = up->parent->blocks.size();
  }
  return {static_cast<std::int32_t>(at.n_ready), static_cast<std::int32_t>(at.n_pending), static_cast<std::int32_t>(n_unheld)};
}

PrefixTree::Match PrefixTree::match(const PrefixKey& key, std::int64_t step) {
  const Walk at = walk(key, step);
  Node* node = at.node;
  if (at.n_in_node < node->blocks.size()) {
    split(node, at.n_in_node);
    node = node->parent;
  }
  touch(node);
  Match match{node, std::vector<BlockId>(at.n_ready)};
  std::size_t end = at.n_ready;
  for (const Node* up = node; up->parent != nullptr; up = up->parent) {
    end -= up->blocks.size();
    std::ranges::copy(up->blocks, match.blocks.begin() + static_cast<std::ptrdiff_t>(end));
  }
  check(end == 0, "PrefixTree: a match does not begin at the root");
  return match;
}

void PrefixTree::split(Node* node, std::size_t n_upper) {
  check(n_upper > 0 && n_upper < node->blocks.size(), "PrefixTree: a split must leave blocks on both sides");
  Node* parent = node->parent;
  const BlockHash first_hash = node->hashes.front();
  auto upper = std::make_unique<Node>();
  upper->parent = parent;
  upper->serial = ++next_serial_;
  upper->last_used = node->last_used;
  upper->n_reuses = node->n_reuses;
  upper->n_references = node->n_references;
  upper->n_pins = node->n_pins;

  const auto move_front = [](auto& from, auto& to, std::size_t count) {
    const auto end = from.begin() + static_cast<std::ptrdiff_t>(count);
    to.assign(from.begin(), end);
    from.erase(from.begin(), end);
  };
  move_front(node->blocks, upper->blocks, n_upper);
  move_front(node->hashes, upper->hashes, n_upper);
  move_front(node->usable_from, upper->usable_from, n_upper);
  move_front(node->tokens, upper->tokens, n_upper * static_cast<std::size_t>(block_len_));

  auto& place = parent->children.at(first_hash);
  node->parent = upper.get();
  upper->children.emplace(node->hashes.front(), std::move(place));
  place = std::move(upper);
}

void PrefixTree::touch(Node* node) {
  ++clock_;
  for (Node* up = node; up->parent != nullptr; up = up->parent) {
    up->last_used = clock_;
    refresh_leaf(up);
  }
}

void PrefixTree::count_reuse(Node* node) {
  for (Node* up = node; up->parent != nullptr; up = up->parent) {
    ++up->n_reuses;
    refresh_leaf(up);
  }
}

std::uint64_t PrefixTree::claim_of(const Node& node) const {
  if (node.n_reuses == 0) return node.last_used;
  return node.last_used + static_cast<std::uint64_t>(life_of_reuse_ * std::log2(1.0 + node.n_reuses));
}

void PrefixTree::remember(const BlockHash& hash, std::uint32_t n_reuses) {
  evicted_[hash] = {n_reuses, ++next_serial_};
  evicted_order_.push_back({hash, next_serial_});
  while (evicted_order_.size() > n_remembered_) {
    const auto& [oldest, serial] = evicted_order_.front();
    const auto at = evicted_.find(oldest);
    if (at != evicted_.end() && at->second.serial == serial) evicted_.erase(at);
    evicted_order_.pop_front();
  }
}

/// The reuses of a block that is computed: once more than before if it was evicted lately, else none.
std::uint32_t PrefixTree::recall(const BlockHash& hash) {
  const auto at = evicted_.find(hash);
  if (at == evicted_.end()) return 0;
  const std::uint32_t n_reuses = at->second.n_reuses + 1;
  evicted_.erase(at);
  return n_reuses;
}

void PrefixTree::refresh_leaf(Node* node) {
  const bool belongs = node->is_evictable() && node->children.empty();
  const std::uint64_t claim = belongs ? claim_of(*node) : 0;
  if (node->is_listed && (!belongs || node->listed_claim != claim)) {
    evictable_leaves_.erase({node->listed_claim, node->serial, node});
    node->is_listed = false;
  }
  if (belongs && !node->is_listed) {
    node->is_listed = true;
    node->listed_claim = claim;
    evictable_leaves_.insert({claim, node->serial, node});
  }
}

PrefixTree::Node* PrefixTree::insert(Node* node, const PrefixKey& key, std::int32_t index, BlockId block,
                                     std::int64_t usable_from) {
  const auto at = static_cast<std::size_t>(index);
  check(at < key.hashes.size(), "PrefixTree: an insert needs the block's hash");
  check(node->parent == nullptr ? index == 0 : node->n_references > 0, "PrefixTree: an insert needs a reference on its node");
  const BlockHash hash = key.hashes[at];
  if (node->children.contains(hash)) return nullptr;

  std::uint32_t n_reuses = recall(hash);
  if (node->parent != nullptr) n_reuses = std::min(n_reuses, node->n_reuses);  // what lies before it is asked for as often
  Node* target = node;
  // A run grows in place only while its sole sharer is the caller, and by what was found as often: anyone else's prefix ends
  // where the run ended.
  if (node->parent == nullptr || !node->children.empty() || node->n_references != 1 || node->n_pins != 0 ||
      node->n_reuses != n_reuses) {
    auto child = std::make_unique<Node>();
    child->parent = node;
    child->serial = ++next_serial_;
    child->n_references = 1;
    child->n_reuses = n_reuses;
    target = child.get();
    node->children.emplace(hash, std::move(child));
    refresh_leaf(node);
  }
  const auto len = static_cast<std::size_t>(block_len_);
  const auto tokens = key.tokens.subspan(at * len, len);
  target->blocks.push_back(block);
  target->hashes.push_back(hash);
  target->usable_from.push_back(usable_from);
  target->tokens.insert(target->tokens.end(), tokens.begin(), tokens.end());
  ++n_blocks_;
  touch(target);
  return target;
}

void PrefixTree::add_to_counts(Node* node, std::int32_t references, std::int32_t pins) {
  for (Node* up = node; up->parent != nullptr; up = up->parent) {
    const bool was_evictable = up->is_evictable();
    const bool was_pinned = up->n_pins > 0;
    up->n_references += references;
    up->n_pins += pins;
    check(up->n_references >= 0 && up->n_pins >= 0, "PrefixTree: a node is released more often than acquired");
    n_evictable_ += (static_cast<int>(up->is_evictable()) - static_cast<int>(was_evictable)) * up->n_blocks();
    n_pinned_ += (static_cast<int>(up->n_pins > 0) - static_cast<int>(was_pinned)) * up->n_blocks();
    refresh_leaf(up);
  }
}

void PrefixTree::acquire(Node* node) { add_to_counts(node, 1, 0); }
void PrefixTree::release(Node* node) {
  touch(node);
  add_to_counts(node, -1, 0);
}
void PrefixTree::pin(Node* node) { add_to_counts(node, 0, 1); }
void PrefixTree::unpin(Node* node) { add_to_counts(node, 0, -1); }

std::vector<BlockId> PrefixTree::evict(std::int32_t n_blocks) {
  std::vector<BlockId> evicted;
  while (static_cast<std::int32_t>(evicted.size()) < n_blocks && !evictable_leaves_.empty()) {
    Node* leaf = std::get<Node*>(*evictable_leaves_.begin());
    while (!leaf->blocks.empty() && static_cast<std::int32_t>(evicted.size()) < n_blocks) {
      evicted.push_back(leaf->blocks.back());
      remember(leaf->hashes[leaf->blocks.size() - 1], leaf->n_reuses);
      leaf->blocks.pop_back();
      leaf->usable_from.pop_back();
      leaf->tokens.resize(leaf->tokens.size() - static_cast<std::size_t>(block_len_));
      if (!leaf->blocks.empty()) leaf->hashes.pop_back();
      --n_blocks_;
      --n_evictable_;
    }
    if (!leaf->blocks.empty()) continue;
    evictable_leaves_.erase(evictable_leaves_.begin());
    Node* parent = leaf->parent;
    const BlockHash first_hash = leaf->hashes.front();
    parent->children.erase(first_hash);
    refresh_leaf(parent);
  }
  return evicted;
}

std::int32_t PrefixTree::depth(const Node* node) const {
  std::int32_t n = 0;
  for (const Node* up = node; up->parent != nullptr; up = up->parent) n += up->n_blocks();
  return n;
}

std::vector<BlockId> PrefixTree::blocks() const {
  std::vector<BlockId> all;
  std::vector<const Node*> pending{root_.get()};
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    all.insert(all.end(), node->blocks.begin(), node->blocks.end());
    for (const auto& [hash, child] : node->children) pending.push_back(child.get());
  }
  return all;
}

void PrefixTree::check_invariants(std::span<const Node* const> references) const {
  std::unordered_map<const Node*, std::int32_t> n_references;
  for (const Node* node : references) {
    for (const Node* up = node; up->parent != nullptr; up = up->parent) ++n_references[up];
  }
  std::set<BlockId> seen;
  std::int32_t n_evictable = 0, n_pinned = 0;
  std::size_t n_leaves = 0;
  std::vector<const Node*> pending{root_.get()};
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    std::int32_t child_pins = 0;
    for (const auto& [hash, child] : node->children) {
      check(child->parent == node && child->hashes.front() == hash, "PrefixTree: a child is filed under another hash");
      check((child->last_used <= node->last_used && child->n_reuses <= node->n_reuses) || node->parent == nullptr,
            "PrefixTree: a child was used after its parent, or more often");
      child_pins += child->n_pins;
      pending.push_back(child.get());
    }
    if (node->parent == nullptr) {
      check(node->blocks.empty(), "PrefixTree: the root holds blocks");
      continue;
    }
    const std::size_t n = node->blocks.size();
    check(n > 0 && node->hashes.size() == n && node->usable_from.size() == n &&
              node->tokens.size() == n * static_cast<std::size_t>(block_len_),
          "PrefixTree: a node's arrays differ in length");
    for (const BlockId block : node->blocks) check(seen.insert(block).second, "PrefixTree: a block occurs twice");
    check(node->n_references == n_references[node], "PrefixTree: a reference count is wrong");
    check(node->n_pins >= child_pins, "PrefixTree: a node has fewer pins than its children");
    if (node->is_evictable()) n_evictable += node->n_blocks();
    if (node->n_pins > 0) n_pinned += node->n_blocks();
    const bool belongs = node->is_evictable() && node->children.empty();
    check(belongs == node->is_listed, "PrefixTree: an evictable leaf is not listed, or another node is");
    if (!belongs) continue;
    ++n_leaves;
    check(node->listed_claim == claim_of(*node) &&
              evictable_leaves_.contains({node->listed_claim, node->serial, const_cast<Node*>(node)}),
          "PrefixTree: a leaf is listed under another claim");
  }
  check(evicted_.size() <= evicted_order_.size() && evicted_order_.size() <= n_remembered_,
        "PrefixTree: more is remembered than fits the cache");
  check(n_leaves == evictable_leaves_.size(), "PrefixTree: the list of evictable leaves holds strangers");
  check(static_cast<std::int32_t>(seen.size()) == n_blocks_, "PrefixTree: the number of blocks is wrong");
  check(n_evictable == n_evictable_, "PrefixTree: the number of evictable blocks is wrong");
  check(n_pinned == n_pinned_, "PrefixTree: the number of pinned blocks is wrong");
}

}  // namespace baton
