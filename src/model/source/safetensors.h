/// Weights from a checkpoint of safetensors files.
#pragma once

#include <span>
#include <string_view>

#include "core/parallel.h"
#include "core/result.h"
#include "io/safetensors.h"
#include "model/source/source.h"
#include "model/spec.h"

namespace baton {

/// A tensor as a checkpoint stores it: `scheme` says what the parts mean.
struct StoredWeight {
  enum class Scheme { dense };
  Scheme scheme = Scheme::dense;
  ConstTensorView values;  ///< dense: the elements, f32, bf16 or f16, not aligned; valid as long as the checkpoint
};

class SafetensorsSource final : public WeightSource {
 public:
  /// Both are kept by reference and must outlive this object.
  SafetensorsSource(const Checkpoint& checkpoint, const Parallel& parallel) : checkpoint_(checkpoint), parallel_(parallel) {}

  /// Whether all of `expected` are there with their shapes and of a float type. Logs one line about tensors that
  /// nobody expects, because they may be a sign of a config that does not belong to the checkpoint, and one for each
  /// stored type whose matrices lose precision in `dtype`. Errors: not_found and invalid_data name the tensor and
  /// the number of others missing, or both shapes; unsupported.
  Result<void> verify(std::span<const ExpectedTensor> expected, const ModelSpec& spec, DType dtype) const;

  /// Errors: not_found, invalid_data (another shape), unsupported (another type).
  Result<StoredWeight> find(const ExpectedTensor& tensor) const;

  /// Gives the pages that it read back to the system.
  Result<void> read(const ExpectedTensor& tensor, TensorView out) override;

 private:
  const Checkpoint& checkpoint_;
  const Parallel& parallel_;
};

/// Whether the output layer of the checkpoint is the embedding: as `spec` says, unless it says so and the checkpoint
/// holds an output layer with other contents. That one is then the output layer, with a warning, as in Transformers
/// 5. Errors: those of reading the two tensors.
Result<bool> ties_embeddings(const ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace baton
