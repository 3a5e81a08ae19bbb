/// Which sequences run in the next step, and what its results change. Plans are values; no device is touched.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/ids.h"
#include "engine/kv_cache.h"
#include "engine/sequence.h"

namespace baton {

struct SchedulerOptions {
  std::int32_t max_num_seqs = 128;             ///< slots
  std::int32_t max_num_batched_tokens = 2048;  ///< rows of a step
};

/// Rows of one sequence in a step: its positions [first_position, first_position + n_rows).
struct PlannedSequence {
  SequenceId id;
  SlotId slot;
  std::int32_t first_position = 0;
  std::int32_t n_rows = 0;
  std::int32_t max_tokens =
      0;  ///< new tokens it can give: 1 if the logits of the last row are wanted, 0 for rows that only fill
};

struct StepPlan {
  std::int64_t step = 0;
  std::vector<PlannedSequence> sequences;
  std::vector<SlotId> reset_slots;   ///< slots that begin a sequence with this step
  std::vector<SequenceId> admitted;  ///< sequences that got them
  std::int32_t n_rows = 0;
  std::int32_t n_preempted = 0;

  bool is_empty() const { return sequences.empty(); }
};

/// What a step brought to one of its sequences: up to max_tokens tokens, or the end.
struct StepOutcome {
  SequenceId id;
  std::vector<TokenOutput> tokens;  ///< without the stop id that ended it
  std::optional<FinishReason> finished;
  std::optional<TokenId> stop_id;
};

/// Continuous batching with a token budget and chunked prefill: rows of decoding sequences first, then prefill, oldest first;
/// then waiting sequences in order of arrival, as far as slots, budget and blocks go. When blocks run out the youngest running
/// sequence is preempted: its blocks are released (what the tree keeps, it finds again), and it waits with the tokens it has.
///
/// A sequence that would compute what another is just filling waits for it instead, step by step (one fill for many).
///
/// Step n+1 may be planned before commit(n): plans are upper bounds, and what has ended meanwhile is skipped by commit. Blocks
/// and slots that commit(n) frees are therefore handed out by the plan of step n+2 at the earliest. Thread: engine only.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, KvCache& cache);
  ~Scheduler();

  /// Takes a sequence in, to wait. Ids must ascend; its max_positions must fit the cache beside what is pinned.
  void add(std::unique_ptr<Sequence> sequence);
  StepPlan plan();
  /// Applies the results of `plan`. Outcomes of sequences that ended or are unknown are skipped. A sequence that got fewer
  /// tokens than its plan's max_tokens is shortened by the difference, which needs that no later step of it is planned.
  void commit(const StepPlan& plan, std::span<const StepOutcome> outcomes);
  /// Ends a sequence now: its blocks are given back, and results in flight are skipped by commit.
  void finish(SequenceId id, FinishReason reason);

  /// Null for unknown ids. What has finished stays known until take_finished.
  Sequence* find(SequenceId id);
  const Sequence* find(SequenceId id) const;
  std::vector<std::unique_ptr<Sequence>> take_finished();

  std::int32_t n_running() const { return static_cast<std::int32_t>(running_.size()); }
  std::int32_t n_waiting() const { return static_cast<std::int32_t>(waiting_.size()); }
  std::vector<SequenceId> unfinished() const;
  std::int64_t next_step() const { return next_step_; }

  /// Aborts if an invariant of a sequence, the slots or the cache does not hold.
  void check_invariants() const;

 private:
  struct Draft;
  void plan_running(Draft& draft, bool decodes);
  void plan_waiting(Draft& draft);
  bool admit(Draft& draft, Sequence& sequence);
  bool make_room(Draft& draft, Sequence& sequence, std::int32_t n_positions);
  void preempt(Draft& draft, Sequence& victim);
  void apply(const PlannedSequence& planned);
  void leave_slot(Sequence& sequence);
  void shorten(Sequence& sequence, std::int32_t n_positions);
  void end(Sequence& sequence, FinishReason reason);
  Sequence& at(SequenceId id);

  SchedulerOptions options_;
  KvCache& cache_;
  std::map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::set<SequenceId> running_;  ///< oldest first
  std::set<SequenceId> waiting_;  ///< oldest first: what was preempted stands before all that came later
  std::vector<SequenceId> finished_;
  std::vector<SlotId> free_slots_;  ///< a stack
  std::int64_t next_step_ = 0;
};

}  // namespace baton
