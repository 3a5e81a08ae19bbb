/// One generated continuation and its state, from admission to its last event.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/shared_list.h"
#include "engine/cache/kv_cache.h"
#include "engine/request/request.h"
#include "engine/request/speculation.h"
#include "engine/request/token_counts.h"
#include "engine/schedule/sequence_tokens.h"
#include "kernels/batch.h"

namespace baton {

class AnswerGrammar;
class BatchBuilder;
class MetricsRecorder;
class Scheduler;

enum class SequenceState { waiting, running, finished };

/// List entries (token counts, biases, bans, allowed ids) that sampling one token of a sequence needs at most.
inline std::int32_t max_list_entries(const SamplingParams& sampling, std::int32_t prompt_len, std::int32_t max_len) {
  const bool penalises = sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
  const std::int32_t n_counts = sampling.repetition_penalty != 1 ? max_len : penalises ? max_len - prompt_len : 0;
  return n_counts +
         static_cast<std::int32_t>(sampling.logit_bias.size() + sampling.bad_words.size() + sampling.allowed_ids.size());
}

/// What a sequence was asked to do. It does not change after construction. The sequences of a request share its lists.
struct SequenceTask {
  SamplingParams sampling;                          ///< with its own seed
  SharedList<TokenId> stop_ids;                     ///< all ids that end it: the model's (unless ignored) and the request's
  CacheScope scope;                                 ///< decides which blocks it may share
  std::optional<SpeculationOptions> speculation;    ///< absent: it does not draft
  std::shared_ptr<const Constraint> constraint;     ///< null: none
  bool may_drop_samples = false;                    ///< it has a constraint whose masks may be late (StepMasks)
  std::chrono::steady_clock::time_point submitted;  ///< the request's arrival
  std::optional<std::chrono::steady_clock::time_point> deadline;  ///< it then ends with the tokens it has
  std::int32_t n_siblings = 1;                                    ///< sequences of its request, with itself
  // Every step reads these of every running sequence. They stand beside what it reads of SequenceSchedule.
  SequenceId id;           ///< ascending in the order of arrival
  RequestId request;       ///< -1: none, the sequence computes a registered prefix
  std::int32_t index = 0;  ///< which of the request's sequences
  std::int32_t prompt_len = 0;
  std::int32_t max_len = 0;   ///< most tokens it may have; prompt_len if it generates nothing
  std::int32_t priority = 0;  ///< lower is earlier
  Tenant tenant = {};
};

/// The state of a sequence: its tokens, its progress through steps, its blocks, its end. The fields that every step
/// reads come first.
struct SequenceSchedule {
  SequenceState state = SequenceState::waiting;
  SlotId slot;                           ///< while running
  std::int32_t n_planned = 0;            ///< positions whose keys all enqueued steps will have stored (upper bound)
  std::int32_t n_committed = 0;          ///< positions whose keys are stored as of the last commit
  std::int32_t n_samples_in_flight = 0;  ///< tokens sampled by enqueued steps and not yet committed
  std::int32_t n_drafts_in_flight = 0;   ///< drafts among these; while there are any, no other step has rows of it
  std::int32_t n_before_slot = 0;        ///< tokens generated before its slot was reset (preemption, accepted draft)
  bool is_slot_behind = false;           ///< its slot lacks tokens, or was never reset: it is reset with the next row
  bool is_loading = false;               ///< the host tier has more of its blocks; it has no rows until it has them
  /// Of a model with recurrent layers, ascending: a step ends at each of these positions, and the next one leaves a snapshot of
  /// the state there. Positions that steps have passed are taken out.
  std::vector<std::int32_t> stops;
  SequenceTokens tokens;  ///< the prompt and the committed tokens, without the stop token
  BlockTable table;
  std::optional<FinishReason> finished;
  std::int32_t n_admissions = 0;
  std::int32_t n_preemptions = 0;
  std::int32_t n_lost = 0;                 ///< positions that were stored when it was preempted
  std::int64_t tag = 0;                    ///< its place in the line, see FairQueue::tag_of
  std::int32_t n_held_back = 0;            ///< steps without its row, since such a step last had one (hold_back_decodes)
  std::int32_t n_cached = 0;               ///< prompt tokens found in the cache at the first admission
  std::int32_t n_loaded = 0;               ///< since the last admission, tokens found in the host tier
  std::int32_t n_replayed = 0;             ///< at the first admission, tokens whose keys were found but not their state
  std::int32_t n_drafts = 0;               ///< verified drafts
  std::int32_t n_accepted = 0;             ///< accepted drafts
  std::optional<Speculation> speculation;  ///< absent: it does not draft
  std::optional<TokenOutput> stop_token;   ///< the token that ended it, see Event::stop_token
};

/// What all samples of a sequence have in common.
struct ConstantSampling {
  SamplingMetadata metadata;  ///< without row, slot, counts and ranges of lists
  bool has_lists = false;     ///< it has biases, bad words or allowed ids
  bool has_grammar = false;
};

/// What the samples of a sequence need in addition to its tokens.
struct SequenceSampling {
  std::int32_t n_scored = 0;  ///< positions whose next token of the prompt is scored once every enqueued step has run
  /// What all its samples have in common (constant_sampling); absent before its first sample.
  std::optional<ConstantSampling> constant;
  TokenCounts counts;  ///< the token counts for its penalties, see count_tokens
};

/// Measurements of a sequence. SequenceStats explains the fields that both have.
struct SequenceReport {
  std::chrono::steady_clock::time_point first_step;
  std::chrono::steady_clock::time_point last_token;
  std::int32_t completion_tokens = 0;
  std::int64_t relayed_tokens = 0;
  std::int64_t kv_bytes_requested = 0;
  std::int64_t kv_bytes_saved = 0;
  std::int32_t largest_group = 1;
  double queue_ms = 0;
  double prefill_ms = 0;
};

/// A part of a sequence. All code may read it (`part->field`); only `Writer` changes it (`part.write().field`).
template <class Part, class Writer>
class WrittenBy {
 public:
  WrittenBy() = default;
  explicit WrittenBy(Part part) : part_(std::move(part)) {}
  WrittenBy(WrittenBy&&) noexcept = default;
  WrittenBy& operator=(WrittenBy&&) = delete;

