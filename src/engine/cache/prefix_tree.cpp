/// Look-up, insertion, splitting, counts and eviction of the radix tree.
#include "engine/cache/prefix_tree.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "engine/cache/host_tier.h"
#include "engine/cache/prefix_tree_node.h"

namespace baton {

namespace {

/// The group in whose blocks eviction priorities are counted.
const CacheGroup& group_of_claims(const std::vector<CacheGroup>& groups) {
  const auto full = std::ranges::find_if_not(groups, &CacheGroup::has_window);
  return full != groups.end() ? *full : groups.front();
}

}  // namespace

PrefixTree::PrefixTree(std::int32_t block_len, std::vector<CacheGroup> groups, double life_of_reuse)
    : block_len_(block_len), groups_(std::move(groups)), root_(std::make_unique<Node>()) {
  check(block_len > 0 && !groups_.empty() && life_of_reuse >= 0, "PrefixTree: no groups, or the block length is not positive");
  for (const CacheGroup& group : groups_) {
    check(group.n_blocks >= 0 && group.window >= 0, "PrefixTree: a negative number of blocks, or window");
    has_full_group_ = has_full_group_ || !group.has_window();
    windows_.emplace_back(group.has_window() ? group.n_blocks : 0);
    locations_.emplace_back(group.has_window() ? static_cast<std::size_t>(group.n_blocks) : 0);
  }
  n_remembered_ = static_cast<std::size_t>(group_of_claims(groups_).n_blocks);
  life_of_reuse_ = life_of_reuse * static_cast<double>(n_remembered_);
}

PrefixTree::~PrefixTree() {
  // Move children out first: a chain of nodes as long as a prompt must not be freed recursively.
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

/// Whether every group with a window holds the keys that a row after entry i of `node` sees. `n_kept` has, for each
/// group, the number of consecutive entries that have the group's block, up to the previous entry; this entry is added
/// to it.
bool PrefixTree::can_end_after(const Node& node, std::size_t i, std::vector<std::int32_t>& n_kept) const {
  bool can_end = true;
  const std::int32_t n_blocks = node.first_index + static_cast<std::int32_t>(i) + 1;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].has_window()) continue;
    n_kept[g] = node.blocks[i * groups_.size() + g].is_valid() ? n_kept[g] + 1 : 0;
    const std::int32_t n_seen = n_blocks - groups_[g].first_block_seen(n_blocks * block_len_, block_len_);
    can_end = can_end && n_kept[g] >= n_seen;
  }
  return can_end;
}

PrefixTree::Walk PrefixTree::walk(const PrefixKey& key, std::int64_t step) const {
  check(key.hashes.size() * static_cast<std::size_t>(block_len_) <= key.tokens.size(), "PrefixTree: more hashes than blocks");
  Node* node = root_.get();
  Walk walk{{node, 0, 0}, {node, 0, 0}, 0};
  std::vector<std::int32_t> n_kept(groups_.size(), 0);
  bool is_pending = false;
  std::size_t i = 0;
  for (std::size_t index = 0; index < key.hashes.size(); ++index, ++i) {
    if (i == node->n_entries()) {
      const auto child = node->children.find(key.hashes[index]);
      if (child == node->children.end()) break;
      node = child->second.get();
      i = 0;
    }
    if (!equals(*node, i, key, index)) break;
    walk.last = {node, i + 1, static_cast<std::int32_t>(index) + 1};
    is_pending = is_pending || node->usable_from[i] > step;
    if (!can_end_after(*node, i, n_kept)) continue;
    if (is_pending) {
      walk.n_pending = walk.last.n_blocks - walk.ready.n_blocks;
    } else {
      walk.ready = walk.last;
    }
  }
  return walk;
}

/// Calls `visit` for the group's blocks that a row after `end` sees, the last one first.
template <class Visit>
void PrefixTree::visit_window(Place end, int group, const Visit& visit) const {
  const std::int32_t first = groups_[at(group)].first_block_seen(end.n_blocks * block_len_, block_len_);
  const Node* node = end.node;
  for (std::int32_t index = end.n_blocks; index-- > first;) {
    while (index < node->first_index) node = node->parent;
    visit(node->blocks[static_cast<std::size_t>(index - node->first_index) * groups_.size() + at(group)]);
  }
}

