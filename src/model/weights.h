/// A model's weights: which tensors a checkpoint must hold, and loading them into a backend.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "core/tensor.h"
#include "io/safetensors.h"
#include "kernels/backend.h"
#include "model/linear.h"
#include "model/source/source.h"
#include "model/spec.h"

namespace baton {

struct NormWeights {
  ConstTensorView weight;  ///< [d_model] f32, NormSpec::weight_offset added
  ConstTensorView bias;    ///< [d_model] f32, or no data
};

/// One decoder layer, in the backend's memory.
struct LayerWeights {
  NormWeights attention_norm;     ///< of both parts in a parallel block
  Linear qkv;                     ///< d_model to queries, keys, values
  Linear attention_out;           ///< queries' width to d_model
  NormWeights feed_forward_norm;  ///< empty in a parallel block
  Linear up;                      ///< d_model to d_ff; where the part is gated, to gate and then up
  Linear down;                    ///< d_ff to d_model
};

/// All weights of a model. The views are of memory that `buffers` own.
struct ModelWeights {
  DType dtype = DType::f32;   ///< the matrices' dtype, and that of the activations they multiply
  ConstTensorView embedding;  ///< [n_vocab, d_model] of `dtype`
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  Linear lm_head;  ///< d_model to n_vocab; made from the embedding where the two are tied
  std::vector<Buffer> buffers;

  /// Memory that all of them take on the backend.
  std::size_t size_bytes() const;
};

/// The tensors of a checkpoint for `spec`, in the order in which they are loaded.
std::vector<ExpectedTensor> expected_tensors(const ModelSpec& spec);

/// Memory that loading and holding all weights takes: what ModelWeights::size_bytes() will say if the backend packs
/// without padding (biases are counted as f32), and, beside it on the host, the largest of what is loaded at once.
struct WeightBytes {
  std::int64_t held = 0;
  std::int64_t staged = 0;
};
WeightBytes weight_bytes(const ModelSpec& spec, DType dtype);

/// Checks every shape before anything is loaded, then fuses q, k, v and gate, up, converts to `dtype` (f32 or bf16;
/// norms to f32) and packs, with `n_threads` (0: as many as are available). Reads each tensor once and gives its
/// pages back. `spec.tie_embeddings` must be what ties_embeddings says. Errors: those of SafetensorsSource::verify;
/// out_of_memory.
Result<ModelWeights> load_weights(const ModelSpec& spec, const Checkpoint& checkpoint, Backend& backend, DType dtype,
                                  int n_threads);

/// Random weights of the same shapes (`--load-format dummy`), see RandomSource.
Result<ModelWeights> random_weights(const ModelSpec& spec, Backend& backend, DType dtype, std::uint64_t seed, int n_threads);

}  // namespace baton
