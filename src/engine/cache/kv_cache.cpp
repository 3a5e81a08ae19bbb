/// How block tables take blocks from the pools and pass them to the prefix tree.
#include "engine/cache/kv_cache.h"

#include <algorithm>
#include <cstddef>

namespace baton {
namespace {

template <class OfGroup>
std::int32_t sum_over(int n_groups, const OfGroup& of_group) {
  std::int32_t sum = 0;
  for (int group = 0; group < n_groups; ++group) sum += of_group(group);
  return sum;
}

std::int32_t n_entries_of(const BlockTable& table) {
  return static_cast<std::int32_t>(
      std::ranges::min(table.groups, {}, [](const GroupTable& group) { return group.blocks.size(); }).blocks.size());
}

}  // namespace

KvCache::KvCache(const KvCacheOptions& options)
    : block_len_(options.block_len),
      max_rows_in_flight_(options.max_rows_in_flight),
      groups_(options.groups),
      kept_rows_(options.n_kept_rows) {
  check(block_len_ > 0 && !groups_.empty(), "KvCache: no layer group, or the block length is not positive");
  for (const CacheGroup& group : groups_) pools_.emplace_back(group.n_blocks);
  has_windows_ = std::ranges::any_of(groups_, &CacheGroup::has_window);
  if (options.enable_prefix_caching) tree_.emplace(block_len_, groups_, options.life_of_reuse);
  if (tree_ && options.records_events) tree_->record_events();
  if (options.n_state_slots > 0) {
    check(options.n_state_owners > 0 && options.n_state_slots >= options.n_state_owners && !(tree_ && has_windows_),
          "KvCache: fewer state slots than sequences, or snapshots beside windows");
    states_ = std::make_unique<StateSlots>(options.n_state_slots);
    n_state_owners_ = options.n_state_owners;
    state_interval_ = std::max(options.state_interval, block_len_);
    if (options.n_tier_states > 0) state_tier_.emplace(options.n_tier_states, block_len_);
    if (tree_) tree_->use_states(*states_, state_tier_ ? &*state_tier_ : nullptr);
  }
  if (options.n_tier_slots == 0) return;
  check(tree_ && !has_windows_ && (state_tier_ || !states_),
        "KvCache: a host tier without prefix caching, of groups with a window, or of states' keys alone");
  tier_.emplace(options.n_tier_slots, block_len_);
}

KvCache::KvCache(std::int32_t n_blocks, std::int32_t block_len, bool enable_prefix_caching, double life_of_reuse)
    : KvCache({.block_len = block_len,
               .groups = {{.n_blocks = n_blocks}},
               .enable_prefix_caching = enable_prefix_caching,
               .life_of_reuse = life_of_reuse}) {}

std::int32_t KvCache::n_blocks() const {
  return sum_over(n_groups(), [this](int group) { return n_blocks(group); });
}
std::int32_t KvCache::n_available() const {
  return sum_over(n_groups(), [this](int group) { return n_available(group); });
}
std::int32_t KvCache::n_pinned() const {
  return sum_over(n_groups(), [this](int group) { return n_pinned(group); });
}
std::int32_t KvCache::n_cached() const {
  return sum_over(n_groups(), [this](int group) { return n_cached(group); });
}

std::int32_t KvCache::n_lacking(int group, std::int32_t n_entries, std::int32_t n_held, std::int32_t n_positions) const {
  const std::int32_t n = n_blocks_for(n_positions) - n_entries;
  return std::max(0, groups_[at(group)].has_window() ? std::min(n, n_held_at_once(group) - n_held) : n);
}

std::int32_t KvCache::n_lacking(const BlockTable& table, int group, std::int32_t n_positions) const {
  const GroupTable& of = table.groups[at(group)];
  const auto n_entries = static_cast<std::int32_t>(of.blocks.size());
  return std::max(
      0, n_lacking(group, n_entries, n_entries - of.first_block, n_positions) - static_cast<std::int32_t>(of.spare.size()));
}

PrefixKey KvCache::key_of(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_tokens) const {
  check(n_tokens >= 0 && static_cast<std::size_t>(n_tokens) <= tokens.size(), "KvCache: more tokens asked for than there are");
  const auto n = static_cast<std::size_t>(n_tokens);
  extend_hashes(table.scope, tokens.first(n), block_len_, table.hashes);
  return {tokens, std::span<const BlockHash>(table.hashes).first(n / static_cast<std::size_t>(block_len_)), &table.scope};
}

PrefixTree::Found KvCache::find(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_match,
                                std::int64_t step) const {
  if (!tree_) return {0, 0, std::vector<std::int32_t>(groups_.size(), 0)};
  return tree_->find(key_of(table, tokens, n_match), step);
}

void KvCache::begin(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_match, std::int64_t step) {
  check(table.is_empty() && table.node == nullptr, "KvCache: begin on a table in use");
  table.groups.resize(groups_.size());
  if (!tree_) return;
  const PrefixTree::Match match = tree_->match(key_of(table, tokens, n_match), step);
  tree_->count_reuse(match.node);
  tree_->acquire(match.node);
  table.node = match.node;
  table.n_entries = table.n_cached_blocks = table.n_found_blocks = match.n_blocks;
  table.ends = {.found_fork = match.ends_at_fork, .n_to_fork = match.n_to_fork, .prompt = {}, .fork = {}, .found = {}};
  for (int g = 0; g < n_groups(); ++g) {
    GroupTable& group = table.groups[at(g)];
    group.first_block = groups_[at(g)].first_block_seen(match.n_blocks * block_len_, block_len_);
    group.blocks.reserve(static_cast<std::size_t>(match.n_blocks));
    for (std::int32_t i = 0; i < match.n_blocks; ++i) {
      const BlockId block = match.blocks[static_cast<std::size_t>(i) * groups_.size() + at(g)];
      group.blocks.push_back(block);
      if (i < group.first_block) continue;
      pools_[at(g)].retain(block);
      if (groups_[at(g)].has_window()) tree_->hold(g, block);
    }
  }
}

/// Evicts until `n_blocks` blocks of the group are free; they must be available.
void KvCache::make_free(int group, std::int32_t n_blocks) {
  const std::int32_t n_missing = n_blocks - pools_[at(group)].n_free();
  if (n_missing <= 0) return;
  for (const GroupBlock& evicted : tree_->evict(group, n_missing, tier_ ? &*tier_ : nullptr)) {
    const bool is_free = pools_[at(evicted.group)].release(evicted.block);
    check(is_free || evicted.group != group, "KvCache: an evicted block is still held");
  }
}

void KvCache::drop_cached() {
  if (!tree_) return;
  for (const GroupBlock& evicted : tree_->evict_all()) pools_[at(evicted.group)].release(evicted.block);
  if (tier_) tier_->clear();
  if (state_tier_) state_tier_->clear();
}

BlockId KvCache::take(int group) {
  const std::optional<BlockId> block = pools_[at(group)].allocate();
  check(block.has_value(), "KvCache: eviction freed fewer blocks than it promised");
  return *block;
}

/// An end that the table leaves now.
PrefixTree::End KvCache::new_end(const BlockTable& table) {
  if (!tree_) return {};
  return tree_->new_end(table.n_found_blocks > 0 && !table.ends.found_fork ? 1 : 0);
}

/// Ends a table's hold on the block of an entry. The block stays cached if the tree holds it too.
void KvCache::give_back(const BlockTable& table, int group, std::int32_t entry, bool is_behind_window, PrefixTree::End end) {
  const BlockId block = table.groups[at(group)].blocks[static_cast<std::size_t>(entry)];
  pools_[at(group)].release(block);
  if (!tree_ || !groups_[at(group)].has_window() || pools_[at(group)].count(block) != 1 || !tree_->has(group, block)) return;
  end.is_shared = entry < table.ends.n_to_fork || (table.ends.found_fork && entry < table.n_found_blocks);
  tree_->unhold(group, block, is_behind_window, end);
}

/// Makes the table cover `n_positions`, see extend.
bool KvCache::add_blocks(BlockTable& table, std::int32_t n_positions) {
  const auto n_from_pool = [&](int g) {
    const GroupTable& group = table.groups[at(g)];
    return n_blocks_for(n_positions) - static_cast<std::int32_t>(group.blocks.size() + group.spare.size());
  };
  for (int g = 0; g < n_groups(); ++g)
    if (n_from_pool(g) > n_available(g)) return false;
  for (int g = 0; g < n_groups(); ++g) {
    make_free(g, n_from_pool(g));
    GroupTable& group = table.groups[at(g)];
    while (static_cast<std::int32_t>(group.blocks.size()) < n_blocks_for(n_positions)) {
      if (group.spare.empty()) {
        group.blocks.push_back(take(g));
      } else {
        group.blocks.push_back(group.spare.back());
        group.spare.pop_back();
      }
    }
  }
  table.n_entries = n_entries_of(table);
  return true;
}

bool KvCache::reserve(BlockTable& table, std::int32_t n_positions) {
  check(static_cast<std::int32_t>(table.blocks_of(0).size()) == table.n_found_blocks && !table.is_empty(),
        "KvCache: reserve for a table that has begun to fill");
  // The table may give back blocks that it found while others keep them, so they do not count towards what it holds at
  // once.
  const auto n_wanted = [&](int g) { return n_lacking(g, table.n_found_blocks, 0, n_positions); };
  for (int g = 0; g < n_groups(); ++g)
    if (n_wanted(g) > n_available(g)) return false;
  table.has_reserve = true;
  for (int g = 0; g < n_groups(); ++g) {
    const std::int32_t n = n_wanted(g);
    make_free(g, n);
    GroupTable& group = table.groups[at(g)];
    std::vector<BlockId>& to = groups_[at(g)].has_window() ? group.spare : group.blocks;
    for (std::int32_t i = 0; i < n; ++i) to.push_back(take(g));
  }
  table.n_entries = n_entries_of(table);
  return true;
}

void KvCache::shorten(BlockTable& table, std::int32_t n_positions) {
  const auto n_kept = static_cast<std::size_t>(std::max(n_blocks_for(n_positions), table.n_cached_blocks));
  const PrefixTree::End end = new_end(table);
  for (int g = 0; g < n_groups(); ++g) {
    std::vector<BlockId>& blocks = table.groups[at(g)].blocks;
    while (blocks.size() > n_kept) {
      give_back(table, g, static_cast<std::int32_t>(blocks.size()) - 1, /*is_behind_window=*/false, end);
      blocks.pop_back();
    }
  }
  table.n_entries = n_entries_of(table);
}

/// The first entry whose block a table with rows from `position` on keeps.
std::int32_t KvCache::first_block_kept(const BlockTable& table, int group, std::int32_t position) const {
  const CacheGroup& of = groups_[at(group)];
  const std::int32_t first_seen = of.first_block_seen(position, block_len_);
  if (!tree_ || table.has_reserve) return first_seen;
  const std::int32_t first_at_end = of.first_block_seen(position / block_len_ * block_len_, block_len_);
  return n_blocks_for(position + max_rows_in_flight_) - first_at_end <= n_held_at_once(group) ? first_at_end : first_seen;
}

/// free_behind_window, where there are windows.
void KvCache::free_unseen(BlockTable& table, std::int32_t position, std::int32_t prompt_len) {
  for (int g = 0; g < n_groups(); ++g) {
    if (!groups_[at(g)].has_window()) continue;
    GroupTable& group = table.groups[at(g)];
    const std::int32_t first = std::min(first_block_kept(table, g, position), static_cast<std::int32_t>(group.blocks.size()));
    for (; group.first_block < first; ++group.first_block) leave(table, g, group.first_block, prompt_len);
  }
}

/// The end of text after which a row sees the entry's block of a group with a window, and where another prompt may begin or end;
/// null: there is none.
std::optional<PrefixTree::End>* KvCache::end_with(BlockTable& table, int group, std::int32_t entry,
                                                  std::int32_t prompt_len) const {
  const auto is_seen_after = [&](std::int32_t n_entries) {
    return entry < n_entries && entry >= groups_[at(group)].first_block_seen(n_entries * block_len_, block_len_);
  };
  // A request with the same prompt matches all but its last token, which must be computed; one that continues matches all.
  if (is_seen_after(prompt_len / block_len_) || is_seen_after((prompt_len - 1) / block_len_)) return &table.ends.prompt;
  if (is_seen_after(table.ends.n_to_fork)) return &table.ends.fork;
  if (table.ends.found_fork && is_seen_after(table.n_found_blocks)) return &table.ends.found;
  return nullptr;
}

/// Ends a table's use of an entry's block of a group with a window.
void KvCache::leave(BlockTable& table, int group, std::int32_t entry, std::int32_t prompt_len) {
  const BlockId block = table.groups[at(group)].blocks[static_cast<std::size_t>(entry)];
  if (table.has_reserve && !(tree_ && tree_->has(group, block))) {
    table.groups[at(group)].spare.push_back(block);
    return;
  }
  std::optional<PrefixTree::End>* end = end_with(table, group, entry, prompt_len);
  if (end == nullptr) {
    PrefixTree::End passed = new_end(table);
    passed.n_reuses = 0;  // its reuse counts where it ends
    return give_back(table, group, entry, /*is_behind_window=*/true, passed);
  }
  if (!*end) *end = new_end(table);
  give_back(table, group, entry, /*is_behind_window=*/false, **end);
}

/// The blocks of the table's entries [first, end) in the form that PrefixTree::insert takes.
std::vector<BlockId> KvCache::blocks_to_publish(const BlockTable& table, std::int32_t first, std::int32_t end) const {
  std::vector<BlockId> blocks(static_cast<std::size_t>(end - first) * groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupTable& group = table.groups[g];
    if (groups_[g].has_window() && table.has_reserve) continue;
    for (std::int32_t i = std::max(first, group.first_block); i < end; ++i)
      blocks[static_cast<std::size_t>(i - first) * groups_.size() + g] = group.blocks[static_cast<std::size_t>(i)];
  }
  return blocks;
}

/// publish, where there is a full entry that the tree may lack.
void KvCache::publish_full(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_filled,
                           std::int64_t usable_from) {
  const std::int32_t n_full = n_filled / block_len_;
  const PrefixKey key = key_of(table, tokens, n_filled);
  const std::int32_t first = table.n_cached_blocks;
  const std::vector<BlockId> blocks = blocks_to_publish(table, first, n_full);
  while (table.n_cached_blocks < n_full) {
    const std::int32_t index = table.n_cached_blocks;
    const auto entry = std::span(blocks).subspan(static_cast<std::size_t>(index - first) * groups_.size(), groups_.size());
    PrefixTree::Node* node = tree_->insert(table.node, key, index, entry, usable_from);
    if (node == nullptr) return offer(table, key, std::max(index, table.n_offered_blocks), usable_from);
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (entry[g].is_valid()) pools_[g].retain(entry[g]);
    table.node = node;
    ++table.n_cached_blocks;
  }
}

/// Offers the table's blocks of full entries from `first` on to the tree, which takes the ones that its entries lack.
void KvCache::offer(BlockTable& table, const PrefixKey& key, std::int32_t first, std::int64_t usable_from) {
  const auto n_full = static_cast<std::int32_t>(key.hashes.size());
  if (first >= n_full || !has_windows_) return;
  for (const GroupBlock& taken : tree_->fill_dropped(key, first, blocks_to_publish(table, first, n_full), usable_from))
    pools_[at(taken.group)].retain(taken.block);
  table.n_offered_blocks = n_full;
}

void KvCache::release(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_filled, std::int64_t usable_from) {
  table.has_reserve = false;
  publish(table, tokens, n_filled, usable_from);
  if (tree_ && table.node != nullptr) {
    const PrefixKey key = key_of(table, tokens, n_filled);
    offer(table, key, 0, usable_from);
    if (n_filled / block_len_ > table.n_cached_blocks) {
      // Publishing stopped at an entry whose equal is cached. Continue after that equal entry.
      const PrefixTree::Match match = tree_->trace(key);
      tree_->acquire(match.node);
      tree_->release(table.node);
      table.node = match.node;
      table.n_cached_blocks = match.n_blocks;
      publish(table, tokens, n_filled, usable_from);
    }
    if (states_) end_state(table, n_filled);
    tree_->release(table.node);
  } else if (states_) {
    end_state(table, n_filled);
  }
  // A request that ends with its prompt has not left the blocks before the last window.
  const std::int32_t n_before_end = std::max(0, n_filled - 1) / block_len_ * block_len_;
  const PrefixTree::End end = new_end(table);
  // Free the last block first: the pool allocates the block freed last, so the next sequence gets ascending block
  // numbers.
  for (int g = 0; g < n_groups() && !table.is_empty(); ++g) {
    GroupTable& group = table.groups[at(g)];
    const std::int32_t first_seen = groups_[at(g)].first_block_seen(n_before_end, block_len_);
    for (auto i = static_cast<std::int32_t>(group.blocks.size()); i-- > group.first_block;) {
      if (i < first_seen) {
        leave(table, g, i, n_filled);
      } else {
        give_back(table, g, i, /*is_behind_window=*/false, end);
      }
    }
    for (const BlockId block : group.spare) pools_[at(g)].release(block);
  }
  table.groups.clear();
  table.n_entries = table.n_cached_blocks = table.n_found_blocks = table.n_offered_blocks = 0;
  table.node = nullptr;
  table.ends = {};
}

std::vector<TierCopy> KvCache::take_copies() {
  if (!tier_) return {};
  std::vector<TierCopy> copies = tier_->take_copies();
  if (!state_tier_) return copies;
  // Blocks and states are different memory: their copies keep their order among themselves only.
  const std::vector<TierCopy> of_states = state_tier_->take_copies();
  copies.insert(copies.end(), of_states.begin(), of_states.end());
  return copies;
}

std::int32_t KvCache::load(BlockTable& table, std::span<const TokenId> tokens, std::int32_t first, std::int32_t n_most,
                           std::int64_t usable_from) {
  check(tier_ && first >= table.n_cached_blocks && table.n_entries >= first + n_most,
        "KvCache: a load into blocks that the table shares or lacks");
  const PrefixKey key = key_of(table, tokens, (first + n_most) * block_len_);
  std::vector<BlockId> entry(groups_.size());
  std::int32_t n = 0;
  for (; n < n_most; ++n) {
    for (std::size_t g = 0; g < groups_.size(); ++g) entry[g] = table.groups[g].blocks[static_cast<std::size_t>(first + n)];
    if (!tier_->load(key, first + n, entry)) break;
  }
  table.n_found_blocks = std::max(table.n_found_blocks, first + n);
  publish(table, tokens, (first + n) * block_len_, usable_from);
  return n;
}

KvCache::Pin KvCache::pin(const CacheScope& scope, std::span<const TokenId> tokens) {
  check(tree_.has_value(), "KvCache: a pin needs prefix caching");
  std::vector<BlockHash> hashes;
  extend_hashes(scope, tokens, block_len_, hashes);
  const PrefixTree::Match match = tree_->match({tokens, hashes, &scope}, PrefixTree::kAnyStep);
  tree_->pin(match.node);
  const PrefixTree::Snapshot snapshot = tree_->last_snapshot(match.node, match.n_blocks);
  const bool has_one = match.n_blocks > 0 && snapshot.n_blocks == match.n_blocks;
  if (has_one) states_->pin(snapshot.slot);
  return {match.node, match.n_blocks, has_one ? snapshot.slot : StateSlots::kNone};
}

void KvCache::unpin(const Pin& pin) {
  check(tree_.has_value() && pin.node != nullptr, "KvCache: unpin of what was not pinned");
  if (pin.snapshot != StateSlots::kNone) states_->unpin(pin.snapshot);
  tree_->unpin(pin.node);
}

void KvCache::check_table(const BlockTable& table) const {
  check(table.groups.size() == groups_.size(), "KvCache: a table has another number of groups");
  check(table.n_entries == n_entries_of(table), "KvCache: a table's entries are counted wrong");
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupTable& group = table.groups[g];
    const auto n_entries = static_cast<std::int32_t>(group.blocks.size());
    check(group.first_block >= 0 && group.first_block <= n_entries && (groups_[g].has_window() || group.first_block == 0),
          "KvCache: a table gave back blocks that it needs");
    check(table.n_cached_blocks <= n_entries, "KvCache: a table's shared part is longer than the table");
    check(group.spare.empty() || (table.has_reserve && groups_[g].has_window()),
          "KvCache: a table without a reserve has spare blocks");
    check(!groups_[g].has_window() || table.has_reserve || n_entries - group.first_block <= n_held_at_once(static_cast<int>(g)),
          "KvCache: a table holds more blocks than its window and its rows in flight need");
    if (!tree_ || !groups_[g].has_window() || table.has_reserve) continue;
    for (std::int32_t i = group.first_block; i < table.n_cached_blocks; ++i)
      check(tree_->has(static_cast<int>(g), group.blocks[static_cast<std::size_t>(i)]),
            "KvCache: the tree lacks a block of a table's shared part");
  }
  if (!tree_ || table.node == nullptr) {
    check(table.n_cached_blocks == 0, "KvCache: a table without a node has cached blocks");
  } else {
    check(tree_->depth(table.node) == table.n_cached_blocks, "KvCache: a table's node ends elsewhere than its shared part");
  }
}

