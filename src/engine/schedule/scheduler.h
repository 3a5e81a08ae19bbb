/// Decides which sequences run in the next step and applies the results of steps. Plans are values; it touches no
/// device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "engine/cache/kv_cache.h"
#include "engine/request/draft_pace.h"
#include "engine/request/prefill_pace.h"
#include "engine/schedule/admission_policy.h"
#include "engine/schedule/running_blocks.h"
#include "engine/schedule/sequence.h"
#include "grammar/match/matcher.h"

namespace baton {

struct SchedulerOptions {
  bool by_size = false;                        ///< see FairQueue; it must be false if sequences have priorities
  std::int32_t max_num_seqs = 128;             ///< slots
  std::int32_t max_num_batched_tokens = 2048;  ///< rows of a step
  /// Prefill rows of a step that also decodes, and of any step after several tenants had sequences; 0: no other limit
  std::int32_t max_prefill_tokens = 0;
  bool paces_prefill = false;         ///< measured times of steps decide how many of these rows a step has, see PrefillPace
  std::int32_t max_scores = 1 << 30;  ///< prompt rows that a step scores (Sequence::scores_row)
  std::int64_t max_list_entries = kMaxListEntries;  ///< of the running sequences (Sequence::n_list_entries)
  std::int64_t max_block_entries = 1 << 30;         ///< blocks that all running sequences can reach
  std::int32_t state_snapshot_interval = 0;         ///< see EngineOptions
  std::int32_t state_loads = 0;  ///< blocks of the host tier that take as many bytes as a state, see find_state
  std::int32_t max_drafts = 0;   ///< drafts of a step; each has a slot, numbered after those of the sequences
  /// If set, a sequence that would draft but whose last token is in flight has no row in a step; the others continue. If
  /// not set, or if most sequences would draft, all of them wait for the commit, so that all have rows in each step:
  /// the right choice where planning ahead gains nothing.
  bool drafters_wait_alone = false;
  bool uses_step_times = true;  ///< see EngineOptions
  bool has_mtp = false;         ///< the model drafts (MtpSpec)
  bool drafts_always = false;   ///< for benchmarks: all drafts in each step, whatever they cost
};

/// A sequence for which the model drafts after a step.
struct DraftRun {
  const Sequence* sequence = nullptr;
  SlotId slot;
  std::int32_t n_tokens = 0;  ///< with the step's
  std::int32_t n_drafts = 0;  ///< at least 1
};

/// A cohort has at most kCohortTurns sequences for each slot. If it has fewer than kLeastCohortTurns for each running
/// sequence, it keeps the order of arrival: nearly as many different prompts would run in any order, and some sequences
/// would wait longer for it.
inline constexpr std::size_t kCohortTurns = 4;
inline constexpr std::size_t kLeastCohortTurns = 2;
/// Rows of one sequence in a step: its positions [first_position, first_position + n_rows).
struct PlannedSequence {
  SequenceId id;
  SlotId slot;
  std::int32_t first_position = 0;
  std::int32_t n_rows = 0;
  /// The most new tokens that the rows can give: 0 for rows of an unfinished prefill, otherwise 1 and one for each
  /// draft. This is also the number of last rows whose logits are needed.
  std::int32_t max_tokens = 0;
  std::vector<TokenId> drafts = {};  ///< proposed tokens of the last rows
  bool has_forced_drafts = false;    ///< the drafts are text that the sequence's grammar demands
  SlotId first_draft_slot = {};      ///< drafts.size() slots, reset by this step, for sampling from the drafts' rows
  StateMove state = {};              ///< of a model with recurrent layers
};

struct StepPlan {
  std::int64_t step = 0;
  std::vector<PlannedSequence> sequences;
  std::vector<SlotId> reset_slots;   ///< slots that are reset by this step
  std::vector<SequenceId> admitted;  ///< sequences that were given slots
  std::int32_t n_rows = 0;
  std::int32_t n_decodes = 0;  ///< the first sequences of the plan: one row each, plus drafts; the others prefill
  std::int32_t n_drafts = 0;   ///< rows that verify drafts
  std::int32_t n_preempted = 0;
  std::int32_t n_loaded_tokens = 0;      ///< of blocks that were loaded from the host tier before this step
  bool has_loaded_state = false;         ///< from the host tier
  std::int32_t n_cached_prefixes = 0;    ///< registered prefixes that ended because all of them was cached
  std::int32_t n_recomputed_tokens = 0;  ///< tokens that sequences admitted again after a preemption recompute
  bool is_empty() const { return sequences.empty(); }
  /// Whether the next plan may have rows even if nothing happens in between: this one preempted sequences, loaded blocks, or
  /// kept the slots of prefixes to its end. An engine that has no other work must plan again.
  bool needs_another() const { return n_preempted > 0 || n_loaded_tokens > 0 || has_loaded_state || n_cached_prefixes > 0; }
  std::int32_t n_prefill() const { return n_rows - n_decodes - n_drafts; }
};

/// The result of a step for one of its sequences: up to max_tokens tokens, or its end.
struct StepOutcome {
  SequenceId id;
  ShortVector<TokenOutput> tokens;  ///< without the stop token
  std::optional<FinishReason> finished;
  std::optional<TokenOutput> stop_token;          ///< see Event::stop_token
  std::vector<TokenOutput> prompt_scores = {};    ///< of the prompt's next tokens
  std::int32_t n_drafts = 0;                      ///< verified drafts
  std::int32_t n_accepted = 0;                    ///< accepted drafts, the first ones
  DraftSource draft_source = DraftSource::ngram;  ///< of the drafts, if there were any
  std::shared_ptr<const Error> error = {};        ///< see Event::error
};

struct PendingBlocks;
struct PlanSketch;

/// Loops over the sequences of a step prefetch the one that comes so many later.
inline constexpr std::int32_t kPrefetchDistance = 6;

/// Continuous batching with a token budget and chunked prefill. It guarantees:
///
/// - Every decoding sequence has its row in every step, except one that waits for its own last token in order to draft
///   (SchedulerOptions::drafters_wait_alone), and except in steps with prompts of a tenant that has had less service:
///   there a tenant's decodes beyond its share are held back, first the sequences that were held back least. A sequence
///   is admitted only if the running ones leave rows. Prefill gets the rows that decodes leave, at most
///   max_prefill_tokens of them while a sequence decodes or several tenants are there, so the length of a step is
///   bounded whatever arrives. With SchedulerOptions::paces_prefill it gets fewer of them where that makes prompts cheaper
///   for the decodes (PrefillPace).
/// - A prompt longer than the rest of a step takes three quarters of it while other sequences follow, so that a short
///   prompt does not wait for the end of a long one. Rows that no other sequence needs go to the long prompt after all.
/// - The order is by priority, then arrival, for rows, for admission and (from the end) for preemption. Within a cohort,
///   sequences with common prompts are admitted one after another (gather_sharers), so that few different prompts run at
///   a time. A cohort is what waits of a tenant and a priority when its first sequence is next and a slot is free, at
///   most kCohortTurns sequences for each slot; all of them come before the next cohort. So at most
///   kCohortTurns * max_num_seqs - 1 later sequences are admitted before a sequence that does not wait for its prefix,
///   and none that came after its cohort began.
/// - With SchedulerOptions::by_size, sequences are admitted in the order of FairQueue's tags instead of arrival; a cohort
///   has one size, and its sequences exchange only their own tags, so no other size waits longer. A sequence that is much
///   shorter than a running one gets a slot after kFullPlans plans, if there are blocks for both: the long one is
///   preempted, at most once, and finds its blocks in the cache when it continues.
/// - That is the order of one tenant's sequences. Between tenants the weights decide (admission_policy.h): whose sequence
///   is admitted next, whose prompts take the prefill rows of a step first, and which tenant's sequence is preempted,
///   namely of the tenant that holds most for its weight. A sequence that finds no room while another tenant holds twice
///   as much for its weight gets room by preempting that tenant's last sequence, which happens to a sequence at most once.
/// - A sequence is admitted when its tokens and one more block fit beside what every running sequence still needs for its
///   tokens and one more block; shared blocks count once. No sequence overtakes one that does not fit, so every sequence
///   is admitted in the end.
/// - The running sequences fit one step at their greatest length, with their blocks and lists. The others wait, so no
///   plan exceeds StepBounds.
/// - A sequence whose next blocks another sequence is computing waits for them, step by step: they are computed once for
///   many sequences.
/// - When no blocks are left, the last running sequence is preempted, at most kMaxPreemptions times. Its blocks are given
///   back (it may find the blocks that the tree keeps again; blocks with other holders stay), and it waits with the
///   tokens it has, at its place in the line: before all sequences that came after its cohort.
///
/// A sequence that is admitted first loads the blocks that follow those it finds in the tree from the host tier
/// (host_tier.h), and in a model with recurrent layers the state that it continues from (state_tier.h). A plan loads at most
/// as many tokens as a step may compute, or one state, so that a long prompt does not delay the others; a sequence that has
/// not loaded all of it has no rows, and no sequence is preempted for it.
///
/// In a model with recurrent layers a sequence continues from a snapshot of the state (scheduler_states.cpp). The tokens whose
/// keys it found after the snapshot are replayed: its rows begin with them. Steps end where a snapshot is to be made
/// (SequenceSchedule::stops), and a sequence waits for a snapshot that a running one will make on its path. A state is that of
/// accepted tokens: drafts are kept beside it until they are verified (KvCache::keep_drafts), and dropped with its slot.
///
/// Drafts (speculation.h) get the rows that all others leave, and blocks that no running sequence needs, if their
/// expected gain is worth their rows. No sequence is preempted for them, and a step that preempts has none. Text that a
/// sequence's grammar demands is drafted before tokens from its context.
///
/// A model with a layer for drafts makes them after a step and before its commit (scheduler_mtp.cpp). The next plan waits for them.
///
/// Step n+1 may be planned before commit(n); a sequence whose drafts step n verifies has no rows in it. Plans are
/// upper bounds; commit skips sequences that have ended meanwhile. Blocks and slots that commit(n) frees are therefore
/// assigned by the plan of step n+2 at the earliest; those of a preempted sequence at once, because steps run in order.
/// Thread: engine only.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, KvCache& cache);
  ~Scheduler();

