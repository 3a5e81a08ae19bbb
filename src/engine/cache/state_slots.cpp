/// The free list, the uses and the worth of slots of recurrent states.
#include "engine/cache/state_slots.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace baton {

StateSlots::StateSlots(std::int32_t n_slots) : slots_(static_cast<std::size_t>(std::max(n_slots, 0))) {
  check(n_slots > 0, "StateSlots: no slots");
  free_.reserve(slots_.size());
  for (std::int32_t slot = n_slots; slot-- > 0;) free_.push_back(slot);
}

StateSlots::Slot& StateSlots::at(std::int32_t slot) {
  check(slot >= 0 && slot < n_slots(), "StateSlots: the slot does not exist");
  return slots_[static_cast<std::size_t>(slot)];
}
const StateSlots::Slot& StateSlots::at(std::int32_t slot) const { return const_cast<StateSlots*>(this)->at(slot); }

bool StateSlots::has_free(std::int64_t step) const {
  return std::ranges::any_of(free_, [&](std::int32_t slot) { return at(slot).read_by != step; });
}

std::int32_t StateSlots::allocate(std::int64_t step) {
  for (std::size_t i = free_.size(); i-- > 0;) {
    const std::int32_t slot = free_[i];
    if (at(slot).read_by == step) continue;
    free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
    at(slot).use = Use::owned;
    return slot;
  }
  return kNone;
}

void StateSlots::free(std::int32_t slot) {
  check(at(slot).use == Use::owned, "StateSlots: a slot is freed that no sequence owns");
  at(slot).use = Use::free;
  free_.push_back(slot);
}

void StateSlots::freeze(std::int32_t slot, std::uint32_t n_reuses) {
  Slot& of = at(slot);
  check(of.use == Use::owned, "StateSlots: a slot becomes a snapshot that no sequence owns");
  of.use = Use::snapshot;
  of.base = last_evicted_;
  of.n_reuses = n_reuses;
  of.n_pins = of.n_holds = 0;
  of.serial = ++next_serial_;
  ++n_snapshots_;
}

void StateSlots::thaw(std::int32_t slot) {
  Slot& of = at(slot);
  check(of.use == Use::snapshot && of.n_pins == 0 && of.n_holds == 0,
        "StateSlots: a pinned or held snapshot is taken over, or what is none");
  of.use = Use::owned;
  --n_snapshots_;
}

void StateSlots::count_reuse(std::int32_t slot) {
  ++at(slot).n_reuses;
  at(slot).base = last_evicted_;
}

void StateSlots::take_reuses(std::int32_t slot, std::uint32_t n_reuses) {
  if (n_reuses <= at(slot).n_reuses) return;
  at(slot).n_reuses = n_reuses;
  at(slot).base = last_evicted_;
}

void StateSlots::hold(std::int32_t slot) {
  check(at(slot).use == Use::snapshot, "StateSlots: a hold on what is no snapshot");
  ++at(slot).n_holds;
}

void StateSlots::let_go(std::int32_t slot) {
  check(at(slot).use == Use::snapshot && at(slot).n_holds > 0, "StateSlots: a hold ends that there is not");
  --at(slot).n_holds;
}

void StateSlots::pin(std::int32_t slot) {
  check(at(slot).use == Use::snapshot, "StateSlots: a pin on what is no snapshot");
  n_pinned_ += at(slot).n_pins++ == 0 ? 1 : 0;
}

void StateSlots::unpin(std::int32_t slot) {
  check(at(slot).use == Use::snapshot && at(slot).n_pins > 0, "StateSlots: a pin ends that there is not");
  n_pinned_ -= --at(slot).n_pins == 0 ? 1 : 0;
}

namespace {

double value_of(std::int32_t n_saved, std::uint32_t n_reuses) { return n_saved * (1 + std::log2(1.0 + n_reuses)); }

}  // namespace

double StateSlots::worth(std::int32_t slot, std::int32_t n_saved) const {
  return at(slot).base + value_of(n_saved, at(slot).n_reuses);
}

double StateSlots::worth_of_new(std::int32_t n_saved, std::uint32_t n_reuses) const {
  return last_evicted_ + value_of(n_saved, n_reuses);
}

void StateSlots::evicts(double worth) {
  last_evicted_ = std::max(last_evicted_, worth);
  ++n_evicted_;
}

void StateSlots::check_invariants() const {
  std::vector<bool> is_free(slots_.size(), false);
  for (const std::int32_t slot : free_) {
    check(at(slot).use == Use::free && !is_free[static_cast<std::size_t>(slot)],
          "StateSlots: the free list holds a slot twice, or one in use");
    is_free[static_cast<std::size_t>(slot)] = true;
  }
  std::int32_t n_free = 0, n_snapshots = 0, n_pinned = 0;
  for (const Slot& slot : slots_) {
    n_free += slot.use == Use::free ? 1 : 0;
    n_snapshots += slot.use == Use::snapshot ? 1 : 0;
    n_pinned += slot.use == Use::snapshot && slot.n_pins > 0 ? 1 : 0;
  }
  check(n_free == this->n_free() && n_snapshots == n_snapshots_ && n_pinned == n_pinned_, "StateSlots: a count is wrong");
}

KeptRows::Range KeptRows::take(std::int32_t n_wanted, std::int64_t step) {
  Range longest;
  Range current;
  for (std::int32_t row = 0; row < n_rows() && longest.n < n_wanted; ++row) {
    if (free_from_[static_cast<std::size_t>(row)] > step) {
      current.n = 0;
      continue;
    }
    if (current.n++ == 0) current.first = row;
    if (current.n > longest.n) longest = current;
  }
  std::fill_n(free_from_.begin() + longest.first, longest.n, kTaken);
  n_taken_ += longest.n;
  return longest;
}

void KeptRows::give_back(const Range& range, std::int64_t read_by) {
  for (std::int32_t row = range.first; row < range.first + range.n; ++row) {
    std::int64_t& from = free_from_.at(static_cast<std::size_t>(row));
    check(from == kTaken, "KeptRows: a row is given back twice");
    from = read_by + 1;
  }
  n_taken_ -= range.n;
}

}  // namespace baton
