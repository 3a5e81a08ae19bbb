/// Which full blocks the running sequences have in common with a waiting one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/ids.h"
#include "engine/cache/block_hash.h"

namespace baton {

/// Counts of blocks, in one table with open addressing: a look-up touches one or two cache lines, and nothing is
/// allocated for a block. The table shrinks with what it holds. Blocks that are added are prefetched and taken in a
/// few at a time, because their places are rarely in the processor's caches. Thread: engine only.
class BlockCounts {
 public:
  void add(const BlockHash& hash) {
    if (!entries_.empty()) __builtin_prefetch(&entries_[home_of(hash)]);
    announced_.push_back(hash);
    if (announced_.size() == kMostAnnounced) take_in();
  }
  /// One less. The block must be counted.
  void remove(const BlockHash& hash) {
    take_in();
    const std::size_t at = entries_.empty() ? 0 : find(hash);
    check(!entries_.empty() && entries_[at].count > 0, "BlockCounts: a block is removed that was not counted");
    if (--entries_[at].count > 0) return;
    --n_entries_;
    close_gap(at);
    if (entries_.size() > kLeast && 8 * n_entries_ < entries_.size()) resize(entries_.size() / 2);
  }
  bool contains(const BlockHash& hash) const {
    return std::ranges::find(announced_, hash) != announced_.end() || (!entries_.empty() && entries_[find(hash)].count > 0);
  }
  bool is_empty() const { return n_entries_ == 0 && announced_.empty(); }
  /// Places for blocks, the free ones too.
  std::size_t capacity() const { return entries_.size(); }

 private:
  static constexpr std::size_t kLeast = 1024;
  static constexpr std::size_t kMostAnnounced = 16;
  struct Entry {
    BlockHash hash;
    std::int32_t count = 0;  ///< 0: the place is free
  };

  /// Takes in what was added.
  void take_in() {
    for (const BlockHash& hash : announced_) {
      if (2 * (n_entries_ + 1) > entries_.size()) resize(std::max<std::size_t>(kLeast, 2 * entries_.size()));
      Entry& entry = entries_[find(hash)];
      n_entries_ += entry.count++ == 0 ? 1 : 0;
      entry.hash = hash;
    }
    announced_.clear();
  }
  std::size_t home_of(const BlockHash& hash) const { return static_cast<std::size_t>(hash.low) & (entries_.size() - 1); }
  /// The block's place, or the free one where it would stand.
  std::size_t find(const BlockHash& hash) const {
    std::size_t at = home_of(hash);
    while (entries_[at].count > 0 && entries_[at].hash != hash) at = (at + 1) & (entries_.size() - 1);
    return at;
  }
  /// Moves later entries up, so that none stands after a free place on the way from its home.
  void close_gap(std::size_t gap) {
    const std::size_t mask = entries_.size() - 1;
    for (std::size_t at = (gap + 1) & mask; entries_[at].count > 0; at = (at + 1) & mask) {
      const std::size_t n_from_home = (at - home_of(entries_[at].hash)) & mask;
      if (n_from_home < ((at - gap) & mask)) continue;
      entries_[gap] = std::exchange(entries_[at], {});
      gap = at;
    }
    entries_[gap] = {};
  }
  void resize(std::size_t n_places) {
    const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(n_places));
    for (const Entry& entry : old)
      if (entry.count > 0) entries_[find(entry.hash)] = entry;
  }

  std::vector<BlockHash> announced_;  ///< added and not yet in the table
  std::vector<Entry> entries_;        ///< none, or a power of two
  std::size_t n_entries_ = 0;
};

/// Counts, for each block, the running sequences whose tokens begin with it. Blocks are known by their chained hashes,
/// so that one look-up compares a whole prefix. Thread: engine only.
class RunningBlocks {
 public:
  explicit RunningBlocks(std::int32_t n_slots) : n_of_slot_(static_cast<std::size_t>(n_slots), 0) {}

  /// The sequence in `slot` has these full blocks: those of the call before, and maybe more.
  void update(SlotId slot, std::span<const BlockHash> hashes) {
    std::size_t& n = n_of_slot_[static_cast<std::size_t>(slot.value)];
    for (; n < hashes.size(); ++n) counts_.add(hashes[n]);
  }
  /// The sequence leaves its slot; its first blocks are those it was counted with.
  void remove(SlotId slot, std::span<const BlockHash> hashes) {
    const std::size_t n = n_counted(slot);
    check(n <= hashes.size(), "RunningBlocks: a sequence has lost hashes of its blocks");
    for (const BlockHash& hash : hashes.first(n)) counts_.remove(hash);
    n_of_slot_[static_cast<std::size_t>(slot.value)] = 0;
  }
  bool contains(const BlockHash& hash) const { return counts_.contains(hash); }
  bool is_empty() const { return counts_.is_empty(); }
  /// Blocks that the sequence in `slot` is counted for.
  std::size_t n_counted(SlotId slot) const { return n_of_slot_[static_cast<std::size_t>(slot.value)]; }

 private:
  BlockCounts counts_;
  std::vector<std::size_t> n_of_slot_;
};

}  // namespace baton
