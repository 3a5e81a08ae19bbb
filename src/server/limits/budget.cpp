/// Taking from budgets and giving back.
#include "server/limits/budget.h"

#include <utility>

#include "core/check.h"

namespace baton {
namespace {

// Shares up to these sizes may take what is kept for small ones.
constexpr std::int64_t kSmallHeader = 4 << 10;
constexpr std::int64_t kSmallBytes = 32 << 10;
constexpr std::int64_t kSmallScores = 4 << 10;
constexpr std::int64_t kSmallCompile = 4 << 20;

// 8192 connections with a header of an ordinary size each.
constexpr std::int64_t kLeastHeaders = 32 << 20;

// A JSON value in a list that grows: 16 bytes in the list, 32 in the one it grows into, 16 while the list is destroyed.
constexpr std::int64_t kValueBytes = 64;

}  // namespace

BudgetShare::BudgetShare(BudgetShare&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), size_(std::exchange(other.size_, 0)) {}

BudgetShare& BudgetShare::operator=(BudgetShare&& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(size_, other.size_);
  return *this;
}

bool BudgetShare::grow(std::int64_t n) {
  if (budget_ != nullptr && !budget_->take(n, size_)) return false;
  size_ += n;
  return true;
}

void BudgetShare::shrink(std::int64_t n) {
  check(n <= size_, "BudgetShare: more is given back than was taken");
  size_ -= n;
  if (budget_ != nullptr) budget_->give_back(n);
}

void BudgetShare::release() { shrink(size_); }

bool Budget::take(std::int64_t n, std::int64_t size) {
  const std::int64_t most = size + n <= small_ ? limit_ : limit_ - limit_ / 4;
  const std::int64_t used = used_.fetch_add(n, std::memory_order_relaxed) + n;
  if (used <= most) return true;
  give_back(n);
  n_refused_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

BudgetLimits budget_limits(std::int64_t bytes) {
  BudgetLimits limits{.header_bytes = std::max(bytes / 8, kLeastHeaders),
                      .body_bytes = bytes / 16 * 3,
                      .unsent_bytes = bytes / 16 * 3,
                      .scores = bytes / 16 * 3 / kScoreBytes,
                      .request_bytes = bytes / 8,
                      .compile_bytes = bytes / 16 * 3};
  // An answer must find room to be sent.
  limits.scores_per_answer = std::min(limits.scores_per_answer, limits.unsent_bytes * 3 / 4 / kScoreBytes);
  limits.values_per_body = bytes / 4 / kValueBytes;
  return limits;
}

std::int64_t default_client_memory(std::int64_t memory_limit) {
  return std::clamp<std::int64_t>(memory_limit / 8, 64 << 20, std::int64_t{4} << 30);
}

Budgets::Budgets(const BudgetLimits& limits)
    : headers(limits.header_bytes, kSmallHeader),
      bodies(limits.body_bytes, kSmallBytes),
      unsent(limits.unsent_bytes, kSmallBytes),
      text_work(limits.text_work, /*small=*/1),
      scores(limits.scores, kSmallScores),
      requests(limits.request_bytes, kSmallBytes),
      compiles(limits.compile_bytes, kSmallCompile),
      scores_per_answer(limits.scores_per_answer),
      values_per_body(limits.values_per_body) {}

}  // namespace baton
