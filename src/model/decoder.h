/// The model: weights on a backend and the only layer loop.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "kernels/backend.h"
#include "model/config.h"

namespace baton {

struct ModelWeights;

/// A decoder described by its config and architecture row, with weights packed by one backend.
///
/// Thread: engine only. `forward` allocates nothing.
class Model {
 public:
  Model(ModelConfig config, ModelWeights weights);
  ~Model();

  const ModelConfig& config() const;
  DType weight_dtype() const;
  std::size_t weight_bytes() const;
  /// Shape of the KV storage of each layer group, for `n_blocks` blocks.
  std::vector<KvShape> kv_shapes(std::int32_t n_blocks, std::int32_t block_len, DType dtype) const;
  /// Layers of each group and the shape its attention plan is made for.
  std::vector<AttentionShape> attention_shapes(std::int32_t block_len, DType kv_dtype) const;
  std::int32_t n_layers_of_group(int group) const;

  /// Allocates the workspace of the largest step. Must be called once before forward.
  Result<void> prepare(Backend& backend, const StepBounds& bounds);

  /// Runs one step: rows to logits [n_samples, n_vocab] f32, valid until the next call. `slots` u8 [max_slots,
  /// sizeof(SlotState)].
  TensorView forward(Backend& backend, const StepView& step, TensorView slots, std::span<KvStorage* const> kv_of_group);

 private:
  class Workspace;
  ModelConfig config_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace baton
