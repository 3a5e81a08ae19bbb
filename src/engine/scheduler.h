/// Which sequences run in the next step, and what its results change. Plans are values; no device is touched.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "engine/kv_cache.h"
#include "engine/running_blocks.h"
#include "engine/sequence.h"

namespace baton {

struct SchedulerOptions {
  std::int32_t max_num_seqs = 128;             ///< slots
  std::int32_t max_num_batched_tokens = 2048;  ///< rows of a step
  std::int32_t max_prefill_tokens = 0;         ///< rows of prefill in a step in which a sequence decodes; 0: no other limit
  std::int32_t max_scores = 1 << 30;           ///< rows of prompts that a step scores (Sequence::scores_row)
  std::int64_t max_list_entries = kMaxListEntries;  ///< of the sequences that run (Sequence::n_list_entries)
  std::int64_t max_block_entries = 1 << 30;         ///< blocks that all running sequences can come to
  std::int32_t max_drafts = 0;  ///< that a step verifies; as many slots behind those of the sequences are for them
  /// A sequence whose last token is in flight, and that would draft behind it, has no rows meanwhile, while the others
  /// go on. Else, or where such sequences are the larger part, all of them wait for the commit, so that all have rows
  /// in each step: right where planning ahead gains nothing.
  bool drafters_wait_alone = false;
};

/// A sequence is preempted at most this often. Before that it comes back when the blocks of the tokens it has fit; the
/// last time when all blocks it can ever need do, which it then gets at once, and is nobody's victim any more.
inline constexpr std::int32_t kMaxPreemptions = 2;
/// At most this many later sequences that share their prompt with running ones are admitted before one that waits.
inline constexpr std::int32_t kMaxOvertaken = 8;
/// And they are looked for among this many behind it.
inline constexpr std::size_t kSharerReach = 32;

/// Rows of one sequence in a step: its positions [first_position, first_position + n_rows).
struct PlannedSequence {
  SequenceId id;
  SlotId slot;
  std::int32_t first_position = 0;
  std::int32_t n_rows = 0;
  /// New tokens it can give: 0 for rows that only fill, else 1 and one for each draft. The logits of so many last rows
  /// are wanted.
  std::int32_t max_tokens = 0;
  std::vector<TokenId> drafts = {};  ///< tokens of the last rows, by guess
  SlotId first_draft_slot = {};      ///< drafts.size() slots that begin with this step, to sample from the rows of the drafts
};

struct StepPlan {
  std::int64_t step = 0;
  std::vector<PlannedSequence> sequences;
  std::vector<SlotId> reset_slots;   ///< slots that begin with this step
  std::vector<SequenceId> admitted;  ///< sequences that got them
  std::int32_t n_rows = 0;
  std::int32_t n_decodes = 0;  ///< sequences, the first ones, that have one row, and drafts; the others' rows are prefill
  std::int32_t n_drafts = 0;   ///< rows that verify drafts
  std::int32_t n_preempted = 0;
  std::int32_t n_recomputed_tokens = 0;  ///< tokens that preempted sequences admitted by this plan compute again
  bool is_empty() const { return sequences.empty(); }
  std::int32_t n_prefill() const { return n_rows - n_decodes - n_drafts; }
};

/// The result of a step for one of its sequences: up to max_tokens tokens, or the end.
struct StepOutcome {
  SequenceId id;
  std::vector<TokenOutput> tokens;  ///< without the stop token
  std::optional<FinishReason> finished;
  std::optional<TokenOutput> stop_token;        ///< see Event::stop_token
  std::vector<TokenOutput> prompt_scores = {};  ///< of the prompt's next tokens
  std::int32_t n_drafts = 0;                    ///< that were verified
  std::int32_t n_accepted = 0;                  ///< of these, those that were accepted: the first so many tokens
};

struct PlanSketch;

/// Continuous batching with a token budget and chunked prefill. What it promises:
///
/// - Every sequence that decodes has its row in every step, except one that waits for its own last token, to draft
///   (SchedulerOptions::drafters_wait_alone). One more is admitted only where those who run leave rows over. What
///   decodes leave is prefill's, at most max_prefill_tokens rows of it while a sequence decodes, so a step's length is
///   bounded whatever comes in.
/// - A prompt longer than what a step has left takes three quarters of it while others are behind: a short one does
///   not wait for the end of a long one. What nobody needs the long one gets all the same.
/// - Order is by priority, then arrival, for rows, for admission and (from the end) for preemption. Those that share
///   at least half of their prompt with a running sequence may go before one of their priority that does not,
///   kMaxOvertaken times.
/// - A sequence is admitted when its tokens and a block more fit beside what every running sequence still needs for
///   its tokens and a block more, blocks that are shared counted once. Nobody overtakes one that does not fit: so
///   everyone gets its turn.
/// - Running sequences fit one step at their longest, with their blocks and their lists: the others wait, so that no
///   plan exceeds StepBounds.
/// - A sequence whose next blocks another one is computing waits for them, step by step: they are computed once for
///   many.
/// - When blocks run out the last running sequence is preempted: its blocks are given back (what the tree keeps, it
///   finds again; blocks that others hold stay), and it waits with the tokens it has, before all that came later. At
///   most kMaxPreemptions times.
///
/// - Drafts (speculation.h) get what all others leave of a step's rows and of the blocks that nobody has a claim on,
///   as far as they are worth their rows. Nobody is preempted for them, and none are made in a step that preempts.
///
/// Step n+1 may be planned before commit(n): a sequence whose drafts step n verifies has no rows in it. Plans are
/// upper bounds, and what has ended meanwhile is skipped by commit. Blocks and slots that commit(n) frees are
/// therefore handed out by the plan of step n+2 at the earliest. Thread: engine only.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, KvCache& cache);
  ~Scheduler();

