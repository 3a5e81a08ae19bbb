/// Random weights, to measure speed without a checkpoint.
#pragma once

#include <cstdint>

#include "core/parallel.h"
#include "model/source/source.h"

namespace baton {

/// Matrices [n, k] are uniform with variance 1/k, so that activations stay near 1 and logits are nearly normally
/// distributed. Norms are 1 and biases 0. The same seed and order of tensors give the same weights.
class RandomSource final : public WeightSource {
 public:
  /// `parallel` is kept by reference and must outlive this object.
  RandomSource(std::uint64_t seed, const Parallel& parallel) : seed_(seed), parallel_(parallel) {}

  Result<void> read(const ExpectedTensor& tensor, TensorView out) override;

 private:
  std::uint64_t seed_;
  std::uint64_t n_read_ = 0;
  const Parallel& parallel_;
};

}  // namespace baton
