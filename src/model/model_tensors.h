/// The tensors of a checkpoint that each part of a model is made from, and what a rank holds of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/layer_parts.h"
#include "model/linear.h"
#include "model/source/source.h"
#include "model/spec.h"

namespace baton {

/// Matrices [n_i, k] that are stacked in this order and multiplied as one, with their biases.
struct LinearTensors {
  std::vector<TensorPart> weights;
  std::vector<TensorPart> biases;  ///< one for each weight, or none
  Linear::Split split = Linear::Split::none;

  /// Rows of all weights.
  std::int64_t n() const;
  /// Elements of all weights.
  std::int64_t n_elements() const;
};

struct NormTensors {
  TensorPart weight;
  std::optional<TensorPart> bias;
  float weight_offset = 0;
};

/// A matrix for each head.
struct HeadTensors {
  std::vector<TensorPart> heads;  ///< of equal shapes
  bool is_transposed = false;     ///< loading transposes each
};

/// The tensors of one layer; what it does not have is empty.
using LayerTensors = LayerParts<std::optional<NormTensors>, LinearTensors, std::vector<LinearTensors>, HeadTensors>;

using MtpTensors = MtpParts<std::optional<NormTensors>, LinearTensors, LayerTensors>;

/// The functions take the whole model's spec.
LayerTensors layer_tensors(const ModelSpec& whole, ModelRank rank, std::size_t layer);
/// Of a model that uses its layer for drafts, which one rank holds.
MtpTensors mtp_tensors(const ModelSpec& whole);
LinearTensors embedding_tensors(const ModelSpec& whole, ModelRank rank);
NormTensors final_norm_tensors(const ModelSpec& whole);
/// The weight is the embedding's if the embeddings are tied.
LinearTensors lm_head_tensors(const ModelSpec& whole, ModelRank rank);

/// Calls `visit` with the tensors of each weight that a rank holds, in loading order: as those of a norm (optional), of a
/// matrix, or of a matrix for each expert or head. What the model does not have is empty.
template <class Visit>
void for_each_weight(const ModelSpec& whole, ModelRank rank, const Visit& visit) {
  visit(embedding_tensors(whole, rank));
  for (std::size_t i = 0; i < whole.layers.size(); ++i) visit_layer(visit, layer_tensors(whole, rank, i));
  if (whole.used_mtp() != nullptr) visit_mtp(visit, mtp_tensors(whole));
  visit(std::optional(final_norm_tensors(whole)));
  visit(lm_head_tensors(whole, rank));
}

/// Names of the matrices that stay dense where weights are rounded: the embedding, routers, gates of recurrent layers, matrices
/// of heads, the projection of MtpSpec and, unless `rounds_lm_head`, the output layer. A tied one that is rounded has the embedding's name, which then is absent.
std::set<std::string> unrounded_matrices(const ModelSpec& whole, bool rounds_lm_head);

/// All parts of tensors that a rank holds, in loading order. A tied output layer has none but its bias.
std::vector<TensorPart> tensor_parts(const ModelSpec& whole, ModelRank rank);

}  // namespace baton
