/// A decoder model: its weights on a backend, and the loop over its layers.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "kernels/backend.h"
#include "model/spec.h"
#include "model/workspace.h"

namespace baton {

struct LayerStep;
struct ModelWeights;

/// The shape of the storage of states for `n_slots` sequences, with matrices of type `dtype`; no layers if the model has no
/// recurrent ones.
StateShape state_shape(const ModelSpec& spec, std::int32_t n_slots, DType dtype);

/// The kind of recurrent layers that a backend does not compute for the spec, for people; empty if it computes all.
std::string_view kind_not_computed(const ModelSpec& spec, const BackendCapabilities& capabilities);

/// A decoder as its spec describes it, with weights packed by one backend.
///
/// Thread: engine only. `forward` allocates nothing.
class Model {
 public:
  /// Both are those of this rank: see split_spec.
  Model(ModelSpec spec, ModelWeights weights);
  ~Model();

  const ModelSpec& spec() const;
  DType weight_dtype() const;
  /// See ModelWeights::scheme_text.
  std::string weight_scheme() const;
  /// Of what the layers' matrices multiply: "float8_e4m3" or "int8" where some may multiply rows in 8 bits, otherwise
  /// the weights' dtype.
  std::string activation_scheme() const;
  std::size_t weight_bytes() const;
  /// The shape of the KV storage of each layer group, for `n_blocks` blocks; in 8 bits with the checkpoint's scales.
  std::vector<KvShape> kv_shapes(std::int32_t n_blocks, std::int32_t block_len, DType dtype) const;
  /// The shape that each layer group's attention is planned for.
  std::vector<AttentionShape> attention_shapes(std::int32_t block_len, DType kv_dtype) const;
  /// Without the layer for drafts, which kv_shapes has too.
  std::int32_t n_layers_of_group(int group) const;
  /// baton::state_shape of the spec.
  StateShape state_shape(std::int32_t n_slots, DType dtype) const;

  /// Allocates the workspace and the RoPE tables. Must be called once, before forward.
  Result<void> prepare(Backend& backend, const StepBounds& bounds);

  /// Runs the forward pass of one step. Returns logits [n_samples, n_vocab] f32, valid until the next call. `slots` is
  /// u8 [max_slots, sizeof(SlotState)]; `states` is null if state_shape has no layers.
  TensorView forward(Backend& backend, const StepView& step, TensorView slots, std::span<KvStorage* const> kv_of_group,
                     StateStorage* states = nullptr);

  /// Runs the layer for drafts (MtpSpec) over the rows of `step`, which must use it: row r computes from its token and from row
  /// hidden_rows[r], i32 [n_rows], of what the call before left: of `forward` its last hidden states, of this function what it
  /// gives for drafts. A forward of other rows between the two would overwrite them. Keys and values are stored where the step says.
  /// Returns logits [n_samples, n_vocab] f32, valid until the next call.
  TensorView draft(Backend& backend, const StepView& step, TensorView slots, const ConstTensorView& hidden_rows,
                   std::span<KvStorage* const> kv_of_group);

 private:
  LayerStep begin_step(Backend& backend, const StepView& step, std::span<KvStorage* const> kv_of_group,
                       StateStorage* states) const;
  TensorView logits_of(const LayerStep& run, const TensorView& normed) const;
  void embed(const LayerStep& run, const TensorView& token_ids) const;

  ModelSpec spec_;
  std::vector<const LayerSpec*> first_of_group_;  ///< a layer of each group; all layers of a group have the same shape
  std::vector<std::int32_t> n_layers_of_group_;
  std::vector<std::int32_t> index_in_group_;  ///< each layer's index among those of its group, or among the recurrent ones
  std::int32_t mtp_index_ = 0;                ///< the same of the layer for drafts
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace baton