  const Part& operator*() const { return part_; }
  const Part* operator->() const { return &part_; }

 private:
  friend Writer;
  friend class SequenceEditor;  // defined by tests, which set up states by hand
  Part& write() { return part_; }

  Part part_;
};

/// Invariants: n_committed <= n_planned; the table covers n_planned positions while the sequence runs; a sequence that
/// does not run has neither blocks nor a slot. Thread: engine only.
class Sequence {
 public:
  using Clock = std::chrono::steady_clock;

  /// Makes a waiting sequence. `prompt` has asked.prompt_len tokens.
  Sequence(SequenceTask asked, SharedList<TokenId> prompt);
  Sequence(Sequence&&) noexcept;
  ~Sequence();

  WrittenBy<SequenceTask, void> task;  ///< set by the constructor and constant afterwards
  WrittenBy<SequenceSchedule, Scheduler> schedule;
  WrittenBy<SequenceReport, MetricsRecorder> report;
  WrittenBy<SequenceSampling, BatchBuilder> sampling;
  std::unique_ptr<AnswerGrammar> grammar;  ///< null: the answer keeps to none. StepMasks moves it on

  // Loops over thousands of sequences call these a few sequences ahead: little of a sequence is in the processor's
  // caches then. They change nothing.
  /// What the scheduler reads of it in every step.
  void prefetch() const { prefetch_lines(&task->id, 256); }
  /// What a step's events tell of it; its table, and where its next token goes. The scheduler's part must be there.
  void prefetch_report() const {
    prefetch_lines(&schedule->n_cached, 64);
    prefetch_lines(&*report, sizeof(SequenceReport));
  }
  void prefetch_table() const { __builtin_prefetch(schedule->table.groups.data()); }
  void prefetch_next_token() const { __builtin_prefetch(schedule->tokens.data() + schedule->tokens.size()); }
  /// What a sample of it is made of.
  void prefetch_sampling() const { prefetch_lines(&*sampling, sizeof(SequenceSampling)); }