  /// Adds a waiting sequence. Ids must ascend; its max_positions must fit the cache beside the pinned blocks.
  void add(std::unique_ptr<Sequence> sequence);
  /// Whether the steps in flight should be committed before the next plan, because drafts need the tokens they sample.
  bool awaits_commit();
  StepPlan plan();
  /// The step of the last plan, in flight, does not sample the token after the sequence's last row. The row is not counted:
  /// the next plan has it again, with its slot reset, and the step's outcome has no token.
  void drop_sample(PlannedSequence& planned);
  /// Takes back a plan that was committed: the next one is made in its memory (at most max_num_seqs entries).
  void reuse(StepPlan plan);
  /// Applies the results of `plan`. Outcomes are in the order of plan.sequences, at most one for each; outcomes of
  /// sequences that have ended or are unknown are skipped. A sequence that got fewer tokens than its plan's max_tokens
  /// is shortened by the difference, and by its rejected drafts; no later step of it may have been planned in that
  /// case.
  void commit(const StepPlan& plan, std::span<const StepOutcome> outcomes);
  /// Reports how long a step took; the costs of drafts and of prompt rows are estimated from it.
  void took(const StepPlan& plan, double seconds);
  /// How many tokens the model should draft for a sequence after the step of `plan`, the last plan, with which the next plan must
  /// wait; nothing: the step's rows need not pass through the layer for drafts either. A row that does not has no keys and values
  /// there, which makes later drafts worse and no answer wrong.
  std::optional<std::int32_t> plan_draft_passes(const StepPlan& plan);
  /// The sequences that draft after a step whose results are `outcomes`, before its commit, at most `n_most` tokens each. They get
  /// blocks for it, as far as no other sequence needs them.
  std::vector<DraftRun> draft_runs(const StepPlan& plan, std::span<const StepOutcome> outcomes, std::int32_t n_most);
  /// Takes what was drafted for `runs`, whose sequences may have ended since, and how long it took in all. Call it after the commit.
  void offer(const StepPlan& plan, std::span<const DraftRun> runs, std::vector<std::vector<TokenId>> drafts, double seconds);
  /// Ends a sequence now: its blocks are given back, and commit skips its results in flight.
  void finish(SequenceId id, FinishReason reason);

