/// The table of the snapshots in host memory, and which of them goes.
#include "engine/cache/state_tier.h"

#include <algorithm>

#include "core/check.h"

namespace baton {

namespace {

/// Steps neither read nor write slots of host memory.
constexpr std::int64_t kNoStep = 0;

}  // namespace

StateTier::StateTier(std::int32_t n_slots, std::int32_t block_len)
    : block_len_(static_cast<std::size_t>(block_len)), slots_(n_slots), entries_(static_cast<std::size_t>(n_slots)) {
  tokens_.resize(entries_.size() * block_len_);
  slot_of_.reserve(entries_.size());
}

/// A place has no state any more: the ones after it save the tokens that it saved.
void StateTier::lose(const BlockHash& hash, const std::optional<BlockHash>& before, std::int32_t n_saved) {
  for (Entry& entry : entries_) {
    if (entry.before != hash) continue;
    entry.before = before;
    entry.n_saved += n_saved;
  }
}

/// Frees the slot of a snapshot. What its entry says stays until the slot is taken again.
void StateTier::forget(std::int32_t slot) {
  slot_of_.erase(entries_[at(slot)].hash);
  slots_.thaw(slot);
  slots_.free(slot);
}

/// A free slot, or that of the snapshot of the least worth; kNone: that is the new one.
std::int32_t StateTier::take_slot(const Leaving& leaving) {
  if (const std::int32_t slot = slots_.allocate(kNoStep); slot != kNone) return slot;
  const StateSlots::Least least =
      slots_.find_least(kNoStep, kNone, [this](std::int32_t slot) { return entries_[at(slot)].n_saved; });
  const double worth = slots_.worth_of_new(leaving.n_saved, leaving.n_reuses);
  if (least.slot == kNone || worth <= least.worth) {
    slots_.evicts(worth);
    ++n_refused_;
    lose(leaving.hash, leaving.before, leaving.n_saved);
    return kNone;
  }
  slots_.evicts(least.worth);
  const Entry gone = entries_[at(least.slot)];
  forget(least.slot);
  lose(gone.hash, gone.before, gone.n_saved);
  return slots_.allocate(kNoStep);
}

void StateTier::save(const Leaving& leaving) {
  check(leaving.tokens.size() == block_len_, "StateTier: a snapshot is after one full block");
  if (const auto found = slot_of_.find(leaving.hash); found != slot_of_.end())
    return slots_.take_reuses(found->second, leaving.n_reuses);
  const std::int32_t slot = take_slot(leaving);
  if (slot == kNone) return;
  entries_[at(slot)] = {leaving.hash, leaving.before, leaving.n_saved};
  std::ranges::copy(leaving.tokens, tokens_of(slot).begin());
  slot_of_.emplace(leaving.hash, slot);
  slots_.freeze(slot, leaving.n_reuses);
  copies_.push_back({TierCopy::Kind::save, TierCopy::kStates, BlockId{leaving.device_slot}, slot});
  ++n_saved_;
}

/// The slot of the snapshot after the key's first `n_blocks` entries, or kNone.
std::int32_t StateTier::slot_after(const PrefixKey& key, std::int32_t n_blocks) const {
  const auto n = static_cast<std::size_t>(n_blocks);
  if (n_blocks <= 0 || n > key.hashes.size()) return kNone;
  const auto found = slot_of_.find(key.hashes[n - 1]);
  if (found == slot_of_.end()) return kNone;
  const auto tokens = std::span(tokens_).subspan(at(found->second) * block_len_, block_len_);
  return std::ranges::equal(tokens, key.tokens.subspan((n - 1) * block_len_, block_len_)) ? found->second : kNone;
}

std::int32_t StateTier::find_last(const PrefixKey& key, std::int32_t n_least, std::int32_t n_most) const {
  for (std::int32_t n = n_most; n > n_least; --n)
    if (has_after(key, n)) return n;
  return 0;
}

std::int32_t StateTier::hold(const PrefixKey& key, std::int32_t n_blocks) {
  const std::int32_t slot = slot_after(key, n_blocks);
  check(slot != kNone, "StateTier: a snapshot is to be loaded that is not here");
  slots_.count_reuse(slot);
  slots_.hold(slot);
  return slot;
}

std::uint32_t StateTier::load(std::int32_t slot, std::int32_t device_slot) {
  slots_.let_go(slot);
  copies_.push_back({TierCopy::Kind::load, TierCopy::kStates, BlockId{device_slot}, slot});
  ++n_loaded_;
  return slots_.n_reuses(slot);
}

void StateTier::clear() {
  for (std::int32_t slot = 0; slot < n_slots(); ++slot)
    if (slots_.use(slot) == StateSlots::Use::snapshot) forget(slot);
}

void StateTier::check_invariants() const {
  slots_.check_invariants();
  check(slots_.n_free() + slots_.n_snapshots() == n_slots() && slots_.n_snapshots() == n_entries(),
        "StateTier: a slot is lost");
  for (const auto& [hash, slot] : slot_of_) {
    const Entry& entry = entries_[at(slot)];
    check(slots_.use(slot) == StateSlots::Use::snapshot && entry.hash == hash, "StateTier: a snapshot is in another slot");
    check(slots_.n_holds(slot) == 0 && entry.n_saved > 0, "StateTier: a snapshot is held between plans, or saves nothing");
  }
}

}  // namespace baton
