/// The table of the entries in host memory and their order of use.
#include "engine/cache/host_tier.h"

#include <algorithm>

#include "core/check.h"

namespace baton {

HostTier::HostTier(std::int32_t n_slots, std::int32_t block_len)
    : block_len_(static_cast<std::size_t>(block_len)), slots_(static_cast<std::size_t>(n_slots)) {
  check(n_slots > 0 && block_len > 0, "HostTier: the sizes must be positive");
  tokens_.resize(slots_.size() * block_len_);
  slot_of_.reserve(slots_.size());
  free_.reserve(slots_.size());
  for (std::int32_t slot = n_slots; slot-- > 0;) free_.push_back(slot);
}

void HostTier::push_newest(std::int32_t slot) {
  at(slot).older = newest_;
  at(slot).newer = kNone;
  (newest_ == kNone ? oldest_ : at(newest_).newer) = slot;
  newest_ = slot;
}

void HostTier::unlink(std::int32_t slot) {
  const Slot& of = at(slot);
  (of.newer == kNone ? newest_ : at(of.newer).older) = of.older;
  (of.older == kNone ? oldest_ : at(of.older).newer) = of.newer;
}

/// A free slot, or that of the least recently used entry, which is forgotten.
std::int32_t HostTier::take_slot() {
  if (free_.empty()) {
    const std::int32_t slot = oldest_;
    unlink(slot);
    slot_of_.erase(at(slot).hash);
    ++n_forgotten_;
    return slot;
  }
  const std::int32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void HostTier::list(TierCopy::Kind kind, std::int32_t slot, std::span<const BlockId> blocks) {
  for (std::size_t g = 0; g < blocks.size(); ++g) copies_.push_back({kind, static_cast<std::int32_t>(g), blocks[g], slot});
}

void HostTier::save(const BlockHash& hash, std::span<const TokenId> tokens, std::span<const BlockId> blocks) {
  check(tokens.size() == block_len_, "HostTier: an entry is one full block");
  if (const auto at = slot_of_.find(hash); at != slot_of_.end()) {
    // An entry with other tokens and the same hash cannot be kept beside this one.
    unlink(at->second);
    push_newest(at->second);
    return;
  }
  const std::int32_t slot = take_slot();
  at(slot).hash = hash;
  std::ranges::copy(tokens, tokens_of(slot).begin());
  slot_of_.emplace(hash, slot);
  push_newest(slot);
  list(TierCopy::Kind::save, slot, blocks);
  ++n_saved_;
}

/// The slot of the key's entry `index`, or kNone.
std::int32_t HostTier::slot_of(const PrefixKey& key, std::int32_t index) {
  const auto i = static_cast<std::size_t>(index);
  if (i >= key.hashes.size()) return kNone;
  const auto found = slot_of_.find(key.hashes[i]);
  if (found == slot_of_.end()) return kNone;
  return std::ranges::equal(tokens_of(found->second), key.tokens.subspan(i * block_len_, block_len_)) ? found->second : kNone;
}

std::int32_t HostTier::find(const PrefixKey& key, std::int32_t first, std::int32_t n_most) {
  std::int32_t n = 0;
  while (n < n_most && slot_of(key, first + n) != kNone) ++n;
  // The last entry first: without those before it, it is worth nothing.
  for (std::int32_t i = n; i-- > 0;) {
    const std::int32_t slot = slot_of(key, first + i);
    unlink(slot);
    push_newest(slot);
  }
  return n;
}

bool HostTier::load(const PrefixKey& key, std::int32_t index, std::span<const BlockId> blocks) {
  const std::int32_t slot = slot_of(key, index);
  if (slot == kNone) return false;
  list(TierCopy::Kind::load, slot, blocks);
  ++n_loaded_;
  return true;
}

void HostTier::clear() {
  while (oldest_ != kNone) {
    const std::int32_t slot = oldest_;
    unlink(slot);
    free_.push_back(slot);
  }
  slot_of_.clear();
}

void HostTier::check_invariants() const {
  std::vector<bool> is_seen(slots_.size());
  const auto see = [&](std::int32_t slot) {
    check(slot >= 0 && slot < n_slots() && !is_seen[static_cast<std::size_t>(slot)], "HostTier: a slot is in two places");
    is_seen[static_cast<std::size_t>(slot)] = true;
  };
  for (const std::int32_t slot : free_) see(slot);
  std::int32_t newer = kNone;
  std::int32_t n_entries = 0;
  for (std::int32_t slot = newest_; slot != kNone; newer = slot, slot = at(slot).older, ++n_entries) {
    see(slot);
    check(at(slot).newer == newer, "HostTier: the order of use is broken");
    const auto found = slot_of_.find(at(slot).hash);
    check(found != slot_of_.end() && found->second == slot, "HostTier: an entry in the order of use is not in the table");
  }
  check(oldest_ == newer, "HostTier: the order of use does not end with its oldest entry");
  check(n_entries == this->n_entries(), "HostTier: the table has entries without an order of use");
  check(std::ranges::all_of(is_seen, [](bool seen) { return seen; }), "HostTier: a slot is lost");
}

}  // namespace baton