  /// Returns null for an unknown id. A finished sequence is known until take_finished.
  Sequence* find(SequenceId id);
  const Sequence* find(SequenceId id) const;
  /// The same, faster while the sequence has the slot of the plan.
  Sequence* find(const PlannedSequence& planned) {
    return const_cast<Sequence*>(static_cast<const Scheduler*>(this)->find(planned));
  }
  const Sequence* find(const PlannedSequence& planned) const;
  /// The sequences of the last plan, in its order. Valid until one of them is taken by take_finished.
  std::span<Sequence* const> members() const { return members_; }
  /// Removes the sequences that have ended. A prefix must be taken, and pinned, before the next plan, which could evict its blocks.
  std::vector<std::unique_ptr<Sequence>> take_finished();

  std::int32_t n_running() const { return policy_.n_running(); }
  std::int32_t n_waiting() const { return static_cast<std::int32_t>(policy_.waiting().size()); }
  /// Waiting sequences whose shared prefix another sequence is computing, as of the last plan. The other waiting
  /// sequences wait for room.
  std::int32_t n_deferred() const { return n_deferred_; }
  /// Whether sequences of several tenants were there in one of the last plans.
  bool is_shared() const { return policy_.was_shared(); }
  std::vector<SequenceId> unfinished() const;
  std::int64_t next_step() const { return next_step_; }

  /// Aborts if an invariant of a sequence, the slots or the cache does not hold.
  void check_invariants() const;
  /// The same if others than its sequences hold blocks: `tables` has theirs.
  void check_invariants(std::vector<const BlockTable*> tables) const;