void KvCache::check_invariants(std::span<const BlockTable* const> tables) const {
  std::vector<std::vector<std::int32_t>> holders;
  for (const BlockPool& pool : pools_) {
    pool.check_invariants();
    holders.emplace_back(static_cast<std::size_t>(pool.n_blocks()), 0);
  }
  std::vector<std::vector<bool>> is_cached;
  for (const auto& of : holders) is_cached.emplace_back(of.size(), false);
  std::vector<const PrefixTree::Node*> references;
  const std::vector<GroupBlock> cached = tree_ ? tree_->blocks() : std::vector<GroupBlock>();
  for (const auto& [group, block] : cached) {
    ++holders[at(group)][static_cast<std::size_t>(block.value)];
    is_cached[at(group)][static_cast<std::size_t>(block.value)] = true;
  }
  for (const BlockTable* table : tables) {
    check_table(*table);
    if (table->node != nullptr) references.push_back(table->node);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const GroupTable& group = table->groups[g];
      for (const BlockId block : group.spare) ++holders[g][static_cast<std::size_t>(block.value)];
      for (auto i = static_cast<std::size_t>(group.first_block); i < group.blocks.size(); ++i) {
        const auto block = static_cast<std::size_t>(group.blocks[i].value);
        ++holders[g][block];
        check(groups_[g].has_window() || is_cached[g][block] == (i < static_cast<std::size_t>(table->n_cached_blocks)),
              "KvCache: a table's shared part does not end where it says");
      }
    }
  }
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::int32_t i = 0; i < groups_[g].n_blocks; ++i)
      check(pools_[g].count(BlockId{i}) == holders[g][static_cast<std::size_t>(i)],
            "KvCache: a block's count is not its holders");
  for (const auto& [group, block] : cached)
    check(!groups_[at(group)].has_window() || tree_->is_held(group, block) == (pools_[at(group)].count(block) > 1),
          "KvCache: the tree takes a block for used, or not, that is not, or is");
  if (tree_) tree_->check_invariants(references);
  if (states_) check_states(tables);
  if (tier_) tier_->check_invariants();
  if (state_tier_) state_tier_->check_invariants();
}

}  // namespace baton
