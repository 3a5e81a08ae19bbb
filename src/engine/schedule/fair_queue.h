/// The waiting sequences, in a line for each tenant, and the service that each tenant has had.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "engine/schedule/sequence.h"

namespace baton {

/// Shares out service among tenants in proportion to their weights.
///
/// A tenant's virtual time is the cost of the rows that steps have computed for it, divided by its weight. Of the
/// tenants that wait, the one with the earliest virtual time is next. A tenant that begins to wait has at least the
/// virtual time of the tenant that was served last, so it has no credit from a time in which it asked for nothing. The
/// sequences of one tenant are in the order of priority, then of their tags. A tag is the number of the arrival, unless
/// by_size. Source: start-time fair queueing (Goyal, Vin and Cheng, 1996), with the cost of rows for the lengths of
/// packets.
///
/// With `by_size`, a tag is the finish tag of self-clocked fair queueing (Golestani, 1994), whose flows are here the
/// requests of one size: those whose greatest cost has the same power of four. Each size that waits has an equal share
/// of the tenant's service, in the order of arrival within the size. So a small request does not wait for the large
/// ones before it, and a sequence waits at most as long as those of its size before it and itself would take if the
/// other sizes had as much service as its own.
///
/// Sequences of one priority and size that were never admitted can exchange their tags once (take_cohort, put_back), so
/// that those with common prompts follow one another. Later ones and other sizes keep their places.
/// A sequence then waits at most as long as the last one of its cohort.
///
/// Thread: engine only. Complexity: O(log n) for a sequence, O(tenants that wait) for a choice.
class FairQueue {
 public:
  explicit FairQueue(bool by_size) : by_size_(by_size) {}

  /// The order of the sequences of a tenant.
  struct Rank {
    std::int32_t priority = 0;
    std::int64_t tag = 0;
    SequenceId id;
    auto operator<=>(const Rank&) const = default;
  };
  using Line = std::map<Rank, Sequence*>;
  static Rank rank_of(const Sequence& sequence) { return {sequence.task->priority, sequence.schedule->tag, sequence.task->id}; }

  /// The tag of a sequence that has just arrived. Must be called once for each, in the order of arrival.
  std::int64_t tag_of(const Sequence& sequence);
  /// The tag of a sequence that leaves its slot to `other`, which waits. It is then after all sequences of that size
  /// that wait now, unless they cost more than `most_cost` in all.
  std::int64_t tag_behind(const Sequence& other, std::int64_t most_cost) const;
  /// The most that a sequence can cost, in rows of a prompt. Of an answer at most kMostTokens count: clients that want
  /// short answers, too, leave the limit high or leave it out.
  static std::int64_t cost_of(const Sequence& sequence);
  static constexpr std::int32_t kMostTokens = 1024;

  static constexpr std::size_t kSizes = 24;
  /// The size of a request, below kSizes: the power of four of what its `n_sequences` sequences can cost together.
  static std::size_t size_of(std::int32_t prompt_len, std::int32_t max_len, std::int32_t n_sequences);

  std::size_t size() const { return n_waiting_; }
  bool is_empty() const { return n_waiting_ == 0; }
  bool contains(const Sequence& sequence) const;
  /// A sequence that was not preempted is a newcomer until it is in a cohort.
  void add(Sequence& sequence);
  /// Does nothing for a sequence that does not wait.
  void remove(const Sequence& sequence);
  /// A waiting sequence was admitted; `stopped` tells that it runs no longer.
  void started(const Sequence& sequence);
  void stopped(const Sequence& sequence);
  /// A step computes `n_rows` rows of the sequence, from which it samples at most `n_tokens` tokens.
  void charge(const Sequence& sequence, std::int32_t n_rows, std::int32_t n_tokens);

  using Places = std::vector<Line::node_type>;
  /// If the first sequence of the tenant's line is a newcomer, removes it and the next newcomers of its priority and
  /// size, at most `n_most` in all, in the order of their tags. They must be put back before any other call.
  Places take_cohort(std::int32_t tenant, std::size_t n_most);
  /// Inserts what take_cohort removed. Keys and sequences may have been changed alike.
  void put_back(std::int32_t tenant, Places cohort);
  /// Tenants that wait, in no order.
  std::span<const std::int32_t> tenants() const { return waiting_; }
  /// Aborts if a newcomer does not wait or stands before a sequence of a cohort, or a sequence does not stand where its
  /// tag says.
  void check_invariants() const;

  /// Cost of a generated token in rows of a prompt: about the ratio of their prices where both are sold.
  static constexpr std::int64_t kTokenCost = 4;

  /// Whether sequences of more than one tenant wait or run.
  bool has_several_tenants() const { return n_active_ > 1; }
  std::int32_t weight_of(std::int32_t tenant) const { return accounts_[static_cast<std::size_t>(tenant)].weight; }
  /// Sequences of the tenant that wait or run.
  std::int64_t n_of(std::int32_t tenant) const {
    const Account& account = accounts_[static_cast<std::size_t>(tenant)];
    return account.n_running + static_cast<std::int64_t>(account.line.size());
  }

  /// A tenant that waits, and the part of its line that was not looked at yet.
  struct Turn {
    std::int32_t tenant = 0;
    Line::const_iterator head;
    Line::const_iterator end;
  };
  /// All tenants that wait. Iterators stay valid while other sequences come and go.
  std::vector<Turn> turns() const;
  /// Whether tenant `a` is served before tenant `b`.
  bool is_before(std::int32_t a, std::int32_t b) const;

 private:
  using Newcomer = std::pair<std::size_t, Rank>;  ///< its size, and its place in the line
  struct Account {
    std::int64_t virtual_time = 0;  ///< cost x kUnit / weight
    std::int64_t n_running = 0;
    std::int32_t weight = 1;
    Line line;  ///< its waiting sequences
    /// Sequences never admitted and in no cohort: for each size, sequences of equal priority follow one another.
    std::set<Newcomer> newcomers;
    std::int64_t tag = 0;                          ///< of the first of its line, when a sequence was last admitted
    std::array<std::int64_t, kSizes> last_tags{};  ///< of each size

    bool is_active() const { return n_running > 0 || !line.empty(); }
  };
  /// Virtual time of one row of a prompt at weight 1.
  static constexpr std::int64_t kUnit = 1 << 20;

  Newcomer newcomer(const SequenceTask& task, const Rank& rank) const { return {by_size_ ? size_of(task) : 0, rank}; }
  static std::size_t size_of(const SequenceTask& task) { return size_of(task.prompt_len, task.max_len, task.n_siblings); }
  Account& account_of(const Sequence& sequence);

  const bool by_size_;
  std::vector<Account> accounts_;      ///< by tenant
  std::vector<std::int32_t> waiting_;  ///< tenants with a line, in no order
  std::size_t n_waiting_ = 0;          ///< sequences
  std::int32_t n_active_ = 0;          ///< tenants
  std::int64_t virtual_time_ = 0;      ///< of the tenant that was served last, when its sequence was admitted
};

}  // namespace baton
