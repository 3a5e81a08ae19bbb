/// Which snapshots of recurrent states that left the device are kept in host memory, and the copies that this takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "engine/cache/block_hash.h"
#include "engine/cache/host_tier.h"
#include "engine/cache/prefix_tree.h"
#include "engine/cache/state_slots.h"

namespace baton {

/// A slot of host memory holds the snapshot after one entry of the prefix tree, under that entry's chained hash and with its tokens,
/// as HostTier holds keys. A snapshot that is loaded stays, so that giving it up again copies nothing.
///
/// When no slot is free, the least worth goes, which may be that of the new one: StateSlots::worth of the tokens after the last place
/// before it on its path that has a state, on the device or here. If that state is lost, the one after it saves its tokens too.
///
/// It is bookkeeping only, as HostTier: copies are carried out in their order, between the steps that they were listed between.
///
/// Invariants (check_invariants): each slot is free, or holds one snapshot that the table finds. Thread: engine only.
class StateTier {
 public:
  static constexpr std::int32_t kNone = StateSlots::kNone;

  StateTier(std::int32_t n_slots, std::int32_t block_len);

  std::int32_t n_slots() const { return slots_.n_slots(); }
  std::int32_t n_entries() const { return static_cast<std::int32_t>(slot_of_.size()); }
  // Snapshots since the start.
  std::int64_t n_saved() const { return n_saved_; }
  std::int64_t n_loaded() const { return n_loaded_; }
  /// Taken out of host memory for others.
  std::int64_t n_forgotten() const { return slots_.n_evicted() - n_refused_; }

  /// A snapshot that leaves the device.
  struct Leaving {
    BlockHash hash;                        ///< of the last entry before it
    std::span<const TokenId> tokens;       ///< of that entry [block_len]
    std::optional<BlockHash> before = {};  ///< of the last place before it that has a state
    std::int32_t n_saved = 0;              ///< tokens after that place
    std::uint32_t n_reuses = 0;            ///< times that it was found
    std::int32_t device_slot = kNone;
  };
  /// Keeps it, if it is worth more than another one. Of one that is here already it only takes the reuses.
  void save(const Leaving& leaving);
  bool has(const BlockHash& hash) const { return slot_of_.contains(hash); }
  /// Entries of the key up to the last one after which a snapshot is here: more than `n_least`, at most `n_most`; 0: there is none.
  std::int32_t find_last(const PrefixKey& key, std::int32_t n_least, std::int32_t n_most) const;
  /// Whether there is a snapshot after the key's first `n_blocks` entries.
  bool has_after(const PrefixKey& key, std::int32_t n_blocks) const { return slot_after(key, n_blocks) != kNone; }
  /// It is about to be loaded: until `load`, it is not given up. Counts as a reuse.
  std::int32_t hold(const PrefixKey& key, std::int32_t n_blocks);
  /// Loads what `hold` has returned into a slot of the device. Returns how often it was found.
  std::uint32_t load(std::int32_t slot, std::int32_t device_slot);
  /// The copies since the last call, in order.
  std::vector<TierCopy> take_copies() { return std::exchange(copies_, {}); }
  /// Forgets all snapshots. Copies that were listed are still to be carried out.
  void clear();

  /// Aborts if an invariant does not hold.
  void check_invariants() const;

 private:
  struct Entry {
    BlockHash hash;
    std::optional<BlockHash> before;
    std::int32_t n_saved = 0;
  };

  static std::size_t at(std::int32_t slot) { return static_cast<std::size_t>(slot); }
  std::span<TokenId> tokens_of(std::int32_t slot) { return std::span(tokens_).subspan(at(slot) * block_len_, block_len_); }
  std::int32_t slot_after(const PrefixKey& key, std::int32_t n_blocks) const;
  std::int32_t take_slot(const Leaving& leaving);
  void forget(std::int32_t slot);
  void lose(const BlockHash& hash, const std::optional<BlockHash>& before, std::int32_t n_saved);

  std::size_t block_len_;
  StateSlots slots_;
  std::vector<Entry> entries_;   ///< [slot]
  std::vector<TokenId> tokens_;  ///< [slot][block_len]
  std::unordered_map<BlockHash, std::int32_t> slot_of_;
  std::vector<TierCopy> copies_;
  std::int64_t n_saved_ = 0;
  std::int64_t n_loaded_ = 0;
  std::int64_t n_refused_ = 0;  ///< worth less than all that were here
};

}  // namespace baton
