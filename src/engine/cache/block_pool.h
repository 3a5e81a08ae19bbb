/// The free blocks of the KV storage, and the number of holders of every other block.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"

namespace baton {

/// Block numbers [0, n_blocks), each with a count of holders. Holders are the sequences whose block table contains the
/// block, and the prefix tree.
///
/// Invariants (check_invariants): a block is in the free list exactly once if its count is 0, and not at all
/// otherwise. The block freed last is allocated first, so memory that was never used stays untouched. Thread: engine
/// only.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t n_blocks);

  std::int32_t n_blocks() const { return static_cast<std::int32_t>(counts_.size()); }
  std::int32_t n_free() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t count(BlockId block) const;
  std::span<const BlockId> free_blocks() const { return free_; }

  /// Allocates a free block with one holder; returns nothing if no block is free.
  std::optional<BlockId> allocate();
  /// Adds a holder to a block in use.
  void retain(BlockId block);
  /// Removes a holder; the block is freed with the last one. Returns true if it is free now.
  bool release(BlockId block);

  /// Aborts if an invariant does not hold.
  void check_invariants() const;

 private:
  std::vector<std::int32_t> counts_;
  std::vector<BlockId> free_;  ///< a stack
};

}  // namespace baton