 private:
  static bool is_in_flight(const PlanSketch& sketch, const Sequence& sequence);
  const Sequence* holder_of(SlotId slot) const {
    const auto at = static_cast<std::size_t>(slot.value);
    return at < of_slot_.size() ? of_slot_[at] : nullptr;
  }
  void plan_decodes(PlanSketch& sketch);
  void pace(PlanSketch& sketch);
  void plan_prefills(PlanSketch& sketch);
  void add_rows(PlanSketch& sketch, Sequence& sequence, std::int32_t n_left);
  void plan_waiting(PlanSketch& sketch);
  void top_up(PlanSketch& sketch);
  void plan_drafts(PlanSketch& sketch);
  /// Whether it may ever draft: from its context, or text that its grammar demands.
  bool may_draft(const Sequence& sequence) const;
  static bool has_dropped_sample(const StepOutcome& outcome);
  bool wants_its_token(Sequence& sequence);
  bool sits_out(Sequence& sequence);
  std::int32_t add_drafts(PlanSketch& sketch, PlannedSequence& planned, Sequence& sequence, std::int32_t n_most,
                          double least_probability);
  bool waits_for_prefix(const PlanSketch& sketch, Sequence& sequence, PendingBlocks& pending) const;
  bool find_state(PlanSketch& sketch, Sequence& sequence);
  /// Blocks that a plan may load from the host tier.
  std::int32_t max_loads() const { return std::max(1, options_.max_num_batched_tokens / cache_.block_len()); }
  void move_state(Sequence& sequence, PlannedSequence& planned, std::int64_t step);
  std::int32_t n_drafts_to_snapshot(const Sequence& sequence, std::int32_t position) const;
  void keep_cached_prefix(PlanSketch& sketch, Sequence& sequence);
  void end_cached_prefixes(PlanSketch& sketch);
  bool waits_for_snapshot(const Sequence& sequence, const PrefixTree::Found& found) const;
  void begin_cohorts();
  bool admit(PlanSketch& sketch, Sequence& sequence);
  void load_blocks(PlanSketch& sketch, Sequence& sequence);
  void plan_loads(PlanSketch& sketch);
  static void begin_rows(PlanSketch& sketch, Sequence& sequence, std::int32_t block_len);
  std::int32_t n_claimed_by(const Sequence& sequence, int group) const;
  std::int32_t n_claimed(int group) const;
  bool has_spare_blocks() const;
  bool fits_step(const Sequence& sequence) const;
  bool has_blocks_for(PlanSketch& sketch, Sequence& sequence) const;
  void hold_back_decodes(PlanSketch& sketch);
  void share_out(PlanSketch& sketch) const;
  void make_way(PlanSketch& sketch);
  void make_way_for_short(PlanSketch& sketch);
  bool waits_for_running(const PlanSketch& sketch, Sequence& sequence) const;
  bool make_room(PlanSketch& sketch, Sequence& sequence, std::int32_t n_positions);
  void preempt(PlanSketch& sketch, Sequence& victim);
  void apply(Sequence& sequence, const PlannedSequence& planned);
  void publish(Sequence& sequence);
  void begin_slot_anew(Sequence& sequence, StepPlan& plan);
  void take_drafts(Sequence& sequence, const PlannedSequence& planned, const StepOutcome& outcome);
  void leave_slot(Sequence& sequence);
  void shorten(Sequence& sequence, std::int32_t n_positions);
  void end(Sequence& sequence, FinishReason reason);

  SchedulerOptions options_;
  KvCache& cache_;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  SequenceId last_id_;              ///< of the sequence that was added last
  std::vector<Sequence*> of_slot_;  ///< the running sequence of each slot; null: it is free
  std::vector<Sequence*> members_;  ///< of the last plan
  std::vector<PlannedSequence> spare_sequences_;
  RunningBlocks running_blocks_;
  AdmissionPolicy policy_;
  std::vector<SequenceId> finished_;
  std::vector<SlotId> free_slots_;    ///< a stack
  std::int64_t n_list_entries_ = 0;   ///< of the running sequences
  std::int64_t n_block_entries_ = 0;  ///< of the running sequences, at their greatest length
  RowCost row_cost_;
  PrefillPace pace_;
  DraftPace draft_pace_;
  /// Work that drafts may still cost the grammars until the next plan is made: some 4 ms.
  static constexpr std::int64_t kDraftWork = std::int64_t{1} << 16;
  grammar::MatcherWork draft_work_{kDraftWork};
  std::int64_t next_step_ = 0;
  std::int32_t n_full_plans_ = 0;  ///< plans in a row that began with waiting sequences and without a free slot
  std::int32_t n_deferred_ = 0;
  std::int32_t n_loading_ = 0;      ///< running sequences that load from the host tier
  std::int32_t n_speculating_ = 0;  ///< running sequences that may draft
};

}  // namespace baton
