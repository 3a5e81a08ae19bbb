/// Runs steps: the backend, the model, the KV storages and the slot table of one rank.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/batch.h"
#include "kernels/kv_storage.h"
#include "model/decoder.h"

namespace baton {

/// A StepInput is all it needs to run a step. Steps run in the order in which they were submitted, and a step is kept until its
/// results are asked for: so the next one can be planned, built and submitted before this one's forward begins, and no token
/// waits for a step it does not need.
///
/// Memory is allocated by create alone. Thread: engine only.
class Executor {
 public:
  /// Allocates workspace, slot table and result buffers for steps within `limits`; KV storage comes with allocate_cache, when
  /// what is left is known.
  static Result<std::unique_ptr<Executor>> create(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
                                                  const StepLimits& limits);
  ~Executor();

  /// Makes one storage a layer group. Once, before the first step.
  Result<void> allocate_cache(std::int32_t n_blocks, std::int32_t block_len, DType dtype);

  void submit(StepInput step);
  /// Results of the oldest submitted step, in the order of its sampling orders; valid until the next wait.
  std::span<const SampleResult> wait();
  std::size_t n_submitted() const { return submitted_.size(); }

  const Backend& backend() const { return *backend_; }
  const Model& model() const { return *model_; }
  std::span<KvStorage* const> storages() const { return storage_pointers_; }

 private:
  Executor(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, const StepLimits& limits);
  Result<void> allocate();

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  StepLimits limits_;
  std::vector<std::unique_ptr<KvStorage>> storages_;
  std::vector<KvStorage*> storage_pointers_;
  Buffer slots_;    ///< SlotState [max_slots]
  Buffer results_;  ///< SampleResult [max_orders]
  std::vector<SampleResult> host_results_;
  std::deque<StepInput> submitted_;
};

}  // namespace baton
