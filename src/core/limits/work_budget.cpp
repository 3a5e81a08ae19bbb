/// Taking steps and bytes from a budget.
#include "core/limits/work_budget.h"

#include <algorithm>
#include <utility>

namespace baton {

WorkBudget::WorkBudget(const WorkLimits& limits, std::function<bool()> is_cancelled, TakeBytes take_bytes)
    : limits_(limits),
      is_cancelled_(std::move(is_cancelled)),
      take_bytes_(std::move(take_bytes)),
      granted_(take_bytes_ ? 0 : std::numeric_limits<std::int64_t>::max()) {}

void WorkBudget::end(State state) {
  State within = State::within;
  state_.compare_exchange_strong(within, state, std::memory_order_relaxed);  // the first reason counts
}

std::int64_t WorkBudget::take(std::int64_t n) {
  if (!is_over() && is_cancelled_ && is_cancelled_()) end(State::cancelled);
  if (is_over()) return -1;
  const std::int64_t before = steps_.fetch_add(n, std::memory_order_relaxed);
  if (n > limits_.steps - before) {
    end(State::no_steps);
    return -1;
  }
  // With what others take at the same time it may be a little over the limit, by less than a chunk for each.
  const std::int64_t more = std::min(kStepsBetweenChecks, limits_.steps - before - n);
  steps_.fetch_add(more, std::memory_order_relaxed);
  return more;
}

/// Asks for memory up to the `n_written` bytes that are to be there.
bool WorkBudget::take_bytes(std::int64_t n_written) {
  const MutexLock lock(granting_);
  const std::int64_t granted = granted_.load(std::memory_order_relaxed);
  if (n_written <= granted) return true;
  const std::int64_t n_takes = (n_written - granted + kBytesPerTake - 1) / kBytesPerTake;
  if (!take_bytes_(n_takes * kBytesPerTake)) return false;
  granted_.store(granted + n_takes * kBytesPerTake, std::memory_order_relaxed);
  return true;
}

Error WorkBudget::error(const std::string& what) const {
  switch (state_.load(std::memory_order_relaxed)) {
    case State::no_steps:
      return {ErrorCode::too_large, what + " needs more than " + std::to_string(limits_.steps) + " steps of work"};
    case State::no_bytes:
      return {ErrorCode::too_large, what + " needs more than " + std::to_string(limits_.bytes) + " bytes of memory"};
    case State::no_memory:
      return {ErrorCode::unavailable, what + " needs more than the " + std::to_string(granted_.load()) +
                                          " bytes of memory that others leave it: try again later"};
    case State::cancelled: return {ErrorCode::unavailable, what + " was cancelled: no client waits for it any more"};
    case State::within: break;
  }
  return {ErrorCode::internal, what + " is within its limits"};
}

bool WorkMeter::write(std::size_t n_bytes) {
  const std::int64_t limit = budget_.limits_.bytes;
  const bool fits = n_bytes <= static_cast<std::size_t>(limit);
  const std::int64_t n = fits ? static_cast<std::int64_t>(n_bytes) : 0;
  const std::int64_t now = n + budget_.bytes_.fetch_add(n, std::memory_order_relaxed);
  std::int64_t most = budget_.most_bytes_.load(std::memory_order_relaxed);
  while (now > most && !budget_.most_bytes_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  if (!fits || now > limit) {
    budget_.end(WorkBudget::State::no_bytes);
    settle();
  } else if (now > budget_.granted_.load(std::memory_order_relaxed) && !budget_.take_bytes(now)) {
    budget_.end(WorkBudget::State::no_memory);
    settle();
  }
  return !budget_.is_over();
}

void WorkMeter::give_back(std::size_t n_bytes) {
  budget_.bytes_.fetch_sub(static_cast<std::int64_t>(n_bytes), std::memory_order_relaxed);
}

void WorkMeter::settle() {
  if (left_ > 0) budget_.steps_.fetch_sub(left_, std::memory_order_relaxed);
  left_ = 0;
}

bool WorkMeter::refill() {
  const std::int64_t owed = -std::exchange(left_, 0);
  left_ = budget_.take(owed);
  return left_ >= 0;
}

}  // namespace baton
