/// The free list and the holder counts.
#include "engine/cache/block_pool.h"

#include <cstddef>

#include <fmt/format.h>

#include "core/check.h"

namespace baton {

BlockPool::BlockPool(std::int32_t n_blocks) {
  check(n_blocks >= 0, "BlockPool: a negative number of blocks");
  counts_.assign(static_cast<std::size_t>(n_blocks), 0);
  free_.reserve(counts_.size());
  for (std::int32_t i = n_blocks; i-- > 0;) free_.push_back(BlockId{i});
}

std::int32_t BlockPool::count(BlockId block) const {
  check(block.value >= 0 && block.value < n_blocks(), [&] { return fmt::format("BlockPool: no block {}", block.value); });
  return counts_[static_cast<std::size_t>(block.value)];
}

std::optional<BlockId> BlockPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const BlockId block = free_.back();
  free_.pop_back();
  counts_[static_cast<std::size_t>(block.value)] = 1;
  return block;
}

void BlockPool::retain(BlockId block) {
  check(count(block) > 0, [&] { return fmt::format("BlockPool: block {} is retained but free", block.value); });
  ++counts_[static_cast<std::size_t>(block.value)];
}

bool BlockPool::release(BlockId block) {
  check(count(block) > 0, [&] { return fmt::format("BlockPool: block {} is freed twice", block.value); });
  if (--counts_[static_cast<std::size_t>(block.value)] > 0) return false;
  free_.push_back(block);
  return true;
}

void BlockPool::check_invariants() const {
  std::vector<bool> is_free(counts_.size(), false);
  for (const BlockId block : free_) {
    check(count(block) == 0, "BlockPool: a block in use is in the free list");
    check(!is_free[static_cast<std::size_t>(block.value)], "BlockPool: a block is in the free list twice");
    is_free[static_cast<std::size_t>(block.value)] = true;
  }
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    check(counts_[i] >= 0, "BlockPool: a negative count");
    check(counts_[i] > 0 || is_free[i], "BlockPool: a block without holders is not in the free list");
  }
}

}  // namespace baton
