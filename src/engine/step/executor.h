/// Runs steps: the backend, the model, the KV storages and the slot table of one rank.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "engine/cache/cache_group.h"
#include "engine/cache/host_tier.h"
#include "engine/step/captured_steps.h"
#include "engine/step/draft_pass.h"
#include "engine/step/rank_steps.h"
#include "kernels/backend.h"
#include "kernels/batch.h"
#include "kernels/kv_storage.h"
#include "model/decoder.h"

namespace baton {

/// Where the token masks of a step are written on the host (TokenMasks, ops.h).
struct MaskMemory {
  std::span<std::int32_t> row_of;  ///< [StepBounds::max_masks]
  std::span<std::uint32_t> bits;   ///< [max_masks, n_words]
  std::int32_t n_words = 0;
};

/// Runs a step from its StepInput. A step takes two calls, forward and sample, so that the host can build what only
/// sampling needs (a token mask) while the forward runs. Steps run in the order of these calls. On an asynchronous
/// backend each call enqueues its part at once: the device continues with the next step while the host commits one
/// step and plans another. On any other backend a step runs when its results are requested: the next step is planned,
/// built and passed on before this one's forward begins, so no token waits for a step that it does not need.
///
/// With several ranks, rank 0's executor passes on each call to the other ranks before it carries it out
/// (engine/step/rank_steps.h), in one copy of what the call reads. If a rank is lost, the results of later waits are worthless
/// and fault() says so.
///
/// Only create, allocate_cache, allocate_tier and capture_steps allocate memory, but for the list of copies that wait.
/// Thread: engine only.
class Executor {
 public:
  /// Steps that may be in flight (begun and not waited for) on an asynchronous backend.
  static constexpr std::size_t kMaxInFlight = 2;

  /// Allocates workspace, slot table, states and result buffers for steps within `bounds`. allocate_cache allocates the KV
  /// storage later, when the remaining memory is known. `ranks`: on rank 0 the group of the backend, so that the other
  /// ranks follow; null on these, and where there is one rank.
  static Result<std::unique_ptr<Executor>> create(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
                                                  const StepBounds& bounds, std::shared_ptr<RankGroup> ranks);
  ~Executor();

  /// Allocates one storage for each layer group. Call it once, before the first step.
  Result<void> allocate_cache(std::span<const CacheGroup> groups, std::int32_t block_len, DType dtype);
  /// Allocates the states of recurrent layers, which the model must have, with matrices of type `dtype`, and rows for drafts. Call
  /// it once, before capture_steps. There must be one rank.
  Result<void> allocate_states(std::int32_t n_slots, std::int32_t n_kept_rows, DType dtype);
  /// Allocates host memory for `n_slots` entries of the host tier, and for `n_states` states. Call it once, after allocate_cache
  /// and, with states, allocate_states. There must be one rank.
  Result<void> allocate_tier(std::int32_t n_slots, std::int32_t n_states);
  /// Allocates what `draft` needs, for a model with a layer for drafts. Call it once, after allocate_cache. There must be one rank.
  Result<void> allocate_drafts();
  /// Captures graphs for steps of at most `max_rows` rows that are all sampled; such steps replay them from now on
  /// (CapturedSteps). Call it once, after allocate_cache. Returns the number of graphs.
  Result<std::size_t> capture_steps(std::int32_t max_rows);

  /// Carries out copies of the host tier in this order, after all steps that were begun and before the next one. An
  /// asynchronous backend has them enqueued; on any other they wait for the steps that have not run.
  void copy(std::vector<TierCopy> copies);
  /// Begins a step: computes logits from its rows. `sample` must have been called for the step before.
  void forward(StepInput step);
  /// Samples from the logits of the preceding forward and reads the results back.
  void sample();
  /// Where the masks of the next sample_masked are written. Every step before the one of the preceding forward must have
  /// been waited for.
  MaskMemory masks();
  /// The same as `sample` for a step in which samples have masks: the first `n_rows` rows of masks(), and all of
  /// row_of, were written since the last wait.
  void sample_masked(std::int32_t n_rows);
  /// The bytes of masks() that sample_masked(n_rows) reads.
  std::span<std::byte> mask_bytes(std::int32_t n_rows);
  /// Waits for the oldest step in flight. Returns its results in the order of its samples, valid until the next sample
  /// or wait.
  std::span<const SampleResult> wait();
  /// Runs passes of the model's layer for drafts one after the other, after the step of the last wait, and waits for them. No step
  /// may have begun since. The first pass has the rows of that step. A row's token may be that which an earlier pass sampled for its
  /// slot (kLastTokenOfSlot). Returns the results of all passes in their order, valid until the next call.
  std::span<const SampleResult> draft(std::span<const DraftPass> passes);
  /// The memory of the step of the last wait, for another step; only once for each wait.
  StepInput take_input() { return std::move(ended_input_); }
  /// Seconds that the step of the last wait took, from its enqueue or, if later, the end of the step before it.
  double last_step_seconds() const { return last_step_seconds_; }
  std::size_t n_in_flight() const { return in_flight_.size(); }
  /// Why the ranks cannot continue; nothing while all run.
  std::optional<std::string> fault() const { return ranks_.fault(); }

