/// What a model computes, as data: one LayerSpec for each layer. A family (model/families/) fills it from a
/// config.json; layer.h runs it; weights.h derives from it which tensors a checkpoint must hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/ids.h"

namespace baton {

/// How the rotation frequencies of RoPE are changed for contexts longer than those trained on.
struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;                       ///< linear, llama3: frequencies are divided by it
  double low_freq_factor = 1;              ///< llama3
  double high_freq_factor = 4;             ///< llama3; larger than low_freq_factor
  std::int32_t original_max_position = 0;  ///< llama3: the context length trained on, in tokens
};

/// One table of rotations, which any number of layers use.
struct RopeSpec {
  std::int32_t rotary_dim = 0;  ///< the first elements of a head, which are rotated; even and at least 2
  double theta = 10000;
  RopeScaling scaling;
};

/// The norm before a part of a layer, or before the output layer.
struct NormSpec {
  enum class Kind { rms, layer };
  Kind kind = Kind::rms;
  float epsilon = 1e-6f;
  float weight_offset = 0;  ///< what is added to the stored weights
  bool has_bias = false;    ///< a layer norm's only
};

struct AttentionSpec {
  std::int32_t n_heads = 0;  ///< query heads, a multiple of n_kv_heads
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t window = 0;  ///< a row sees its last `window` positions, its own among them; 0: all
  float scale = 0;          ///< what query times key is multiplied by
  float softcap = 0;        ///< bound of the scaled scores; 0: none
  std::int32_t rope = 0;    ///< index into ModelSpec::ropes
  bool has_qkv_bias = false;
  bool has_out_bias = false;

  std::int64_t q_width() const { return std::int64_t{n_heads} * head_dim; }
  std::int64_t kv_width() const { return std::int64_t{n_kv_heads} * head_dim; }
  std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

struct FeedForwardSpec {
  /// gated_silu: down(silu(gate(x)) * up(x)).  gelu: down(gelu(up(x))), exact; gelu_tanh: the same by the tanh
  /// approximation.
  enum class Kind { gated_silu, gelu, gelu_tanh };
  Kind kind = Kind::gated_silu;
  std::int32_t d_ff = 0;
  bool has_bias = false;  ///< of all its matrices

  bool is_gated() const { return kind == Kind::gated_silu; }
  /// Outputs of the first matrix: up, or gate and up.
  std::int64_t up_width() const { return (is_gated() ? 2 : 1) * std::int64_t{d_ff}; }
};

/// Attention, then feed-forward, each behind its norm and each added to the residual stream. In a parallel block
/// both take the output of one norm, and the layer has no second one.
struct LayerSpec {
  NormSpec norm;
  bool is_parallel = false;
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  std::int32_t group = 0;  ///< layer group, see group_layers
};

/// Names of a checkpoint's tensors without their last part (".weight", ".bias"); "{}" stands for the number of the
/// layer. A name that the spec has no use for is empty. The characters are literals.
struct TensorNames {
  std::string_view embedding;          ///< [n_vocab, d_model]
  std::string_view attention_norm;     ///< [d_model]; of both parts in a parallel block
  std::string_view q;                  ///< [n_heads * head_dim, d_model]
  std::string_view k;                  ///< [n_kv_heads * head_dim, d_model]
  std::string_view v;                  ///< [n_kv_heads * head_dim, d_model]
  std::string_view attention_out;      ///< [d_model, n_heads * head_dim]
  std::string_view feed_forward_norm;  ///< [d_model]
  std::string_view gate;               ///< [d_ff, d_model]; where the feed-forward part is gated
  std::string_view up;                 ///< [d_ff, d_model]
  std::string_view down;               ///< [d_model, d_ff]
  std::string_view final_norm;         ///< [d_model]
  std::string_view lm_head;            ///< [n_vocab, d_model]; absent where the embeddings are tied
  std::string_view ignored_suffix;     ///< tensors with this end hold what is computed anyway
};

/// A decoder. All sizes are positive and small enough that their products fit 63 bits; there is at least one layer.
/// Layers of one group have the same heads, head size and window.
struct ModelSpec {
  std::string family;  ///< as in config.json's `architectures`
  std::int32_t d_model = 0;
  std::int32_t n_vocab = 0;
  std::int32_t max_position = 0;  ///< positions the model was trained for, in tokens
  std::vector<LayerSpec> layers;
  std::vector<RopeSpec> ropes;
  NormSpec final_norm;
  bool tie_embeddings = false;  ///< the output layer's matrix is the embedding table
  bool has_lm_head_bias = false;
  TensorNames names;
  DType dtype = DType::f32;  ///< of the checkpoint, as the file says it; f32 where it does not
  std::optional<TokenId> bos_token_id;
  std::vector<TokenId> eos_token_ids;  ///< each in [0, n_vocab)

  std::int64_t n_parameters() const;
  /// Largest group number plus one.
  std::int32_t n_groups() const;
};

/// Gives layers with the same heads, head size and window one group number, in the order of their first layers, from
/// 0 on. Each group has a KV cache and an attention plan of its own.
void group_layers(ModelSpec& spec);

}  // namespace baton
