/// Weights from a checkpoint of safetensors files.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/parallel.h"
#include "core/result.h"
#include "io/safetensors.h"
#include "model/quantization.h"
#include "model/source/source.h"
#include "model/source/value_reader.h"
#include "model/spec.h"

namespace baton {

class SafetensorsSource final : public WeightSource, public ValueSource {
 public:
  /// `quantization`: what the model's configuration states. The object keeps references; they must outlive it.
  SafetensorsSource(const Checkpoint& checkpoint, const QuantizationSpec& quantization, const Parallel& parallel)
      : checkpoint_(checkpoint), quantization_(quantization), parallel_(parallel) {}

  /// Checks that all of `expected` are present with their shapes, vectors and embedding with a float dtype, other
  /// matrices in a scheme that is supported and stated. Errors: not_found and invalid_data name the tensor and either the
  /// number of other missing ones or both shapes; unsupported.
  Result<void> check_tensors(std::span<const ExpectedTensor> expected, const ModelSpec& spec) const;

  /// Logs one line about unexpected tensors, which may show that the config does not belong to the checkpoint, and one
  /// line for each stored dtype whose matrices lose precision in `dtype`.
  void log_differences(std::span<const ExpectedTensor> expected, const ModelSpec& spec, DType dtype) const;

  /// A tensor's elements, f32, bf16 or f16, unaligned; valid as long as the checkpoint. Errors: not_found,
  /// invalid_data
  /// (another shape), unsupported (another dtype).
  Result<ConstTensorView> find(const ExpectedTensor& tensor) const;

  /// Releases the pages that it read.
  Result<void> read(const TensorPart& part, TensorView out) override;
  Result<MatrixForm> form_of(const ExpectedTensor& matrix) const override;
  Result<void> read_stored(const TensorPart& part, const StoredRows& out) override;
  Result<std::unique_ptr<ValueReader>> value_reader(const TensorPart& part) const override;

 private:
  const Checkpoint& checkpoint_;
  const QuantizationSpec& quantization_;
  const Parallel& parallel_;
};

/// Fits `spec` to the checkpoint. Its names become those of the one of its roots that has the embedding. If the spec
/// ties
/// the embeddings and the checkpoint holds a different output layer, that layer is used, with a warning, as in
/// Transformers 5. Errors: those of reading the two tensors.
Result<void> fit_to_checkpoint(ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace baton