PrefixTree::Found PrefixTree::find(const PrefixKey& key, std::int64_t step) const {
  const Walk at = walk(key, step);
  // Every node above a held node is held too, so the nodes without a holder are the last ones.
  std::size_t n_unheld = 0;
  std::size_t n_in_node = at.ready.n_in_node;
  for (const Node* up = at.ready.node; up->is_evictable(); up = up->parent) {
    n_unheld += n_in_node;
    n_in_node = up->parent->n_entries();
  }
  Found found{at.ready.n_blocks, at.n_pending, std::vector<std::int32_t>(groups_.size(), static_cast<std::int32_t>(n_unheld)),
              0};
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].has_window()) continue;
    found.n_unheld[g] = 0;
    visit_window(at.ready, static_cast<int>(g), [&](BlockId block) { found.n_unheld[g] += windows_[g].is_droppable(block); });
  }
  if (states_ != nullptr) found.n_to_snapshot = last_snapshot(at.ready.node, at.ready.n_blocks).n_blocks;
  return found;
}

PrefixTree::Match PrefixTree::match(const PrefixKey& key, std::int64_t step) {
  const Walk at = walk(key, step);
  // The key leaves the tree's text at the last place, and follows one of its continuations at any other.
  const bool is_last = at.ready.n_blocks == at.last.n_blocks;
  const bool ends_at_fork = n_continuations(at.ready) > (is_last ? 0U : 1U);
  const std::int32_t n_to_fork = n_continuations(at.last) > 0 ? at.last.n_blocks : 0;
  Match match = end_at(at.ready);
  match.ends_at_fork = ends_at_fork;
  match.n_to_fork = n_to_fork;
  return match;
}
PrefixTree::Match PrefixTree::trace(const PrefixKey& key) { return end_at(walk(key, kAnyStep).last); }

/// In how many ways the tree's text continues after a place.
std::size_t PrefixTree::n_continuations(Place place) {
  return place.n_in_node < place.node->n_entries() ? 1 : place.node->children.size();
}

/// The match that ends at `place`; splits the node if the place is inside it.
PrefixTree::Match PrefixTree::end_at(Place place) {
  Node* node = place.node;
  if (place.n_in_node < node->n_entries()) {
    split(node, place.n_in_node);
    node = node->parent;
  }
  touch(node);
  Match match;
  match.node = node;
  match.n_blocks = place.n_blocks;
  match.blocks.resize(static_cast<std::size_t>(place.n_blocks) * groups_.size());
  std::size_t end = match.blocks.size();
  for (const Node* up = node; up->parent != nullptr; up = up->parent) {
    end -= up->blocks.size();
    std::ranges::copy(up->blocks, match.blocks.begin() + static_cast<std::ptrdiff_t>(end));
  }
  check(end == 0, "PrefixTree: a match does not begin at the root");
  return match;
}

void PrefixTree::split(Node* node, std::size_t n_upper) {
  check(n_upper > 0 && n_upper < node->n_entries(), "PrefixTree: a split must leave blocks on both sides");
  Node* parent = node->parent;
  const BlockHash first_hash = node->hashes.front();
  auto upper = std::make_unique<Node>();
  upper->parent = parent;
  upper->first_index = node->first_index;
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
  move_front(node->blocks, upper->blocks, n_upper * groups_.size());
  move_front(node->hashes, upper->hashes, n_upper);
  move_front(node->usable_from, upper->usable_from, n_upper);
  move_front(node->tokens, upper->tokens, n_upper * static_cast<std::size_t>(block_len_));
  node->first_index += static_cast<std::int32_t>(n_upper);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].has_window()) continue;
    for (std::size_t i = 0; i < n_upper; ++i) {
      const BlockId block = upper->blocks[i * groups_.size() + g];
      if (block.is_valid()) locations_[g][static_cast<std::size_t>(block.value)].node = upper.get();
    }
  }

  split_snapshots(*upper, *node);

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

