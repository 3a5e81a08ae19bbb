/// How tables take blocks from the pool and hand them on to the tree.
#include "engine/kv_cache.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/check.h"

namespace baton {

KvCache::KvCache(std::int32_t n_blocks, std::int32_t block_len, bool enable_prefix_caching, double life_of_reuse)
    : block_len_(block_len), pool_(n_blocks) {
  check(block_len > 0, "KvCache: the block length must be positive");
  if (enable_prefix_caching) tree_.emplace(block_len, n_blocks, life_of_reuse);
}

PrefixKey KvCache::key_of(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_tokens) const {
  check(n_tokens >= 0 && static_cast<std::size_t>(n_tokens) <= tokens.size(), "KvCache: more tokens asked for than there are");
  const auto n = static_cast<std::size_t>(n_tokens);
  extend_hashes(table.scope, tokens.first(n), block_len_, table.hashes);
  return {tokens, std::span<const BlockHash>(table.hashes).first(n / static_cast<std::size_t>(block_len_))};
}

PrefixTree::Found KvCache::find(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_match,
                                std::int64_t step) const {
  if (!tree_) return {};
  return tree_->find(key_of(table, tokens, n_match), step);
}

void KvCache::begin(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_match, std::int64_t step) {
  check(table.blocks.empty() && table.node == nullptr, "KvCache: begin on a table in use");
  if (!tree_) return;
  PrefixTree::Match match = tree_->match(key_of(table, tokens, n_match), step);
  tree_->count_reuse(match.node);
  tree_->acquire(match.node);
  for (const BlockId block : match.blocks) pool_.retain(block);
  table.node = match.node;
  table.blocks = std::move(match.blocks);
  table.n_cached_blocks = static_cast<std::int32_t>(table.blocks.size());
}

bool KvCache::extend(BlockTable& table, std::int32_t n_positions) {
  const std::int32_t n_wanted = n_blocks_for(n_positions) - static_cast<std::int32_t>(table.blocks.size());
  if (n_wanted <= 0) return true;
  if (n_wanted > n_available()) return false;
  if (n_wanted > pool_.n_free()) {
    for (const BlockId block : tree_->evict(n_wanted - pool_.n_free())) {
      const bool is_free = pool_.release(block);
      check(is_free, "KvCache: an evicted block is still held");
    }
  }
  for (std::int32_t i = 0; i < n_wanted; ++i) {
    const std::optional<BlockId> block = pool_.allocate();
    check(block.has_value(), "KvCache: eviction freed fewer blocks than it promised");
    table.blocks.push_back(*block);
  }
  return true;
}

void KvCache::shorten(BlockTable& table, std::int32_t n_positions) {
  const auto n_kept = static_cast<std::size_t>(std::max(n_blocks_for(n_positions), table.n_cached_blocks));
  while (table.blocks.size() > n_kept) {
    pool_.release(table.blocks.back());
    table.blocks.pop_back();
  }
}

void KvCache::publish(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_filled, std::int64_t usable_from) {
  if (!tree_ || n_filled / block_len_ <= table.n_cached_blocks) return;
  const PrefixKey key = key_of(table, tokens, n_filled);
  while (static_cast<std::size_t>(table.n_cached_blocks) < key.hashes.size()) {
    const std::int32_t index = table.n_cached_blocks;
    const BlockId block = table.blocks[static_cast<std::size_t>(index)];
    PrefixTree::Node* node = tree_->insert(table.node, key, index, block, usable_from);
    if (node == nullptr) return;
    pool_.retain(block);
    table.node = node;
    ++table.n_cached_blocks;
  }
}

void KvCache::release(BlockTable& table, std::span<const TokenId> tokens, std::int32_t n_filled, std::int64_t usable_from) {
  publish(table, tokens, n_filled, usable_from);
  if (tree_ && table.node != nullptr) {
    if (n_filled / block_len_ > table.n_cached_blocks) {
      // A block whose equal is cached was in the way: go on below its equal, with what the tree lacks.
      const PrefixTree::Match match = tree_->match(key_of(table, tokens, n_filled), PrefixTree::kAnyStep);
      tree_->acquire(match.node);
      tree_->release(table.node);
      table.node = match.node;
      table.n_cached_blocks = static_cast<std::int32_t>(match.blocks.size());
      publish(table, tokens, n_filled, usable_from);
    }
    tree_->release(table.node);
  }
  // The last block goes first: the pool hands out what was freed last, so that a next sequence gets them in ascending order.
  while (!table.blocks.empty()) {
    pool_.release(table.blocks.back());
    table.blocks.pop_back();
  }
  table.n_cached_blocks = 0;
  table.node = nullptr;
}

KvCache::Pin KvCache::pin(const CacheScope& scope, std::span<const TokenId> tokens) {
  check(tree_.has_value(), "KvCache: a pin needs prefix caching");
  std::vector<BlockHash> hashes;
  extend_hashes(scope, tokens, block_len_, hashes);
  const PrefixTree::Match match = tree_->match({tokens, hashes}, PrefixTree::kAnyStep);
  tree_->pin(match.node);
  return {match.node, static_cast<std::int32_t>(match.blocks.size())};
}

void KvCache::unpin(const Pin& pin) {
  check(tree_.has_value() && pin.node != nullptr, "KvCache: unpin of what was not pinned");
  tree_->unpin(pin.node);
}

void KvCache::check_invariants(std::span<const BlockTable* const> tables) const {
  pool_.check_invariants();
  std::vector<std::int32_t> holders(static_cast<std::size_t>(n_blocks()), 0);
  std::vector<bool> is_cached(holders.size(), false);
  std::vector<const PrefixTree::Node*> references;
  if (tree_) {
    for (const BlockId block : tree_->blocks()) {
      ++holders[static_cast<std::size_t>(block.value)];
      is_cached[static_cast<std::size_t>(block.value)] = true;
    }
  }
  for (const BlockTable* table : tables) {
    for (std::size_t i = 0; i < table->blocks.size(); ++i) {
      const auto block = static_cast<std::size_t>(table->blocks[i].value);
      ++holders[block];
      check(is_cached[block] == (i < static_cast<std::size_t>(table->n_cached_blocks)),
            "KvCache: a table's shared part does not end where it says");
    }
    if (!tree_ || table->node == nullptr) {
      check(table->n_cached_blocks == 0, "KvCache: a table without a node has cached blocks");
      continue;
    }
    check(tree_->depth(table->node) == table->n_cached_blocks, "KvCache: a table's node ends elsewhere than its shared part");
    references.push_back(table->node);
  }
  for (std::int32_t i = 0; i < n_blocks(); ++i) {
    check(pool_.count(BlockId{i}) == holders[static_cast<std::size_t>(i)], "KvCache: a block's count is not its holders");
  }
  if (tree_) tree_->check_invariants(references);
}

}  // namespace baton
