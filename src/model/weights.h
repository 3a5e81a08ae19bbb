/// A model's weights: which tensors a checkpoint must hold, and loading them into a backend.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor.h"
#include "io/safetensors.h"
#include "kernels/backend.h"
#include "model/config.h"

namespace baton {

/// One decoder layer, in the backend's memory.
struct LayerWeights {
  ConstTensorView attention_norm;               ///< [d_model] f32
  std::unique_ptr<PackedMatrix> qkv;            ///< [(n_heads + 2 n_kv_heads) * head_dim, d_model]: queries, keys, values
  std::unique_ptr<PackedMatrix> attention_out;  ///< [d_model, n_heads * head_dim]
  ConstTensorView feed_forward_norm;            ///< [d_model] f32
  std::unique_ptr<PackedMatrix> gate_up;        ///< [2 d_ff, d_model]: gate, then up
  std::unique_ptr<PackedMatrix> down;           ///< [d_model, d_ff]
};

/// All weights of a model. The views are of memory that `buffers` own.
struct ModelWeights {
  DType dtype = DType::f32;   ///< the matrices' dtype, and that of the activations they multiply
  ConstTensorView embedding;  ///< [n_vocab, d_model] of `dtype`
  std::vector<LayerWeights> layers;
  ConstTensorView final_norm;             ///< [d_model] f32
  std::unique_ptr<PackedMatrix> lm_head;  ///< [n_vocab, d_model]; made from the embedding where the two are tied
  std::vector<Buffer> buffers;

  /// Memory that all of them take on the backend.
  std::size_t size_bytes() const;
};

/// A tensor that a checkpoint must hold.
struct ExpectedTensor {
  std::string name;
  Shape shape;
};

/// The tensors of a checkpoint for `config`, in the order in which they are loaded. `config.architecture` must be known.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

/// Memory that loading and holding all weights takes: what ModelWeights::size_bytes() will say if the backend packs without
/// padding, and, beside it on the host, the largest of what is loaded at once.
struct WeightBytes {
  std::int64_t held = 0;
  std::int64_t staged = 0;
};
WeightBytes weight_bytes(const ModelConfig& config, DType dtype);

/// Whether the output layer of the checkpoint is the embedding: as `config` says, unless it says so and the checkpoint
/// holds an output layer with other contents. That one is then the output layer, with a warning, as in Transformers 5.
/// Errors: those of reading the two tensors.
Result<bool> ties_embeddings(const ModelConfig& config, const Checkpoint& checkpoint);

/// Checks every shape before anything is loaded, then fuses q, k, v and gate, up, converts to `dtype` (f32 or bf16; the norms
/// to f32) and packs. Reads each tensor once and gives its pages back. Tensors that nobody expects are logged in one
/// line, and so are matrices that lose precision. `config.tie_embeddings` must be what ties_embeddings says.
/// Errors: not_found and invalid_data name the tensor, the number of others missing, or both shapes; out_of_memory.
Result<ModelWeights> load_weights(const ModelConfig& config, const Checkpoint& checkpoint, Backend& backend, DType dtype);

/// Random weights of the same shapes (`--load-format dummy`): speed without a checkpoint. The same seed gives the same weights.
/// Scaled so that activations stay near 1 and logits are near normally distributed.
Result<ModelWeights> random_weights(const ModelConfig& config, Backend& backend, DType dtype, std::uint64_t seed);

}  // namespace baton