std::uint64_t PrefixTree::claim_of(const Node& node) const { return claim_after(node.last_used, node.n_reuses); }
std::uint64_t PrefixTree::claim_after(std::uint64_t last_used, std::uint32_t n_reuses) const {
  if (n_reuses == 0) return last_used;
  return last_used + static_cast<std::uint64_t>(life_of_reuse_ * std::log2(1.0 + n_reuses));
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

/// The reuse count of a newly computed block: one more than before if it was evicted recently, else 0.
std::uint32_t PrefixTree::recall(const BlockHash& hash) {
  if (evicted_.empty()) return 0;
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

/// Makes `block` the group's block of the node's entry i. For a group with a window, the caller uses the block.
void PrefixTree::put_block(Node* node, std::size_t i, int group, BlockId block) {
  node->blocks[i * groups_.size() + at(group)] = block;
  if (!groups_[at(group)].has_window()) return;
  windows_[at(group)].add(block);
  locations_[at(group)][static_cast<std::size_t>(block.value)] = {node, node->first_index + static_cast<std::int32_t>(i)};
}

/// Records that the tree has the group's block of the key's entry `index` from now on.
void PrefixTree::record_stored(const PrefixKey& key, std::int32_t index, int group) {
  const auto at = static_cast<std::size_t>(index);
  const auto len = static_cast<std::size_t>(block_len_);
  const std::optional<BlockHash> parent = index > 0 ? std::optional(key.hashes[at - 1]) : std::nullopt;
  const bool is_salted = key.scope != nullptr && is_salted_block(*key.scope, at, block_len_);
  recorder_->stored(group, key.hashes[at], parent, key.tokens.subspan(at * len, len), key.scope, is_salted);
}

PrefixTree::Node* PrefixTree::insert(Node* node, const PrefixKey& key, std::int32_t index, std::span<const BlockId> blocks,
                                     std::int64_t usable_from) {
  const auto key_index = static_cast<std::size_t>(index);
  check(key_index < key.hashes.size() && blocks.size() == groups_.size(),
        "PrefixTree: an insert needs the entry's hash and a block for each group");
  check(node->parent == nullptr ? index == 0 : node->n_references > 0, "PrefixTree: an insert needs a reference on its node");
  const BlockHash hash = key.hashes[key_index];
  if (node->children.contains(hash)) return nullptr;

  std::uint32_t n_reuses = recall(hash);
  if (node->parent != nullptr) n_reuses = std::min(n_reuses, node->n_reuses);  // its prefix is found at least as often
  Node* target = node;
  // A run grows in place only if the caller is its only sharer and it was found as often as the new entry: any other
  // sequence's prefix ends where the run ended.
  if (node->parent == nullptr || !node->children.empty() || node->n_references != 1 || node->n_pins != 0 ||
      node->n_reuses != n_reuses) {
    auto child = std::make_unique<Node>();
    child->parent = node;
    child->first_index = node->end_index();
    child->serial = ++next_serial_;
    child->n_references = 1;
    child->n_reuses = n_reuses;
    target = child.get();
    node->children.emplace(hash, std::move(child));
    refresh_leaf(node);
  }
  const auto len = static_cast<std::size_t>(block_len_);
  const auto tokens = key.tokens.subspan(key_index * len, len);
  const std::size_t i = target->n_entries();
  target->blocks.resize(target->blocks.size() + groups_.size());
  target->hashes.push_back(hash);
  target->usable_from.push_back(usable_from);
  target->tokens.insert(target->tokens.end(), tokens.begin(), tokens.end());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    check(blocks[g].is_valid() || groups_[g].has_window(), "PrefixTree: an entry lacks the block of a group without a window");
    if (!blocks[g].is_valid()) continue;
    put_block(target, i, static_cast<int>(g), blocks[g]);
    if (recorder_) record_stored(key, index, static_cast<int>(g));
  }
  ++n_entries_;
  touch(target);
  return target;
}

std::vector<GroupBlock> PrefixTree::fill_dropped(const PrefixKey& key, std::int32_t first, std::span<const BlockId> blocks,
                                                 std::int64_t usable_from) {
  std::vector<GroupBlock> taken;
  for (Place place = walk(key, kAnyStep).last; place.n_blocks > first;) {
    Node* node = place.node;
    const std::int32_t begin = std::max(first, node->first_index);
    for (std::int32_t index = begin; index < place.n_blocks; ++index) {
      const auto i = static_cast<std::size_t>(index - node->first_index);
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        const BlockId block = blocks[static_cast<std::size_t>(index - first) * groups_.size() + g];
        if (node->blocks[i * groups_.size() + g].is_valid() || !block.is_valid()) continue;
        put_block(node, i, static_cast<int>(g), block);
        if (recorder_) record_stored(key, index, static_cast<int>(g));
        node->usable_from[i] = std::max(node->usable_from[i], usable_from);
        taken.push_back({static_cast<int>(g), block});
      }
    }
    place = {node->parent, 0, begin};
  }
  return taken;
}

