/// Which sequence is admitted next, which is preempted, and how many rows of a step each tenant may take. The order
/// of waiting sequences that share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "engine/schedule/fair_queue.h"
#include "engine/schedule/running_blocks.h"
#include "engine/schedule/sequence.h"

namespace baton {

/// A sequence is preempted at most this often. After earlier preemptions it is admitted again when blocks for its
/// tokens are available. After the last one it waits for all blocks that it can ever need, gets them at once, and is
/// not preempted any more.
inline constexpr std::int32_t kMaxPreemptions = 2;
/// With SchedulerOptions::by_size, after this many plans in a row without a free slot a running sequence leaves its slot to
/// the first waiting one, if it has at least kMuchLonger times as much left as that one can cost.
inline constexpr std::int32_t kFullPlans = 16;
inline constexpr std::int64_t kMuchLonger = 16;

/// Answers the scheduler's questions: `next`, `victim`, `limits`. It holds the order of all sequences and changes none of
/// them; the scheduler owns slots, blocks and rows.
///
/// While one tenant has sequences, this is first come, first served: the first of the line is next, the last running
/// sequence is preempted, and steps with decodes are short. Between tenants weights decide (FairQueue).
///
/// Thread: engine only.
class AdmissionPolicy {
 public:
  /// Options as in SchedulerOptions.
  AdmissionPolicy(bool by_size, std::int32_t max_prefill_tokens) : max_prefill_tokens_(max_prefill_tokens), waiting_(by_size) {}

  FairQueue& waiting() { return waiting_; }
  const FairQueue& waiting() const { return waiting_; }
  /// Running sequences are ordered by priority and arrival; tags order the queue only.
  const FairQueue::Line& running() const { return running_; }
  std::int32_t n_running() const { return static_cast<std::int32_t>(running_.size()); }
  static FairQueue::Rank rank_of(const Sequence& sequence) { return {sequence.task->priority, 0, sequence.task->id}; }
  /// A waiting sequence was admitted / leaves its slot.
  void started(Sequence& sequence);
  void stopped(const Sequence& sequence);

  void begin_plan();
  /// The running sequences in order, as of the beginning of the plan. Some of them may have been preempted meanwhile.
  std::span<Sequence* const> order() const { return order_; }
  /// Whether sequences of several tenants were there in one of the last plans.
  bool was_shared() const { return n_short_plans_ > 0; }
  /// Whether the sequence's tenant has no other, so that it need leave no rows of the tenant's share.
  bool is_alone(const Sequence& sequence) const { return waiting_.n_of(sequence.task->tenant.id) == 1; }
  /// Whether `a` is served before `b`, a sequence of another tenant.
  bool is_before(const Sequence& a, const Sequence& b) const {
    return waiting_.is_before(a.task->tenant.id, b.task->tenant.id);
  }

  /// What a plan grants to the tenants. Without entries it limits nothing.
  struct Limits {
    /// Whose waiting sequence is next, if it finds a slot and blocks.
    std::optional<std::int32_t> next_admitted = {};
    /// Prefill rows that each may still take of `budget`. A tenant that is not listed may take all.
    std::map<std::int32_t, std::int32_t> shares = {};

    /// How many of `budget` rows a tenant may still take.
    std::int32_t n_open_to(std::int32_t tenant, std::int32_t budget) const;
    void take(std::int32_t tenant, std::int32_t n_rows);
  };
  /// The place in line whose sequence is looked at next, of those in `turns`; null: none is left, or there are no rows for it.
  /// The tenant for which room was made comes first, even if the sequences that were preempted for it are now before it.
  /// Tenants that have had their share come after all others: when only they are left, all shares are dropped.
  FairQueue::Turn* next(std::vector<FairQueue::Turn>& turns, Limits& limits, std::int32_t budget) const;

  enum class Resource { slots, tokens };
  /// The sequence to preempt when the running ones need more blocks than there are: the last one that is not settled, of
  /// the tenant that holds most tokens for its weight. Null if all are settled.
  Sequence* victim() const;
  /// The sequence that `next` may take the place of: the last one, not preempted before, of the tenant that holds most
  /// of the resource for its weight. Null if no other tenant holds twice as much as the sequence's tenant will hold with
  /// it: smaller differences end when sequences end, without computing anything twice.
  Sequence* victim_for(const Sequence& next, Resource resource) const;
  /// The last running sequence, not preempted before, of the same tenant that has kMuchLonger times as much left as `next`
  /// can cost; null: none.
  Sequence* victim_for_short(const Sequence& next) const;

  /// How many of `budget` rows prompts may take in a step with or without decodes.
  std::int32_t prefill_limit(std::int32_t budget, bool has_decodes) const;
  /// The prefill rows of each tenant that has prompts to compute: the one with the earliest virtual time may take as many as
  /// its prompts have, the next one as many of the rest, and so on; each has one at least, so that rows that no tenant takes
  /// can be added to its prompt. `prefills`: places in order().
  std::map<std::int32_t, std::int32_t> shares(std::span<const std::size_t> prefills, std::int32_t budget,
                                              std::size_t n_free_slots) const;
  /// The decodes of a tenant that must leave rows to others: which of them have no row in the step, and which have.
  struct Decodes {
    std::vector<Sequence*> held_back;
    std::vector<Sequence*> kept;
  };
  /// Chooses the decodes that have no row in a step with prompts of other tenants, so that these do not wait for long steps.
  /// A tenant may decode, beside prompts of tenants that are served before it, as many sequences as cost its share by
  /// weight: what max_prefill_tokens rows cost for the others. The decodes that were held back most often come first, so each
  /// sequence is held back at most once for each other that runs.
  Decodes limit_decodes(const Limits& limits, std::int32_t budget) const;

  void check_invariants() const;

 private:
  std::map<std::int32_t, std::int64_t> held_by_tenants(Resource resource) const;
  void limit(std::vector<Sequence*>& decodes, std::int64_t n_most, Decodes& chosen) const;

  /// Plans for which steps stay short after one with several tenants: the other tenant's next request does not wait
  /// for the end of a long step.
  static constexpr std::int32_t kShortPlans = 1000;

  const std::int32_t max_prefill_tokens_;
  FairQueue waiting_;
  FairQueue::Line running_;
  std::vector<Sequence*> order_;  ///< out of date if is_order_stale_
  bool is_order_stale_ = false;
  std::int32_t n_short_plans_ = 0;
};

/// Whether a sequence holds, from its admission on, all blocks that it can ever need.
inline bool is_settled(const Sequence& sequence) { return sequence.schedule->n_preemptions >= kMaxPreemptions; }

/// Common beginnings longer than this many blocks are not told apart.
inline constexpr std::int32_t kMostSharedBlocks = 512;

/// Reorders the sequences, which come in the order of arrival: those whose prompts begin with the same blocks stand one
/// after another. Among such groups, the ones that share with running sequences come first, then the one of the first
/// arrival. The same holds within a group for longer common beginnings. Sequences that share nothing keep their order.
///
/// Beginnings are compared at 1, 2, 3, 4, 6, 8, 12, ... kMostSharedBlocks blocks, by the hashes that the sequences' tables
/// have. Complexity: O(n) hash look-ups for each of these lengths that several sequences have in common.
void gather_sharers(std::vector<Sequence*>& sequences, const RunningBlocks& running);

}  // namespace baton