  /// Bytes that every rank has free, as of the last call that allocates.
  std::int64_t free_memory_bytes() const { return free_memory_bytes_; }
  const Backend& backend() const { return *backend_; }
  const Model& model() const { return *model_; }
  std::span<KvStorage* const> storages() const { return storage_pointers_; }
  StateStorage* states() const { return states_.get(); }  ///< null: the model has no recurrent layers

 private:
  using Clock = std::chrono::steady_clock;
  struct InFlight {
    StepInput input;
    std::vector<TierCopy> copies = {};  ///< to be carried out before its forward
    StepView view = {};                 ///< set when its forward is enqueued
    TensorView logits = {};
    bool is_sampled = false;     ///< sample was called
    std::size_t mask_bytes = 0;  ///< to be uploaded before it is sampled
    AsyncReadback* results = nullptr;
    Clock::time_point enqueued = {};
  };

  Executor(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, const StepBounds& bounds,
           std::shared_ptr<RankGroup> ranks);
  Result<void> allocate();
  Result<void> allocate_storages(std::span<const CacheGroup> groups, std::int32_t block_len, DType dtype);
  Result<void> agree(const Result<void>& own);
  TensorView slot_table() const;
  TokenMasks token_masks() const;
  void take_sample();
  void copy_state(const TierCopy& copy);
  void carry_out(std::vector<TierCopy>& copies);
  void enqueue_forward(InFlight& step);
  void enqueue_sample(InFlight& step);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  StepBounds bounds_;
  RankSteps ranks_;
  bool is_asynchronous_;
  std::int64_t free_memory_bytes_ = 0;
  std::vector<std::unique_ptr<KvStorage>> storages_;
  std::vector<KvStorage*> storage_pointers_;
  std::unique_ptr<StateStorage> states_;  ///< null: the model has no recurrent layers
  std::vector<std::size_t> entry_parts_;  ///< where each layer group's block begins in an entry of the tier, and its size
  Buffer tier_;                           ///< [slots][entry_parts_.back()]
  std::size_t state_bytes_ = 0;           ///< of a slot of the next buffer; 0: there is none
  Buffer tier_states_;                    ///< [slots][state_bytes_]
  std::vector<TierCopy> waiting_copies_;  ///< for the next forward, or the end of the steps in flight
  Buffer slots_;                          ///< SlotState [max_slots]
  Buffer results_;                        ///< SampleResult [max_samples]
  std::unique_ptr<AsyncUpload> masks_;    ///< row_of, then bits, of StepBounds::masks_bytes
  std::array<std::unique_ptr<AsyncReadback>, kMaxInFlight> readbacks_;  ///< of results_, used in turn
  // Of drafts; empty without a layer for them.
  Buffer draft_slots_;                             ///< SlotState [max_slots]
  Buffer draft_results_;                           ///< SampleResult, of all passes
  std::unique_ptr<AsyncUpload> draft_rows_;        ///< DraftPass::hidden_rows of all passes
  std::unique_ptr<AsyncReadback> draft_readback_;  ///< of draft_results_
  std::size_t n_enqueued_ = 0;
  std::unique_ptr<CapturedSteps> captured_steps_;  ///< null: every operation of a step is launched separately
  std::deque<InFlight> in_flight_;
  StepInput ended_input_;
  Clock::time_point last_end_;
  double last_step_seconds_ = 0;
};

}  // namespace baton
