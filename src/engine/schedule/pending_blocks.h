/// Blocks that other sequences are computing, for which waiting sequences wait.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/cache/block_hash.h"
#include "engine/schedule/sequence.h"

namespace baton {

/// Blocks that are computed by steps up to the one being planned, and that later steps can use. Their hashes are
/// chained, so one comparison tells whether a sequence needs a block and all blocks before it.
struct PendingBlocks {
  struct Block {
    std::size_t index = 0;
    BlockHash hash;
  };
  std::int32_t block_len = 0;
  std::vector<Block> blocks;
  std::vector<const Sequence*> computing;  ///< sequences of the plan that have not completed all hashed blocks

  void add(const Sequence& sequence) {
    if (static_cast<std::size_t>(sequence.schedule->n_planned / block_len) < sequence.schedule->table.hashes.size())
      computing.push_back(&sequence);
  }
  bool are_needed_by(const Sequence& sequence) const {
    const std::vector<BlockHash>& hashes = sequence.schedule->table.hashes;
    const auto n_blocks = std::min(hashes.size(), static_cast<std::size_t>(sequence.n_matchable() / block_len));
    return std::ranges::any_of(blocks,
                               [&](const Block& block) { return block.index < n_blocks && hashes[block.index] == block.hash; });
  }
  /// Whether a sequence of the plan has begun block `index` of this sequence and will complete it in a later step.
  bool is_begun(const Sequence& sequence, std::size_t index) const {
    const auto end = static_cast<std::int32_t>(index + 1) * block_len;
    if (end > sequence.n_matchable()) return false;
    return std::ranges::any_of(computing, [&](const Sequence* other) {
      return index < other->schedule->table.hashes.size() &&
             other->schedule->table.hashes[index] == sequence.schedule->table.hashes[index] && other->schedule->n_planned < end;
    });
  }
};

}  // namespace baton
