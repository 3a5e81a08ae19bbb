/// Random weights, to measure speed without a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "core/parallel.h"
#include "kernels/random_packing.h"
#include "model/quantization.h"
#include "model/source/source.h"

namespace baton {

/// Matrices [n, k] are uniform with variance 1/k, so that activations stay near 1 and logits are nearly normally
/// distributed. Norms are 1 and biases 0. An element depends on the seed, the tensor's place among `tensors` and the
/// element's place in the tensor, so parts of a tensor have the same elements as the whole.
///
/// Where the configuration states a scheme, matrices have random codes, and one scale that gives about the same variance. Zeros
/// are the middle of the codes, and columns stand in their order.
class RandomSource final : public WeightSource {
 public:
  /// `tensors`: all tensors of the model. `stated`: of the configuration; `kept`: names of matrices that are dense whatever it
  /// says, as all but experts in one tensor are in gpt-oss' "mxfp4". `parallel` is kept by reference and must outlive this object.
  RandomSource(std::uint64_t seed, std::span<const ExpectedTensor> tensors, const Parallel& parallel, QuantizationSpec stated,
               std::set<std::string> kept);

  Result<void> read(const TensorPart& part, TensorView out) override;
  /// Errors (unsupported): a configuration with several schemes, which does not say here which matrix has which.
  Result<MatrixForm> form_of(const ExpectedTensor& matrix) const override;
  /// Errors (unsupported): columns that begin inside a byte.
  Result<void> read_stored(const TensorPart& part, const StoredRows& out) override;

  /// What read() writes for a part of a dense matrix, for a backend that draws it; nothing if heads change places, as loading does
  /// after read() (see part_pairs).
  std::optional<RandomRows> rows_of(const TensorPart& part) const;

 private:
  std::uint64_t key_of(const ExpectedTensor& tensor) const;

  std::uint64_t seed_;
  QuantizationSpec stated_;
  std::set<std::string> kept_;
  std::map<std::pair<std::string, std::int32_t>, std::uint64_t> place_of_;  ///< by name and expert
  const Parallel& parallel_;
};

}  // namespace baton