void PrefixTree::add_to_counts(Node* node, std::int32_t references, std::int32_t pins) {
  for (Node* up = node; up->parent != nullptr; up = up->parent) {
    const bool was_evictable = up->is_evictable();
    const bool was_pinned = up->n_pins > 0;
    up->n_references += references;
    up->n_pins += pins;
    check(up->n_references >= 0 && up->n_pins >= 0, "PrefixTree: a node is released more often than acquired");
    const auto n = static_cast<std::int32_t>(up->n_entries());
    n_evictable_ += (static_cast<int>(up->is_evictable()) - static_cast<int>(was_evictable)) * n;
    n_pinned_ += (static_cast<int>(up->n_pins > 0) - static_cast<int>(was_pinned)) * n;
    refresh_leaf(up);
  }
  forget_empty_end(node);
}

void PrefixTree::acquire(Node* node) { add_to_counts(node, 1, 0); }
void PrefixTree::release(Node* node) {
  touch(node);
  add_to_counts(node, -1, 0);
}

void PrefixTree::pin(Node* node) {
  const Place end{node, node->n_entries(), node->end_index()};
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].has_window()) visit_window(end, static_cast<int>(g), [&](BlockId block) { windows_[g].pin(block); });
  add_to_counts(node, 0, 1);
}

void PrefixTree::unpin(Node* node) {
  const Place end{node, node->n_entries(), node->end_index()};
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].has_window()) visit_window(end, static_cast<int>(g), [&](BlockId block) { windows_[g].unpin(block); });
  add_to_counts(node, 0, -1);
}

void PrefixTree::unhold(int group, BlockId block, bool is_behind_window, const End& end) {
  const Node* node = locations_[at(group)][static_cast<std::size_t>(block.value)].node;
  const std::uint32_t n_reuses =
      end.is_shared ? node->n_reuses : std::max(node->n_reuses > 0 ? node->n_reuses - 1 : 0, end.n_reuses);
  windows_[at(group)].unhold(block, is_behind_window, claim_after(end.time, n_reuses), end.serial);
}

/// Removes the last entry of a leaf, which `tier` (if there is one) keeps. The hash of a leaf's only entry stays.
void PrefixTree::remove_last_entry(Node* leaf, std::vector<GroupBlock>& removed, HostTier* tier) {
  const std::size_t last = leaf->n_entries() - 1;
  if (tier != nullptr)
    tier->save(leaf->hashes[last], std::span(leaf->tokens).last(static_cast<std::size_t>(block_len_)),
               std::span(leaf->blocks).last(groups_.size()));
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const BlockId block = leaf->blocks[last * groups_.size() + g];
    if (!block.is_valid()) continue;
    if (groups_[g].has_window()) windows_[g].remove(block);
    if (recorder_) recorder_->removed(static_cast<int>(g), leaf->hashes[last]);
    removed.push_back({static_cast<int>(g), block});
  }
  drop_snapshot_after(leaf, leaf->end_index() - 1, /*keeps=*/tier != nullptr);
  remember(leaf->hashes[last], leaf->n_reuses);
  leaf->blocks.resize(last * groups_.size());
  leaf->usable_from.pop_back();
  leaf->tokens.resize(last * static_cast<std::size_t>(block_len_));
  if (last > 0) leaf->hashes.pop_back();
  --n_entries_;
  --n_evictable_;
}

