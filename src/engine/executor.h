/// Runs steps: the backend, the model, the KV storages and the slot table of one rank.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/captured_steps.h"
#include "kernels/backend.h"
#include "kernels/batch.h"
#include "kernels/kv_storage.h"
#include "model/decoder.h"

namespace baton {

/// A StepInput is all it needs to run a step. Steps run in the order in which they were submitted. An asynchronous backend has
/// all of a step enqueued by submit, so that it goes from one step to the next by itself while the host commits one and plans
/// the one behind. Any other keeps a step until its results are asked for: the next one is planned, built and submitted before
/// this one's forward begins, and no token waits for a step it does not need.
///
/// Memory is allocated by create, allocate_cache and capture_steps alone. Thread: engine only.
class Executor {
 public:
  /// Steps that may be submitted and not waited for, on an asynchronous backend.
  static constexpr std::size_t kMaxInFlight = 2;

  /// Allocates workspace, slot table and result buffers for steps within `bounds`; KV storage comes with
  /// allocate_cache, when what is left is known.
  static Result<std::unique_ptr<Executor>> create(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
                                                  const StepBounds& bounds);
  ~Executor();

  /// Makes one storage a layer group. Once, before the first step.
  Result<void> allocate_cache(std::int32_t n_blocks, std::int32_t block_len, DType dtype);
  /// From now on steps of at most `max_rows` rows that are all sampled replay graphs (CapturedSteps). Once, behind
  /// allocate_cache. How many were made.
  Result<std::size_t> capture_steps(std::int32_t max_rows);

  void submit(StepInput step);
  /// Results of the oldest submitted step, in the order of its sampling orders; valid until the next submit or wait.
  std::span<const SampleResult> wait();
  /// Seconds that the step of the last wait took, from when its turn came.
  double last_step_seconds() const { return last_step_seconds_; }
  std::size_t n_submitted() const { return submitted_.size(); }

  const Backend& backend() const { return *backend_; }
  const Model& model() const { return *model_; }
  std::span<KvStorage* const> storages() const { return storage_pointers_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Submitted {
    StepInput input;
    AsyncReadback* results = nullptr;
    Clock::time_point enqueued;
  };

  Executor(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, const StepBounds& bounds);
  Result<void> allocate();
  void enqueue(Submitted& step);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  StepBounds bounds_;
  bool is_asynchronous_;
  std::vector<std::unique_ptr<KvStorage>> storages_;
  std::vector<KvStorage*> storage_pointers_;
  Buffer slots_;                                                        ///< SlotState [max_slots]
  Buffer results_;                                                      ///< SampleResult [max_samples]
  std::array<std::unique_ptr<AsyncReadback>, kMaxInFlight> readbacks_;  ///< of results_, by turns
  std::size_t n_enqueued_ = 0;
  std::unique_ptr<CapturedSteps> captured_steps_;  ///< null: every step is launched operation by operation
  std::deque<Submitted> submitted_;
  Clock::time_point last_end_;
  double last_step_seconds_ = 0;
};

}  // namespace baton
