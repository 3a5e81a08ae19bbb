/// Which blocks of the KV storage are free, and how many hold each of the others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"

namespace baton {

/// Numbers [0, n_blocks) with a count of holders each: the sequences whose block table names the block, and the prefix
/// tree.
///
/// Invariants (check_invariants): a block is in the free list exactly once if its count is 0, else never. The block
/// freed last is handed out first, so that memory nobody needed yet stays untouched. Thread: engine only.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t n_blocks);

  std::int32_t n_blocks() const { return static_cast<std::int32_t>(counts_.size()); }
  std::int32_t n_free() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t count(BlockId block) const;
  std::span<const BlockId> free_blocks() const { return free_; }

  /// A free block, now with one holder; nothing if there is none.
  std::optional<BlockId> allocate();
  /// One more holder of a block in use.
  void retain(BlockId block);
  /// One holder less; the last one frees it. Returns true if it is free now.
  bool release(BlockId block);

  /// Aborts if an invariant does not hold.
  void check_invariants() const;

 private:
  std::vector<std::int32_t> counts_;
  std::vector<BlockId> free_;  ///< a stack
};

}  // namespace baton
