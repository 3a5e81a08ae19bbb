/// A backend that does on purpose what vLLM's issue 421 found slow, so that the cost of each habit can be measured
/// over one model: sampling by one call a sequence, results copied one by one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bench/engine/forwarding_backend.h"
#include "kernels/backend.h"

namespace baton {

/// What is done the slow way. May be changed while no step is in flight.
struct Ablation {
  bool samples_each = false;  ///< a sampling call, with an upload of its parameters, for each sample of a step
  bool copies_each = false;   ///< each result is copied to the host by a call of its own, which waits for it
};

/// Passes every call to another backend, except what `Ablation` names. A graph that samples is not replayed while
/// samples_each is set: its operations are called instead. Results are the same in every setting; sequences may use no
/// lists (penalties, biases, bans, allowed ids) while samples_each is set. Thread: as Backend.
class AblationBackend final : public ForwardingBackend {
 public:
  /// `ablation` must outlive the backend.
  AblationBackend(std::unique_ptr<Backend> inner, const Ablation& ablation)
      : ForwardingBackend(std::move(inner)), ablation_(ablation) {}

  Result<std::unique_ptr<AsyncReadback>> make_readback(std::size_t size_bytes) override;
  StepView upload_step(const StepInput& step) override;
  Result<std::unique_ptr<CapturedGraph>> capture(std::function<void()> operations) override;
  void sample(const SampleArgs& args) override;

 private:
  class Readback;
  class SamplingGraph;

  const Ablation& ablation_;
  std::vector<SamplingMetadata> samples_;  ///< of the last step that was uploaded
  std::int32_t n_groups_ = 1;              ///< its layer groups
  std::array<StepInput, 2> small_steps_;   ///< uploads of one sample, which must live until the next but one
  std::size_t n_small_steps_ = 0;
  bool is_capturing_ = false;
  bool has_captured_sampling_ = false;
};

}  // namespace baton
