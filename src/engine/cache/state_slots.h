/// The slots of recurrent states: which are free, which running sequences own, and which hold snapshots. The rows beside them, where
/// drafts are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace baton {

/// Slot numbers [0, n_slots). A running sequence owns the slot that its next run writes. The prefix tree owns snapshots: states
/// that do not change, which runs read.
///
/// A step may not read a slot that it also writes. The caller that plans a run says which slot it reads (read_by), and that slot is
/// neither allocated nor taken over for the same step. Steps run in the order of their plans, so it may be for the next.
///
/// The worth of a snapshot is the number of tokens that it saves when it is found, times 1 + log2(1 + reuses), plus the worth of
/// the snapshot that was last evicted when it was made or last found (GreedyDual). The least worth goes first. What it saves
/// depends on the other snapshots of its path, which only the tree knows.
///
/// Invariant (check_invariants): the free list holds each free slot once and no other. Thread: engine only.
class StateSlots {
 public:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kMostCompared = 1024;
  enum class Use : std::uint8_t { free, owned, snapshot };

  explicit StateSlots(std::int32_t n_slots);

  std::int32_t n_slots() const { return static_cast<std::int32_t>(slots_.size()); }
  std::int32_t n_free() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t n_snapshots() const { return n_snapshots_; }
  std::int32_t n_pinned() const { return n_pinned_; }
  /// Snapshots that were evicted.
  std::int64_t n_evicted() const { return n_evicted_; }
  Use use(std::int32_t slot) const { return at(slot).use; }

  /// Whether `allocate` would find a slot.
  bool has_free(std::int64_t step) const;
  /// A free slot that step `step` does not read, which the caller then owns; kNone: there is none.
  std::int32_t allocate(std::int64_t step);
  /// Frees an owned slot.
  void free(std::int32_t slot);
  void read_by(std::int32_t slot, std::int64_t step) { at(slot).read_by = step; }

  /// An owned slot becomes a snapshot, which was found so often before.
  void freeze(std::int32_t slot, std::uint32_t n_reuses = 0);
  /// A snapshot, which no pin covers and no sequence holds, becomes an owned slot again.
  void thaw(std::int32_t slot);
  /// The snapshot was found by a sequence.
  void count_reuse(std::int32_t slot);
  /// A copy of the snapshot was found until the copy had been found `n_reuses` times.
  void take_reuses(std::int32_t slot, std::uint32_t n_reuses);
  /// A sequence will read the snapshot in a step that is not planned yet: until then it does not go. / It has planned it, or ended.
  void hold(std::int32_t slot);
  void let_go(std::int32_t slot);
  void pin(std::int32_t slot);
  void unpin(std::int32_t slot);
  /// Whether the snapshot may become a slot that step `step` writes.
  bool may_go(std::int32_t slot, std::int64_t step) const {
    return at(slot).use == Use::snapshot && at(slot).n_pins == 0 && at(slot).n_holds == 0 && at(slot).read_by != step;
  }
  std::int32_t n_holds(std::int32_t slot) const { return at(slot).n_holds; }
  std::int32_t n_pins(std::int32_t slot) const { return at(slot).n_pins; }
  std::uint32_t n_reuses(std::int32_t slot) const { return at(slot).n_reuses; }
  /// Differs for each time that the slot became a snapshot.
  std::uint64_t serial(std::int32_t slot) const { return at(slot).serial; }
  double worth(std::int32_t slot, std::int32_t n_saved) const;
  /// Of a snapshot that would be made now.
  double worth_of_new(std::int32_t n_saved, std::uint32_t n_reuses) const;
  /// The snapshot of the least worth that may become a slot that step `step` writes, but not `kept`; kNone: there is none.
  /// `n_saved`(slot) gives its tokens. A large pool is searched in parts of kMostCompared snapshots, one a call, so that a call
  /// takes as long in any pool.
  struct Least {
    std::int32_t slot = kNone;
    double worth = 0;
  };
  template <class NSaved>
  Least find_least(std::int64_t step, std::int32_t kept, const NSaved& n_saved) {
    Least least;
    std::int32_t n_compared = 0;
    for (std::int32_t i = 0; i < n_slots() && n_compared < kMostCompared; ++i) {
      const std::int32_t slot = std::exchange(next_compared_, (next_compared_ + 1) % n_slots());
      if (slot == kept || !may_go(slot, step)) continue;
      ++n_compared;
      const double of_slot = worth(slot, n_saved(slot));
      if (least.slot == kNone || of_slot < least.worth) least = {slot, of_slot};
    }
    return least;
  }
  /// The snapshot of this worth is about to be thawed or freed to make room.
  void evicts(double worth);

  /// Aborts if an invariant does not hold.
  void check_invariants() const;

 private:
  struct Slot {
    Use use = Use::free;
    std::int64_t read_by = -1;  ///< the last step planned to read it
    // Of a snapshot.
    double base = 0;
    std::uint32_t n_reuses = 0;
    std::int32_t n_pins = 0;
    std::int32_t n_holds = 0;
    std::uint64_t serial = 0;
  };
  Slot& at(std::int32_t slot);
  const Slot& at(std::int32_t slot) const;

  std::vector<Slot> slots_;
  std::vector<std::int32_t> free_;  ///< a stack
  std::int32_t n_snapshots_ = 0;
  std::int32_t n_pinned_ = 0;
  std::int64_t n_evicted_ = 0;
  std::uint64_t next_serial_ = 0;
  double last_evicted_ = 0;         ///< worth
  std::int32_t next_compared_ = 0;  ///< the slot at which the next find_least begins
};

/// Which kept rows of the state storage (kernels/state_storage.h) hold drafts of running sequences. A step that reads some keeps no others there: a range is taken again by a later plan
/// than the one that gave it back. Thread: engine only.
class KeptRows {
 public:
  struct Range {
    std::int32_t first = 0;
    std::int32_t n = 0;
  };

  explicit KeptRows(std::int32_t n_rows) : free_from_(static_cast<std::size_t>(n_rows)) {}

  std::int32_t n_rows() const { return static_cast<std::int32_t>(free_from_.size()); }
  std::int32_t n_taken() const { return n_taken_; }
  /// Takes rows for the drafts of step `step`: as many as follow one another, at most `n_wanted`.
  Range take(std::int32_t n_wanted, std::int64_t step);
  /// Gives rows back, which step `read_by` may read.
  void give_back(const Range& range, std::int64_t read_by = -1);

 private:
  static constexpr std::int64_t kTaken = INT64_MAX;
  std::vector<std::int64_t> free_from_;  ///< the first step that may keep something in the row
  std::int32_t n_taken_ = 0;
};

}  // namespace baton
