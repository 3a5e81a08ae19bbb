/// The tensors of a checkpoint that each part of a model is made from, and what a rank holds of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

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

/// Norms that the layer does not have are missing.
struct LayerTensors {
  std::optional<NormTensors> attention_norm, q_norm, k_norm, attention_post_norm;
  LinearTensors qkv, attention_out;
  std::optional<NormTensors> feed_forward_norm, feed_forward_post_norm;
  LinearTensors up, down;                             ///< empty with experts
  LinearTensors router;                               ///< empty without experts
  std::vector<LinearTensors> expert_up, expert_down;  ///< by expert
};

/// The functions take the whole model's spec.
LayerTensors layer_tensors(const ModelSpec& whole, ModelRank rank, std::size_t layer);
LinearTensors embedding_tensors(const ModelSpec& whole, ModelRank rank);
NormTensors final_norm_tensors(const ModelSpec& whole);
/// The weight is the embedding's if the embeddings are tied.
LinearTensors lm_head_tensors(const ModelSpec& whole, ModelRank rank);

/// All parts of tensors that a rank holds, in loading order. A tied output layer has none but its bias.
std::vector<TensorPart> tensor_parts(const ModelSpec& whole, ModelRank rank);

}  // namespace baton
