/// Verification with a coin in the place of the model, so that benchmarks with random weights have drafts that are accepted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/split_mix.h"
#include "engine/step/batch_builder.h"
#include "kernels/batch.h"

namespace baton {

/// Changes the tokens that verified drafts are compared with. Thread: engine only.
class SimulatedAcceptance {
 public:
  /// A draft is accepted with `probability` if those before it were.
  SimulatedAcceptance(double probability, std::int32_t n_vocab) : probability_(probability), n_vocab_(n_vocab) {}

  /// A copy of a step's results in which each draft's predecessor gave the draft, or another token. Valid until the next call.
  std::span<const SampleResult> apply(const BuiltStep& step, std::span<const SampleResult> results);

 private:
  double probability_;
  std::int32_t n_vocab_;
  std::uint64_t n_drawn_ = 0;
  std::vector<SampleResult> changed_;
};

}  // namespace baton