  /// Whether it generates nothing: it computes a registered prefix, or scores its prompt.
  bool is_prefill_only() const { return task->max_len == task->prompt_len; }
  /// Whether it computes a registered prefix. Then it belongs to no request and has no events.
  bool is_prefix_prefill() const { return is_prefill_only() && !task->request.is_valid(); }
  /// Whether the logits of the row at `position` score the prompt's next token, which no enqueued step does.
  bool scores_row(std::int32_t position) const {
    return position + 1 < task->prompt_len && task->sampling.n_prompt_logprobs >= 0 && position >= sampling->n_scored;
  }
  /// Number of the `n_rows` rows from `first` on whose logits score a token.
  std::int32_t n_scores(std::int32_t first, std::int32_t n_rows) const {
    if (first + 1 >= task->prompt_len || task->sampling.n_prompt_logprobs < 0) return 0;
    return std::max(0, std::min(first + n_rows, task->prompt_len - 1) - std::max(first, sampling->n_scored));
  }
  /// Number of leading tokens whose blocks may come from the cache. The last token must be computed for its logits,
  /// and so must all rows whose logits score the next token.
  std::int32_t n_matchable() const {
    if (is_prefix_prefill()) return task->prompt_len;
    return n_scores(0, task->prompt_len) > 0 ? std::min(sampling->n_scored, n_tokens() - 1) : n_tokens() - 1;
  }
  std::int32_t n_list_entries() const { return max_list_entries(task->sampling, task->prompt_len, task->max_len); }
  std::int32_t n_tokens() const { return static_cast<std::int32_t>(schedule->tokens.size()); }
  std::int32_t n_generated() const { return n_tokens() - task->prompt_len; }
  /// The most tokens that it has once every enqueued step has run.
  std::int32_t n_tokens_bound() const { return n_tokens() + schedule->n_samples_in_flight; }
  /// Positions whose tokens are known, whose keys are stored once every enqueued step has run, and which no later step
  /// computes again: the last token's row is, if its sample is dropped (StepMasks).
  std::int32_t n_filled() const { return std::min(n_tokens() - (task->may_drop_samples ? 1 : 0), schedule->n_planned); }
  /// Rows from position `first` on up to its next stop, at least 1.
  std::int32_t n_rows_to_stop(std::int32_t first) const {
    for (const std::int32_t stop : schedule->stops)
      if (stop > first) return stop - first;
    return std::numeric_limits<std::int32_t>::max();
  }
  bool stops_at(std::int32_t position) const { return !schedule->stops.empty() && schedule->stops.front() == position; }
  /// Rows that a step could compute now: none while the sequence waits for a commit or for the host tier.
  std::int32_t n_rows_left() const {
    if (schedule->is_loading) return 0;
    if (is_prefill_only()) return task->prompt_len - schedule->n_planned;
    if (schedule->n_drafts_in_flight > 0) return 0;
    return n_tokens_bound() >= task->max_len ? 0 : n_tokens_bound() - schedule->n_planned;
  }
  /// What its events report.
  SequenceStats stats() const {
    return {.prompt_tokens = task->prompt_len,
            .cached_tokens = schedule->n_cached,
            .replayed_tokens = schedule->n_replayed,
            .completion_tokens = report->completion_tokens,
            .relayed_tokens = report->relayed_tokens,
            .kv_bytes_requested = report->kv_bytes_requested,
            .kv_bytes_saved = report->kv_bytes_saved,
            .largest_group = report->largest_group,
            .queue_ms = report->queue_ms,
            .prefill_ms = report->prefill_ms,
            .n_preemptions = schedule->n_preemptions,
            .draft_tokens = schedule->n_drafts,
            .accepted_tokens = schedule->n_accepted};
  }
  /// The most positions that it can ever need: the keys of the last generated token are not stored.
  std::int32_t max_positions() const { return is_prefill_only() ? task->prompt_len : task->max_len - 1; }

 private:
  static void prefetch_lines(const void* first, std::size_t n_bytes) {
    constexpr std::size_t kLine = 64;
    for (std::size_t at = 0; at < n_bytes; at += kLine) __builtin_prefetch(static_cast<const std::byte*>(first) + at);
  }
  static SequenceSchedule waiting(const SequenceTask& task, SharedList<TokenId> prompt) {
    SequenceSchedule schedule;
    schedule.tokens = SequenceTokens(std::move(prompt));
    schedule.table.scope = task.scope;
    if (task.speculation) schedule.speculation.emplace(*task.speculation);
    return schedule;
  }
};

}  // namespace baton
