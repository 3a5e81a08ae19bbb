/// Random weights, to measure speed without a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "core/parallel.h"
#include "model/source/source.h"

namespace baton {

/// Matrices [n, k] are uniform with variance 1/k, so that activations stay near 1 and logits are nearly normally
/// distributed. Norms are 1 and biases 0. An element depends on the seed, the tensor's place among `tensors` and the
/// element's place in the tensor, so parts of a tensor have the same elements as the whole.
class RandomSource final : public WeightSource {
 public:
  /// `tensors`: all tensors of the model. `parallel` is kept by reference and must outlive this object.
  RandomSource(std::uint64_t seed, std::span<const ExpectedTensor> tensors, const Parallel& parallel);

  Result<void> read(const TensorPart& part, TensorView out) override;

 private:
  std::uint64_t seed_;
  std::map<std::pair<std::string, std::int32_t>, std::uint64_t> place_of_;  ///< by name and expert
  const Parallel& parallel_;
};

}  // namespace baton
