/// The table of model architectures: one row each, naming the tensors of its checkpoints and what its config must say.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace baton {

/// Names of a checkpoint's tensors; "{}" stands for the number of the layer.
struct TensorNames {
  std::string_view embedding;          ///< [n_vocab, d_model]
  std::string_view attention_norm;     ///< [d_model]
  std::string_view q;                  ///< [n_heads * head_dim, d_model]
  std::string_view k;                  ///< [n_kv_heads * head_dim, d_model]
  std::string_view v;                  ///< [n_kv_heads * head_dim, d_model]
  std::string_view attention_out;      ///< [d_model, n_heads * head_dim]
  std::string_view feed_forward_norm;  ///< [d_model]
  std::string_view gate;               ///< [d_ff, d_model]
  std::string_view up;                 ///< [d_ff, d_model]
  std::string_view down;               ///< [d_model, d_ff]
  std::string_view final_norm;         ///< [d_model]
  std::string_view lm_head;            ///< [n_vocab, d_model]; absent where the embeddings are tied
  std::string_view ignored_suffix;     ///< tensors with this end hold what is computed anyway
};

/// A pre-norm decoder of RMSNorm, rotary attention with grouped heads and a gated feed-forward part. What the rows have in
/// common is computed by decoder.cpp; a row whose arithmetic differs brings its option with it.
struct Architecture {
  std::string_view name;        ///< as in config.json's `architectures`
  std::string_view model_type;  ///< as in config.json's `model_type`
  std::string_view activation;  ///< the only `hidden_act` it may have
  TensorNames tensors;
};

std::span<const Architecture> known_architectures();

/// The row called `name`; valid for ever. The error (unsupported) lists the names that are known.
Result<const Architecture*> find_architecture(std::string_view name);

/// `pattern` with the layer's number in place of "{}".
std::string tensor_name(std::string_view pattern, int layer);

}  // namespace baton
