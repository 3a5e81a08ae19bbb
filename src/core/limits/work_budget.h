/// The limit of what one piece of text work (a rendering, an encoding) may cost, and its cancellation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "core/mutex.h"
#include "core/result.h"

namespace baton {

/// How much work may be done: steps (about what looking at 16 bytes costs) and bytes of memory written and not given back.
struct WorkLimits {
  std::int64_t steps = 0;
  std::int64_t bytes = 0;
};

/// Steps and bytes that the threads of one piece of work share, and the question whether anybody still wants its result.
/// Each thread takes from it through a WorkMeter of its own. Thread: any.
class WorkBudget {
 public:
  /// Whether there are so many more bytes of memory for the work now.
  using TakeBytes = std::function<bool(std::int64_t n_bytes)>;

  /// The working threads call `is_cancelled` every kStepsBetweenChecks steps; empty: the work is never cancelled. They call
  /// `take_bytes`, one at a time, before they write memory beyond what it granted so far, each time for kBytesPerTake or a
  /// multiple; empty: there is as much as the limit allows.
  explicit WorkBudget(const WorkLimits& limits, std::function<bool()> is_cancelled = {}, TakeBytes take_bytes = {});
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  /// About half a millisecond of work: a cancelled thread stops within it.
  static constexpr std::int64_t kStepsBetweenChecks = 1 << 14;
  static constexpr std::int64_t kBytesPerTake = 1 << 20;

  /// Whether a limit was exceeded or the work was cancelled. Stays true.
  bool is_over() const { return state_.load(std::memory_order_relaxed) != State::within; }
  /// Why it is over. Errors: too_large, which says that `what` ("the chat template") needs more than the limit; unavailable
  /// for cancelled work, and while there is no memory for it.
  Error error(const std::string& what) const;

  const WorkLimits& limits() const { return limits_; }
  /// Steps and bytes taken so far; meters give back the steps that they did not use.
  std::int64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  std::int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  /// The most that bytes() has been.
  std::int64_t most_bytes() const { return most_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class WorkMeter;
  enum class State : std::uint8_t { within, no_steps, no_bytes, no_memory, cancelled };

  /// Takes up to kStepsBetweenChecks beyond the `n` that are owed. Returns how many are left for the meter; negative: over.
  std::int64_t take(std::int64_t n);
  bool take_bytes(std::int64_t n_written) BATON_EXCLUDES(granting_);
  void end(State state);

  const WorkLimits limits_;
  const std::function<bool()> is_cancelled_;
  const TakeBytes take_bytes_;
  Mutex granting_;                     // held by the thread that asks for memory; guards the asking, no member
  std::atomic<std::int64_t> granted_;  // bytes; grows while granting_ is held
  std::atomic<std::int64_t> steps_ = 0;
  std::atomic<std::int64_t> bytes_ = 0;
  std::atomic<std::int64_t> most_bytes_ = 0;
  std::atomic<State> state_ = State::within;
};

/// Counts one thread's work against a budget, which it takes from in chunks, so that counting costs a subtraction.
class WorkMeter {
 public:
  /// `budget` must outlive it.
  explicit WorkMeter(WorkBudget& budget) : budget_(budget) {}
  WorkMeter(const WorkMeter&) = delete;
  WorkMeter& operator=(const WorkMeter&) = delete;
  ~WorkMeter() { settle(); }

  /// Counts `steps`. False from the moment the budget is over: what is being made is of no use then, and its loop ends.
  bool spend(std::int64_t steps) {
    left_ -= steps;
    return left_ >= 0 || refill();
  }
  /// Counts the steps of a loop that passes over `n_bytes` at a few nanoseconds for each 16 of them.
  bool pass(std::size_t n_bytes) { return spend(1 + static_cast<std::int64_t>(n_bytes / 16)); }
  /// Counts `n_bytes` of memory, before they are written. False if they are over the limit.
  bool write(std::size_t n_bytes);
  /// Takes back `n_bytes` of the written ones: they are freed.
  void give_back(std::size_t n_bytes);
  /// Whether the budget is not over.
  bool is_within() const { return !budget_.is_over(); }
  /// Asks now whether the work is cancelled. For loops of which a few steps may take long.
  bool check() {
    settle();
    return refill();
  }
  /// Gives back the steps that were taken and not used.
  void settle();

  WorkBudget& budget() { return budget_; }
  const WorkBudget& budget() const { return budget_; }

 private:
  bool refill();

  WorkBudget& budget_;
  std::int64_t left_ = 0;
};

/// The bytes of a container that ends before its work does. They are counted while this lives.
class HeldBytes {
 public:
  /// The meter must outlive it, and each that it is copied or moved to.
  explicit HeldBytes(WorkMeter& meter) : meter_(&meter) {}
  HeldBytes(const HeldBytes& other) : meter_(other.meter_) { add(other.n_bytes_); }
  HeldBytes(HeldBytes&& other) noexcept : meter_(other.meter_), n_bytes_(std::exchange(other.n_bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(n_bytes_, other.n_bytes_);
    return *this;
  }
  ~HeldBytes() { meter_->give_back(n_bytes_); }

  /// Counts `n_bytes` more, before they are allocated. False if they are over the limit; they are not held then.
  bool add(std::size_t n_bytes) {
    if (!meter_->write(n_bytes)) return false;
    n_bytes_ += n_bytes;
    return true;
  }
  /// Counts `n_bytes` less.
  void remove(std::size_t n_bytes) {
    const std::size_t n = n_bytes < n_bytes_ ? n_bytes : n_bytes_;
    meter_->give_back(n);
    n_bytes_ -= n;
  }

 private:
  WorkMeter* meter_;
  std::size_t n_bytes_ = 0;
};

/// Work without a limit, for users who run the program and can end it.
class UnlimitedWork {
 public:
  WorkBudget& budget() { return budget_; }
  WorkMeter& meter() { return meter_; }

 private:
  static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  WorkBudget budget_{{.steps = kMost, .bytes = kMost}};
  WorkMeter meter_{budget_};
};

}  // namespace baton
