/// A model's weights: lists the tensors that a checkpoint must hold and loads them into a backend.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor.h"
#include "io/safetensors.h"
#include "kernels/backend.h"
#include "model/layer_parts.h"
#include "model/linear.h"
#include "model/source/kv_scales.h"
#include "model/source/rounding.h"
#include "model/source/source.h"
#include "model/spec.h"

namespace baton {

struct NormWeights {
  ConstTensorView weight;  ///< [d_model] f32, including NormSpec::weight_offset
  ConstTensorView bias;    ///< [width] f32, or no data
};

/// One decoder layer, in the backend's memory: with several ranks this rank's part (split.h).
using LayerWeights = LayerParts<NormWeights, Linear, GroupedLinear, HeadLinear>;

/// The layer that drafts tokens.
using MtpWeights = MtpParts<NormWeights, Linear, LayerWeights>;

/// All weights of a model. `buffers` own the memory that the views refer to.
struct ModelWeights {
  DType dtype = DType::f32;   ///< of the dense matrices and of the activations that matrices multiply
  ConstTensorView embedding;  ///< [n_vocab, d_model / world size] of `dtype`
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp = {};  ///< with ModelSpec::uses_mtp
  NormWeights final_norm;
  Linear lm_head;  ///< d_model to n_vocab, or to gathered_width; made from the embedding if they are tied
  std::vector<Buffer> buffers;
  KvScales kv_scales = {};   ///< of a cache in 8 bits
  bool has_f8_rows = false;  ///< matrices that take rows in 8 bits (kernels/ops.h) get them
  bool has_int8_x = false;   ///< some matrices were packed with StoredMatrix::has_int8_x

  /// Names of the matrices that are dense, with "*" for numbers; of experts those of the first.
  std::set<std::string> dense_modules;

  /// Memory of all weights on the backend.
  std::size_t size_bytes() const;
  /// The schemes of the layers' matrices, the largest part first: "int4", "int4 and int8", or the dtype where all are dense.
  std::string scheme_text() const;
};

/// Whether some rows can be in 8 bits (kernels/ops.h): outputs of RMS norms, gated activations and gated blocks, for matrices that
/// take them.
bool takes_f8_rows(const ModelSpec& spec, const ModelWeights& weights);

/// The tensors that a checkpoint must hold for a whole model, in loading order, each once.
std::vector<ExpectedTensor> expected_tensors(const ModelSpec& spec);

/// Checks that `rank` can load the weights of `spec`, the whole model's, from `checkpoint`, and round them, as far as names, shapes
/// and types tell: nothing is read. load_weights begins with it. Errors: those of SafetensorsSource::check_tensors, of
/// RoundingSource::form_of and of stacked_form.
Result<void> check_weights(const ModelSpec& spec, const Checkpoint& checkpoint, ModelRank rank, const WeightRounding& rounding);

/// Memory for loading and holding a rank's weights of the whole model `spec`: the value that ModelWeights::size_bytes() will have
/// if the backend packs without padding (biases count as f32), and the largest host memory that loading needs at one time.
/// Matrices are stored as in `checkpoint`, or as the configuration states without it, and then rounded.
struct WeightBytes {
  std::int64_t held = 0;
  std::int64_t staged = 0;
  std::map<WeightScheme, std::int64_t> held_as = {};  ///< the parts of `held`; embedding, norms and biases are dense
  bool has_integers = false;                          ///< some matrices, experts' aside, are in int8 or int4

  /// Memory of the backend that must be free before loading. `is_host`: it is the host's, too.
  std::int64_t needed(bool is_host) const { return held + (is_host ? staged : 0); }
};
WeightBytes weight_bytes(const ModelSpec& spec, DType dtype, ModelRank rank, const Checkpoint* checkpoint = nullptr,
                         const WeightRounding& rounding = {});

/// Checks all shapes before it loads anything. Then fuses q, k, v and gate, up, converts to `dtype` (f32, bf16 or f16;
/// norms to f32; other matrices than dense ones keep their bits, but those of heads become dense) and packs, with `n_threads` threads (0: as many as
/// are available). With `rounding`, all dense matrices but unrounded_matrices are rounded, from the values of the checkpoint. Of
/// several ranks, the backend's reads its parts alone. Releases the pages that were read. `spec` is the whole model's, fitted to the
/// checkpoint (fit_to_checkpoint), and one that split_spec can split. Errors: those of check_weights and of
/// RoundingSource; out_of_memory. `has_int8_x`: matrices in integers, but not experts, round x to 8 bits (StoredMatrix); the
/// backend must be able to.
Result<ModelWeights> load_weights(const ModelSpec& spec, const Checkpoint& checkpoint, Backend& backend, DType dtype,
                                  int n_threads, const WeightRounding& rounding = {}, bool has_int8_x = false);

/// Makes random weights of the same shapes (`--load-format dummy`), in the scheme that the configuration states, see RandomSource.
/// The ranks' weights together are those of one rank. Errors: those of RandomSource and RoundingSource; out_of_memory.
Result<ModelWeights> random_weights(const ModelSpec& spec, Backend& backend, DType dtype, std::uint64_t seed, int n_threads,
                                    const WeightRounding& rounding = {}, bool has_int8_x = false);

}  // namespace baton
