/// Builds the token masks of a step, while the device computes its logits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/mutex.h"
#include "core/parallel.h"
#include "core/result.h"
#include "engine/request/request.h"
#include "engine/schedule/answer_grammar.h"
#include "engine/schedule/mask_budget.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/sequence.h"
#include "engine/step/batch_builder.h"
#include "engine/step/executor.h"
#include "grammar/match/matcher.h"

namespace baton {

/// A piece of work that can stop and continue.
struct MaskJob {
  Tenant tenant;
  RequestId request;
  const void* matcher = nullptr;  ///< jobs of one matcher do not run at the same time
  /// Continues as far as the work allows; whether it is done. std::bad_alloc ends the job.
  std::function<bool(grammar::MatcherWork& work)> go_on;
  bool is_done = false;
  bool lacks_memory = false;
};

/// Works on jobs in turns: next is the tenant that has had the least work for its weight, of its requests the one that has
/// had the least, and of that one's jobs the first. Work counts from step to step while its owner has jobs, so what does
/// not fit a step comes to its turn in a later one. Threads are made once. Thread: engine only.
class MaskJobs {
 public:
  explicit MaskJobs(const MaskBudget& budget);

  void begin_step();
  enum class Part { half, all };
  /// Works on `jobs` until all are done or that part of the step's budget is used up. By the clock alone, the first job
  /// that is next always has its turn.
  void run(std::span<MaskJob> jobs, Part part);

 private:
  using Clock = std::chrono::steady_clock;
  struct Account {
    std::int64_t time = 0;                            ///< steps x kUnit / weight
    std::map<std::int64_t, std::int64_t> of_request;  ///< steps
  };

  void begin_run(std::span<const MaskJob> jobs, Part part, std::int64_t n_saved);
  void open_accounts(std::span<const MaskJob> jobs) BATON_REQUIRES(mutex_);
  MaskJob* next(std::span<MaskJob> jobs) BATON_REQUIRES(mutex_);
  bool is_before(const MaskJob& job, const MaskJob& other) const BATON_REQUIRES(mutex_);
  void serve(std::span<MaskJob> jobs);

  const MaskBudget budget_;
  const Parallel threads_;
  Mutex mutex_;
  // Of the step. During run(), its threads use them.
  std::map<std::int32_t, Account> accounts_ BATON_GUARDED_BY(mutex_);  ///< by tenant
  std::vector<const void*> busy_ BATON_GUARDED_BY(mutex_);             ///< matchers
  std::int64_t n_steps_left_ BATON_GUARDED_BY(mutex_) = 0;
  Clock::time_point deadline_ BATON_GUARDED_BY(mutex_);
  bool has_turned_ BATON_GUARDED_BY(mutex_) = false;  ///< a job had its turn in this run
  // Of the step, between its runs: the engine's thread alone.
  std::int64_t n_steps_kept_ = 0;  ///< for later runs of the step
  Clock::time_point begin_;
};

/// Keeps the grammars of sequences up to date and makes masks from them. A step's masks need the tokens of all steps
/// before it: `take` them first. Places that are equal share a row of bits.
///
/// A mask that no step needed before may be seconds of work. A step works on its masks for the time of a MaskBudget. A
/// sample whose mask is not ready then is drawn without a mask and dropped, and so are the sequence's samples after it:
/// their results are not read. The sequence has the same row again in the next step, which continues with its mask. Every
/// rank samples the same, so the ranks need not be told. Thread: engine only.
class StepMasks {
 public:
  /// A sequence whose grammar cannot continue. It must be ended.
  struct Failure {
    SequenceId id;
    Error error;
  };
  /// What `build` did.
  struct Built {
    std::int32_t n_rows = 0;
    double seconds = 0;
    std::vector<std::size_t> late = {};  ///< places in the plan of the sequences of which samples are dropped
  };

  explicit StepMasks(const MaskBudget& budget = {}) : jobs_(budget) {}

  /// Takes the tokens of a step's outcomes, which may be committed later. An answer that ended after its drafts because no
  /// mask could be made there ends with the error instead.
  void take(const BuiltStep& step, std::span<StepOutcome> outcomes);
  /// Writes the masks of a step's samples. Samples that are dropped are taken out of StepSequence::samples; the scheduler
  /// must drop them too. Masks of different grammars are made by several threads.
  Built build(BuiltStep& step, const MaskMemory& memory);
  /// The sequences that failed since the last call.
  std::vector<Failure> take_failures() { return std::exchange(failures_, {}); }

 private:
  /// What decides on a row of bits.
  struct Key {
    const grammar::Matcher* matcher = nullptr;
    std::int64_t state = 0;
    std::span<const TokenId> forbidden_ends;
    bool operator<(const Key& other) const;
  };
  /// A row of bits to be made.
  struct Row {
    const AnswerGrammar* grammar = nullptr;
    const SequenceTask* task = nullptr;  // of the first sequence that needs it
    std::size_t n_drafts = 0;            // before the first sample that needs it
    AnswerGrammar::Place place;
    std::span<std::uint32_t> bits;
    bool is_ready = false;
    Result<void> made = {};
  };

  void fail(Sequence& sequence, Error error);
  void catch_up(const BuiltStep& step);
  void find_rows(const BuiltStep& step, const MaskMemory& memory);
  std::int32_t row_for(const Sequence& sequence, const AnswerGrammar::Place& place, std::size_t n_drafts,
                       const MaskMemory& memory);
  void make_rows();
  void report_failures(const BuiltStep& step, const MaskMemory& memory);
  std::vector<std::size_t> drop_late(BuiltStep& step, const MaskMemory& memory) const;

  /// The first sample after drafts of a sequence that has no mask, and why. It counts if the drafts are accepted.
  struct DraftFailure {
    std::int32_t n_drafts = 0;
    Error error;
  };

  MaskJobs jobs_;
  std::vector<Failure> failures_;
  std::map<std::int64_t, DraftFailure> draft_failures_;  // of the step built last, by the sequence's id
  // Of the step being built; their memory is kept.
  std::vector<Row> rows_;
  std::map<Key, std::int32_t> row_of_key_;
  std::vector<bool> is_late_;  // of each sample with a mask: its place is not known yet
};

}  // namespace baton
