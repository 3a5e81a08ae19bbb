/// Which entries that the prefix tree evicted are kept in host memory, and the copies that this takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "engine/cache/block_hash.h"
#include "engine/cache/prefix_tree.h"

namespace baton {

/// A copy between a block of a layer group, or a slot of recurrent states (StateTier), and a slot of host memory.
struct TierCopy {
  enum class Kind : std::uint8_t { save, load };
  static constexpr std::int32_t kStates = -1;
  Kind kind = Kind::save;
  std::int32_t group = 0;  ///< kStates: `block` is a slot of StateStorage
  BlockId block;
  std::int32_t slot = 0;
  bool operator==(const TierCopy&) const = default;
};

/// A slot holds the keys and values of one entry of the prefix tree: one full block of each layer group. Entries are
/// equal if their chained hashes and their tokens are, as in the tree. An entry that is loaded stays, so evicting it
/// again copies nothing. When no slot is free, the least recently used entry is forgotten.
///
/// It is bookkeeping only: it lists copies in the order in which they must be carried out (Executor::copy). A save reads
/// its block as the steps planned before left it, and a load writes its block before the step being planned, because
/// both are carried out between these steps. In this order every slot and every block has the contents that the next
/// copy expects, so nothing is reserved while copies are under way.
///
/// Invariants (check_invariants): each slot is free, or holds one entry that the table finds and the order of use
/// names once. Thread: engine only.
class HostTier {
 public:
  HostTier(std::int32_t n_slots, std::int32_t block_len);

  std::int32_t n_slots() const { return static_cast<std::int32_t>(slots_.size()); }
  std::int32_t n_entries() const { return static_cast<std::int32_t>(slot_of_.size()); }
  // Entries since the start.
  std::int64_t n_saved() const { return n_saved_; }
  std::int64_t n_loaded() const { return n_loaded_; }
  std::int64_t n_forgotten() const { return n_forgotten_; }

  /// Keeps an entry that is being evicted: its tokens [block_len] and its block of each layer group. An entry that is
  /// here already only counts as used.
  void save(const BlockHash& hash, std::span<const TokenId> tokens, std::span<const BlockId> blocks);
  /// How many of the key's entries from `first` on, at most `n_most`, are here. They count as used.
  std::int32_t find(const PrefixKey& key, std::int32_t first, std::int32_t n_most);
  bool has(const PrefixKey& key, std::int32_t index) { return slot_of(key, index) != kNone; }
  /// Loads the key's entry `index` into these blocks, one of each layer group. Returns false, and does nothing, if it is
  /// not here.
  bool load(const PrefixKey& key, std::int32_t index, std::span<const BlockId> blocks);
  /// The copies since the last call, in order.
  std::vector<TierCopy> take_copies() { return std::exchange(copies_, {}); }
  /// Forgets all entries. Copies that were listed are still to be carried out.
  void clear();

  /// Aborts if an invariant does not hold.
  void check_invariants() const;

 private:
  static constexpr std::int32_t kNone = -1;
  struct Slot {
    BlockHash hash;
    std::int32_t newer = kNone;
    std::int32_t older = kNone;
  };

  Slot& at(std::int32_t slot) { return slots_[static_cast<std::size_t>(slot)]; }
  const Slot& at(std::int32_t slot) const { return slots_[static_cast<std::size_t>(slot)]; }
  std::span<TokenId> tokens_of(std::int32_t slot) {
    return std::span(tokens_).subspan(static_cast<std::size_t>(slot) * block_len_, block_len_);
  }
  std::int32_t slot_of(const PrefixKey& key, std::int32_t index);
  std::int32_t take_slot();
  void push_newest(std::int32_t slot);
  void unlink(std::int32_t slot);
  void list(TierCopy::Kind kind, std::int32_t slot, std::span<const BlockId> blocks);

  std::size_t block_len_;
  std::vector<Slot> slots_;
  std::vector<TokenId> tokens_;  ///< [slots][block_len]
  std::unordered_map<BlockHash, std::int32_t> slot_of_;
  std::vector<std::int32_t> free_;  ///< a stack
  std::int32_t newest_ = kNone;
  std::int32_t oldest_ = kNone;
  std::vector<TierCopy> copies_;
  std::int64_t n_saved_ = 0;
  std::int64_t n_loaded_ = 0;
  std::int64_t n_forgotten_ = 0;
};

}  // namespace baton
