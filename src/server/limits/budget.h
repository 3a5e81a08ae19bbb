/// Budgets: the bytes and the work of clients that the server keeps at the same time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace baton {

class Budget;

/// A part of a budget, which goes back when the share ends. Thread: one at a time.
class BudgetShare {
 public:
  BudgetShare() = default;
  BudgetShare(BudgetShare&& other) noexcept;
  BudgetShare& operator=(BudgetShare&& other) noexcept;
  ~BudgetShare() { release(); }

  /// Takes `n` more from the budget that it is of. False, and nothing taken, if the budget does not have as many; a
  /// share of no budget has no limit.
  bool grow(std::int64_t n);
  /// Gives `n` back, which must not be more than it has.
  void shrink(std::int64_t n);
  void release();
  std::int64_t size() const { return size_; }

 private:
  friend class Budget;
  explicit BudgetShare(Budget& budget) : budget_(&budget) {}
  Budget* budget_ = nullptr;
  std::int64_t size_ = 0;
};

/// A number of bytes, or of units of work, which shares take from and give back to.
///
/// A quarter of it is kept for small shares: one that is larger than `small` cannot take it, so that a few large
/// requests never keep out all small ones. It must outlive its shares. Thread: any.
class Budget {
 public:
  Budget(std::int64_t limit, std::int64_t small) : limit_(limit), small_(small) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// An empty share, which grows.
  BudgetShare share() { return BudgetShare(*this); }

  std::int64_t limit() const { return limit_; }
  /// The most that a share can have.
  std::int64_t most_of_one() const { return std::max(small_, limit_ - limit_ / 4); }
  std::int64_t used() const { return used_.load(std::memory_order_relaxed); }
  /// How many times a share could not grow.
  std::int64_t n_refused() const { return n_refused_.load(std::memory_order_relaxed); }
  /// Counts a refusal by another rule than the budget's own.
  void count_refusal() { n_refused_.fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class BudgetShare;
  /// Takes `n` for a share that has `size`.
  bool take(std::int64_t n, std::int64_t size);
  void give_back(std::int64_t n) { used_.fetch_sub(n, std::memory_order_relaxed); }

  const std::int64_t limit_;
  const std::int64_t small_;
  std::atomic<std::int64_t> used_ = 0;
  std::atomic<std::int64_t> n_refused_ = 0;
};

/// A log-probability that waits takes 8 bytes, and about 100 as text.
inline constexpr std::int64_t kScoreBytes = 128;

struct BudgetLimits {
  std::int64_t header_bytes = 64 << 20;   ///< of requests' headers, and of what arrives before it is parsed
  std::int64_t body_bytes = 256 << 20;    ///< of requests that arrive or wait to be read
  std::int64_t unsent_bytes = 256 << 20;  ///< of answers that clients have not taken yet
  std::int64_t text_work = 1024;          ///< requests that wait for templates and tokenizers; a long one counts as 16
  std::int64_t scores_per_answer = 1 << 20;
  std::int64_t values_per_body = 4 << 20;  ///< JSON values
  std::int64_t scores = 4 << 20;           ///< log-probabilities that answers keep until they are complete
  std::int64_t request_bytes = 256 << 20;  ///< of requests that wait for the engine or run: prompts, lists, sequences
  std::int64_t compile_bytes = 512 << 20;  ///< of grammars while they are compiled
};

/// The limits for `bytes` of memory that clients may cause the server to take.
BudgetLimits budget_limits(std::int64_t bytes);
/// The default of these bytes: an eighth of the memory that the process may take (`memory_limit`), from 64 MB to 4 GB.
std::int64_t default_client_memory(std::int64_t memory_limit);

/// What a server keeps for its clients.
struct Budgets {
  explicit Budgets(const BudgetLimits& limits);
  Budget headers;
  Budget bodies;
  Budget unsent;
  Budget text_work;
  Budget scores;
  Budget requests;
  Budget compiles;
  const std::int64_t scores_per_answer;
  const std::int64_t values_per_body;
};

/// The names of the budgets in metrics.
template <class Visit>
void for_each_budget(const Budgets& budgets, Visit visit) {
  visit(std::string_view("header_bytes"), budgets.headers);
  visit(std::string_view("body_bytes"), budgets.bodies);
  visit(std::string_view("unsent_bytes"), budgets.unsent);
  visit(std::string_view("text_work"), budgets.text_work);
  visit(std::string_view("scores"), budgets.scores);
  visit(std::string_view("request_bytes"), budgets.requests);
  visit(std::string_view("compile_bytes"), budgets.compiles);
}

}  // namespace baton