  /// Takes a sequence in, to wait. Ids must ascend; its max_positions must fit the cache beside what is pinned.
  void add(std::unique_ptr<Sequence> sequence);
  /// Whether the steps in flight should be committed before the next plan, because drafts need the tokens they sample.
  bool awaits_commit();
  StepPlan plan();
  /// Applies the results of `plan`. Outcomes stand in the order of plan.sequences, at most one for each; those of
  /// sequences that ended or are unknown are skipped. A sequence that got fewer tokens than its plan's max_tokens is
  /// shortened by the difference, and one with rejected drafts by those, which needs that no later step of it is
  /// planned.
  void commit(const StepPlan& plan, std::span<const StepOutcome> outcomes);
  /// Tells how long a step lasted, for drafts to be weighed by.
  void took(const StepPlan& plan, double seconds);
  /// Ends a sequence now: its blocks are given back, and results in flight are skipped by commit.
  void finish(SequenceId id, FinishReason reason);

  /// Null for unknown ids. What has finished stays known until take_finished.
  Sequence* find(SequenceId id);
  const Sequence* find(SequenceId id) const;
  std::vector<std::unique_ptr<Sequence>> take_finished();

  std::int32_t n_running() const { return static_cast<std::int32_t>(running_.size()); }
  std::int32_t n_waiting() const { return static_cast<std::int32_t>(waiting_.size()); }
  /// Waiting sequences whose shared prefix another sequence is computing, as of the last plan. The others wait for
  /// room.
  std::int32_t n_deferred() const { return n_deferred_; }
  std::vector<SequenceId> unfinished() const;
  std::int64_t next_step() const { return next_step_; }

  /// Aborts if an invariant of a sequence, the slots or the cache does not hold.
  void check_invariants() const;

 private:
  /// The order of sequences.
  struct Rank {
    std::int32_t priority = 0;
    SequenceId id;
    auto operator<=>(const Rank&) const = default;
  };
  using Queue = std::map<Rank, Sequence*>;
  struct PendingBlocks;
  static Rank rank_of(const Sequence& sequence) { return {sequence.task->priority, sequence.task->id}; }

  void plan_running(PlanSketch& sketch, std::span<Sequence* const> running, bool decodes);
  void plan_waiting(PlanSketch& sketch);
  void top_up(PlanSketch& sketch);
  void plan_drafts(PlanSketch& sketch);
  bool wants_its_token(Sequence& sequence);
  bool sits_out(Sequence& sequence);
  std::int32_t add_drafts(PlanSketch& sketch, PlannedSequence& planned, Sequence& sequence, std::int32_t n_most,
                          double least_probability);
  bool waits_for_prefix(const PlanSketch& sketch, Sequence& sequence, PendingBlocks& pending) const;
  Queue::const_iterator next_to_admit(const PlanSketch& sketch, Queue::const_iterator head, PendingBlocks& pending) const;
  bool shares_with_running(const Sequence& sequence) const;
  bool admit(PlanSketch& sketch, Sequence& sequence);
  std::int32_t n_claimed_by(const Sequence& sequence, int group) const;
  std::int32_t n_claimed(int group) const;
  bool has_spare_blocks() const;
  bool fits_step(const Sequence& sequence) const;
  bool make_room(PlanSketch& sketch, Sequence& sequence, std::int32_t n_positions);
  void preempt(PlanSketch& sketch, Sequence& victim);
  void apply(Sequence& sequence, const PlannedSequence& planned);
  void publish(Sequence& sequence);
  void begin_slot_anew(Sequence& sequence, StepPlan& plan);
  void take_drafts(Sequence& sequence, std::int32_t n_drafts, const StepOutcome& outcome);
  void leave_slot(Sequence& sequence);
  void shorten(Sequence& sequence, std::int32_t n_positions);
  void end(Sequence& sequence, FinishReason reason);

  SchedulerOptions options_;
  KvCache& cache_;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  SequenceId last_id_;  ///< of the sequence that was added last
  Queue running_;
  std::vector<Sequence*> running_order_;  ///< those of running_, one after the other; stale where is_order_stale_
  bool is_order_stale_ = false;
  RunningBlocks running_blocks_;
  Queue waiting_;
  std::vector<SequenceId> finished_;
  std::vector<SlotId> free_slots_;    ///< a stack
  std::int64_t n_list_entries_ = 0;   ///< of the running sequences
  std::int64_t n_block_entries_ = 0;  ///< of the running sequences, at their longest
  RowCost row_cost_;
  std::int64_t next_step_ = 0;
  std::int32_t n_deferred_ = 0;
  std::int32_t n_speculating_ = 0;  ///< running sequences that may draft
};

}  // namespace baton
