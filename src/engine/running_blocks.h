/// The full blocks that running sequences have in common with a waiting one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/check.h"
#include "core/ids.h"
#include "engine/block_hash.h"

namespace baton {

/// Counts, for each block, the running sequences whose tokens begin with it. A block is identified by its chained
/// hash, so one look-up compares a whole prefix. Thread: engine only.
class RunningBlocks {
 public:
  explicit RunningBlocks(std::int32_t n_slots) : n_of_slot_(static_cast<std::size_t>(n_slots), 0) {}

  /// Counts the full blocks of the sequence in `slot`: those of the previous call, and any further ones.
  void update(SlotId slot, std::span<const BlockHash> hashes) {
    std::size_t& n = n_of_slot_[static_cast<std::size_t>(slot.value)];
    for (; n < hashes.size(); ++n) ++counts_[hashes[n]];
  }
  /// Stops counting the sequence in `slot`. `hashes` begins with the blocks that it was counted for.
  void remove(SlotId slot, std::span<const BlockHash> hashes) {
    const std::size_t n = n_counted(slot);
    check(n <= hashes.size(), "RunningBlocks: a sequence has lost hashes of its blocks");
    for (const BlockHash& hash : hashes.first(n)) {
      const auto at = counts_.find(hash);
      check(at != counts_.end(), "RunningBlocks: a block is removed that was not counted");
      if (--at->second == 0) counts_.erase(at);
    }
    n_of_slot_[static_cast<std::size_t>(slot.value)] = 0;
  }
  bool contains(const BlockHash& hash) const { return counts_.contains(hash); }
  bool is_empty() const { return counts_.empty(); }
  /// Number of blocks that the sequence in `slot` is counted for.
  std::size_t n_counted(SlotId slot) const { return n_of_slot_[static_cast<std::size_t>(slot.value)]; }

 private:
  std::unordered_map<BlockHash, std::int32_t> counts_;
  std::vector<std::size_t> n_of_slot_;
};

}  // namespace baton