/// Removes a leaf without entries from the tree. Returns its parent.
PrefixTree::Node* PrefixTree::remove_leaf(Node* leaf) {
  if (leaf->is_listed) evictable_leaves_.erase({leaf->listed_claim, leaf->serial, leaf});
  Node* parent = leaf->parent;
  const BlockHash first_hash = leaf->hashes.front();
  parent->children.erase(first_hash);
  refresh_leaf(parent);
  return parent;
}

/// If every group has a window: removes the entries without blocks from the end of a leaf without holders, and the
/// leaf if none is left.
void PrefixTree::forget_empty_end(Node* node) {
  if (has_full_group_) return;
  std::vector<GroupBlock> removed;
  while (node->is_evictable() && node->children.empty()) {
    while (node->n_entries() > 0) {
      const auto last = std::span(node->blocks).last(groups_.size());
      if (std::ranges::any_of(last, &BlockId::is_valid)) return;
      remove_last_entry(node, removed, nullptr);
    }
    node = remove_leaf(node);
  }
}

std::vector<GroupBlock> PrefixTree::evict(int group, std::int32_t n_blocks, HostTier* tier) {
  std::vector<GroupBlock> evicted;
  if (groups_[at(group)].has_window()) {
    WindowBlocks& window = windows_[at(group)];
    for (; n_blocks > 0 && window.next(); --n_blocks) {
      const BlockId block = *window.next();
      const auto [node, index] = locations_[at(group)][static_cast<std::size_t>(block.value)];
      const auto i = static_cast<std::size_t>(index - node->first_index);
      node->blocks[i * groups_.size() + at(group)] = BlockId{};
      window.remove(block);
      if (recorder_) recorder_->removed(group, node->hashes[i]);
      evicted.push_back({group, block});
      forget_empty_end(node);
    }
    return evicted;
  }
  while (n_blocks > 0 && !evictable_leaves_.empty()) {
    Node* leaf = std::get<Node*>(*evictable_leaves_.begin());
    for (; n_blocks > 0 && leaf->n_entries() > 0; --n_blocks) remove_last_entry(leaf, evicted, tier);
    if (leaf->n_entries() == 0) remove_leaf(leaf);
  }
  return evicted;
}

std::vector<GroupBlock> PrefixTree::evict_all() {
  std::vector<GroupBlock> evicted;
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    const std::vector<GroupBlock> of_group = evict(g, n_evictable(g));
    evicted.insert(evicted.end(), of_group.begin(), of_group.end());
  }
  evicted_.clear();
  evicted_order_.clear();
  return evicted;
}

std::int32_t PrefixTree::n_blocks(int group) const {
  return groups_[at(group)].has_window() ? windows_[at(group)].n_blocks() : n_entries_;
}
std::int32_t PrefixTree::n_evictable(int group) const {
  return groups_[at(group)].has_window() ? windows_[at(group)].n_droppable() : n_evictable_;
}
std::int32_t PrefixTree::n_pinned(int group) const {
  return groups_[at(group)].has_window() ? windows_[at(group)].n_pinned() : n_pinned_;
}

std::int32_t PrefixTree::depth(const Node* node) const { return node->end_index(); }

std::vector<GroupBlock> PrefixTree::blocks() const {
  std::vector<GroupBlock> all;
  std::vector<const Node*> pending{root_.get()};
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    for (std::size_t i = 0; i < node->blocks.size(); ++i)
      if (node->blocks[i].is_valid()) all.push_back({static_cast<int>(i % groups_.size()), node->blocks[i]});
    for (const auto& [hash, child] : node->children) pending.push_back(child.get());
  }
  return all;
}

}  // namespace baton
