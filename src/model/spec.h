/// A model as data: one LayerSpec for each layer. A family (model/families/) makes it from a config.json, layer.h runs
/// it, and weights.h derives from it which tensors a checkpoint must hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/ids.h"
#include "kernels/ops.h"
#include "model/quantization.h"

namespace baton {

/// How the rotations of RoPE are changed for contexts longer than the training contexts. The formulas are in rope.h.
struct RopeScaling {
  enum class Kind { none, linear, dynamic, llama3, yarn, longrope };
  Kind kind = Kind::none;
  double factor = 1;                       ///< of all but longrope: new length divided by original length; at least 1
  double low_freq_factor = 1;              ///< llama3
  double high_freq_factor = 4;             ///< llama3; larger than low_freq_factor
  std::int32_t original_max_position = 0;  ///< of all but linear: context length in training, in tokens
  double beta_fast = 32;                   ///< yarn: pairs that turn more often within the original length are kept
  double beta_slow = 1;                    ///< yarn: pairs that turn less often are divided; at most beta_fast
  bool truncate = true;                    ///< yarn: round the range between the two to whole pairs
  double attention_factor = 1;             ///< yarn, longrope: factor of cosines and sines
  double score_factor = 1;                 ///< yarn: factor of the scores of latent attention
  std::vector<double> short_factors = {};  ///< longrope: [rotary_dim / 2], divisors up to the original length
  std::vector<double> long_factors = {};   ///< longrope: [rotary_dim / 2], divisors beyond it
};

/// A table of rotations; several layers may use it.
struct RopeSpec {
  std::int32_t rotary_dim = 0;  ///< number of leading elements of a head that are rotated; even and at least 2
  double theta = 10000;
  RopeScaling scaling;
  /// Elements 2i and 2i + 1 of a head, below rotary_dim, are a pair in the checkpoint, instead of i and i + rotary_dim / 2.
  /// Loading reorders the rows of queries and keys, which changes no score.
  bool is_interleaved = false;
  bool turns = true;  ///< otherwise all angles are 0
  /// Rotated queries at position p are multiplied by 1 + query_beta * ln(1 + floor((p + query_shift) / query_length)); 0: by
  /// nothing.
  double query_beta = 0;
  std::int32_t query_length = 0;  ///< in tokens; at least 1 where query_beta is not 0
  std::int32_t query_shift = 0;
};

/// A norm: before or after a block of a layer, of queries and keys, or before the output layer.
struct NormSpec {
  enum class Kind { rms, layer };
  Kind kind = Kind::rms;
  float epsilon = 1e-6f;
  float weight_offset = 0;  ///< added to the stored weights
  bool has_bias = false;    ///< layer norm only
};

/// RMS norms of queries and keys, over each head or over all heads of a row.
enum class QkNorm { none, head, width };

/// Multi-head latent attention: a matrix for each head expands the vector of a token, normed, to that head's key and value. The
/// key's rotated elements are the same for all heads and come from the residual stream. Only this vector and these elements are
/// stored, as one key whose beginning is the value (KvShape::latent_dim): the matrices multiply queries and outputs instead.
/// The queries and the vector have norms, the first only with q_rank.
struct LatentSpec {
  std::int32_t q_rank = 0;         ///< width of the vector that queries are expanded from; 0: the residual stream
  std::int32_t rank = 0;           ///< width of the vector that keys and values are expanded from
  std::int32_t nope_dim = 0;       ///< elements of a head's query and key that are not rotated
  std::int32_t rope_dim = 0;       ///< elements after them, which are
  std::int32_t v_dim = 0;          ///< elements of a head's value
  bool rotates_neighbours = true;  ///< elements 2i and 2i + 1 are a pair, instead of i and i + rope_dim / 2

  std::int32_t q_dim() const { return nope_dim + rope_dim; }
  bool operator==(const LatentSpec&) const = default;
};

struct AttentionSpec {
  static constexpr std::int32_t kNoRope = -1;

  std::int32_t n_heads = 0;               ///< query heads, a multiple of n_kv_heads
  std::int32_t n_kv_heads = 0;            ///< 1 with `latent`
  std::int32_t head_dim = 0;              ///< of stored keys: with `latent` its rank + rope_dim
  std::optional<LatentSpec> latent = {};  ///< with it, no other norms, no biases and a rotation
  std::int32_t window = 0;                ///< a row sees its last `window` positions, including its own; 0: all
  bool is_chunked = false;                ///< of these it sees those from the last multiple of `window` on
  float scale = 0;                        ///< factor of query times key
  float softcap = 0;                      ///< bound of the scaled scores; 0: no bound
  std::int32_t rope = 0;                  ///< index into ModelSpec::ropes; kNoRope: queries and keys are not rotated
  QkNorm qk_norm = QkNorm::none;
  NormSpec qk_norm_spec;  ///< of these norms, or those of `latent`; Kind::rms without a bias
  bool has_qk_norm_weights = true;
  bool norms_rotated = false;  ///< these norms, over each head, come after the rotation, whose attention factor is 1
  bool has_qkv_bias = false;
  bool has_out_bias = false;
  bool has_output_gate = false;  ///< what the output matrix reads is multiplied by sigmoid(gate(x)) first; not with `latent`
  bool has_sinks = false;  ///< each query head has a logit that joins its rows' softmax without a value (AttentionArgs::sinks)

  /// Of the queries that attention multiplies by stored keys.
  std::int64_t q_width() const { return std::int64_t{n_heads} * head_dim; }
  std::int64_t kv_width() const { return std::int64_t{n_kv_heads} * head_dim; }
  /// Outputs of the matrix that reads the residual stream.
  std::int64_t qkv_width() const {
    if (!latent) return q_width() + 2 * kv_width();
    return (latent->q_rank > 0 ? latent->q_rank : latent_q_width()) + head_dim;
  }
  /// Of the queries of all heads before they are multiplied by the heads' matrices.
  std::int64_t latent_q_width() const { return std::int64_t{n_heads} * latent->q_dim(); }
  /// Elements of a stored value.
  std::int32_t v_dim() const { return latent ? latent->rank : head_dim; }
  /// Elements that the cache has of a token.
  std::int64_t cached_width() const { return latent ? kv_width() : 2 * kv_width(); }
  /// Inputs of the output matrix.
  std::int64_t out_width() const { return n_heads * out_dim(); }
  std::int64_t out_dim() const { return latent ? latent->v_dim : head_dim; }
  /// Widths of the norms' weights; 0 without norms.
  std::int64_t q_norm_width() const { return latent ? latent->q_rank : norm_width(q_width()); }
  std::int64_t k_norm_width() const { return latent ? latent->rank : norm_width(kv_width()); }

 private:
  std::int64_t norm_width(std::int64_t all_heads) const {
    if (qk_norm == QkNorm::none || !has_qk_norm_weights) return 0;
    return qk_norm == QkNorm::head ? head_dim : all_heads;
  }
};

/// Gated DeltaNet, a recurrent block (arXiv:2412.06464): queries, keys and values go through a short convolution and the gated delta
/// rule (ops.h), whose outputs are normed over each head and multiplied by a gate.
struct GatedDeltaSpec {
  std::int32_t n_key_heads = 0;
  std::int32_t n_heads = 0;  ///< of values and states; a multiple of n_key_heads
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  std::int32_t n_taps = 0;  ///< length of the convolution's kernel, in tokens
  NormSpec norm;            ///< of outputs; Kind::rms without an offset or a bias

  std::int64_t keys_width() const { return std::int64_t{n_key_heads} * key_dim; }
  std::int64_t values_width() const { return std::int64_t{n_heads} * value_dim; }
  /// Channels of the convolution: queries, keys and values.
  std::int64_t qkv_width() const { return 2 * keys_width() + values_width(); }
  /// Outputs of the matrix that reads the residual stream: these and the output's gate.
  std::int64_t in_width() const { return qkv_width() + values_width(); }
  bool operator==(const GatedDeltaSpec& other) const {
    return n_key_heads == other.n_key_heads && n_heads == other.n_heads && key_dim == other.key_dim &&
           value_dim == other.value_dim && n_taps == other.n_taps && norm.epsilon == other.norm.epsilon;
  }
};

/// A gated short convolution, a recurrent block (arXiv:2511.23404): ConvKind::gated of what a matrix makes of the residual stream.
struct ShortConvSpec {
  std::int32_t n_channels = 0;
  std::int32_t n_taps = 0;  ///< length of the kernel, in tokens
  bool has_bias = false;    ///< of both matrices and of the convolution
  bool operator==(const ShortConvSpec&) const = default;
};

/// Mamba-2, a recurrent block (arXiv:2405.21060): x, B and C go through a short convolution and the scan (ops.h), whose outputs are
/// multiplied by a gate and normed over each group.
struct Mamba2Spec {
  std::int32_t n_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t n_groups = 0;  ///< of B and C; divides n_heads
  std::int32_t state_dim = 0;
  std::int32_t n_taps = 0;  ///< length of the convolution's kernel, in tokens
  bool has_conv_bias = false;
  bool has_bias = false;           ///< of both matrices
  std::int32_t n_norm_groups = 0;  ///< groups that outputs are normed over; divides inner_width
  NormSpec norm;                   ///< of outputs; Kind::rms without an offset or a bias

  std::int64_t inner_width() const { return std::int64_t{n_heads} * head_dim; }
  /// Channels of the convolution: x, B and C.
  std::int64_t conv_width() const { return inner_width() + 2 * std::int64_t{n_groups} * state_dim; }
  /// Outputs of the matrix that reads the residual stream: the gate, these, and a time step for each head.
  std::int64_t in_width() const { return inner_width() + conv_width() + n_heads; }
  bool operator==(const Mamba2Spec& other) const {
    return n_heads == other.n_heads && head_dim == other.head_dim && n_groups == other.n_groups &&
           state_dim == other.state_dim && n_taps == other.n_taps && has_conv_bias == other.has_conv_bias &&
           has_bias == other.has_bias && n_norm_groups == other.n_norm_groups && norm.epsilon == other.norm.epsilon;
  }
};

/// A feed-forward block, or several (experts) of which each row passes through some, and perhaps through one more.
struct FeedForwardSpec {
  /// gated_*: down(f(gate(x)) * up(x)), f of GateKind; the others down(f(up(x))), f of ActivationKind.
  enum class Kind { gated_silu, gated_gelu, gated_gelu_tanh, gated_clamped_silu, gelu, gelu_tanh, relu_squared };
  Kind kind = Kind::gated_silu;
  std::int32_t d_ff = 0;  ///< of each expert
  float gate_alpha = 1;   ///< of gated_clamped_silu
  float gate_limit = 0;   ///< of gated_clamped_silu, over 0
  bool has_bias = false;  ///< of all its matrices, those of experts and the router among them
  /// 0: one block for all rows. Otherwise a router, a matrix, gives each row a logit for each expert;
  /// the block's output is the weighted sum of the outputs of the experts that the row's logits choose.
  std::int32_t n_experts = 0;
  std::int32_t n_experts_per_row = 0;  ///< at most n_experts
  RoutingRule routing = {};            ///< how logits become choices and weights
  bool has_choice_bias = false;        ///< experts are chosen by their scores and a bias
  bool weighs_inputs = false;          ///< a row's one expert reads the row times its weight, and its output has none
  std::int32_t d_ff_shared = 0;        ///< of the shared expert, a block whose output is added for all rows; 0: none
  bool has_shared_gate = false;        ///< its output is multiplied by the sigmoid of one more logit of the row

  bool has_experts() const { return n_experts > 0; }
  bool has_shared_expert() const { return d_ff_shared > 0; }
  /// Logits that the router gives a row: of the experts, then of the shared expert's gate.
  std::int32_t n_router_logits() const { return n_experts + (has_shared_gate ? 1 : 0); }
  /// Width of the block that all rows pass through; 0 if there is none.
  std::int32_t common_d_ff() const { return has_experts() ? d_ff_shared : d_ff; }
  /// Feed-forward blocks that a row passes through.
  std::int64_t blocks_per_row() const { return has_experts() ? n_experts_per_row : 1; }
  bool is_gated() const { return kind < Kind::gelu; }
  /// Width of the first matrix's output in a block of width `width`: up, or gate and up.
  std::int64_t up_width_of(std::int32_t width) const { return (is_gated() ? 2 : 1) * std::int64_t{width}; }
  std::int64_t up_width() const { return up_width_of(d_ff); }
};

/// Attention or a recurrent block, then feed-forward: x += residual_scale * post_norm(block(pre_norm(x))) for each. In a
/// parallel block both read the output of one pre-norm, and the layer has no second one and no post-norms. A layer may also have
/// only one of the two blocks, with a pre-norm and without a post-norm.
struct LayerSpec {
  static constexpr std::int32_t kNoGroup = -1;

  NormSpec norm;                ///< of all norms of the layer but those of queries and keys
  bool has_pre_norms = true;    ///< without them the blocks read the residual stream itself
  bool has_post_norms = false;  ///< of Kind::rms without a bias
  float residual_scale = 1;
  bool is_parallel = false;
  bool has_mixer = true;                     ///< the first block
  bool has_feed_forward = true;              ///< the second
  AttentionSpec attention;                   ///< counts only where has_attention() is true
  std::optional<GatedDeltaSpec> delta = {};  ///< this, or one of the next two, is in the place of attention; the same in all
  std::optional<ShortConvSpec> conv = {};    ///< layers that have one
  std::optional<Mamba2Spec> mamba2 = {};
  FeedForwardSpec feed_forward;  ///< as it is made, without has_feed_forward
  std::int32_t group = 0;        ///< layer group, see group_layers; kNoGroup without attention

  bool is_recurrent() const { return delta || conv || mamba2; }
  bool has_attention() const { return has_mixer && !is_recurrent(); }
};

/// Names of a checkpoint's tensors without their last part (".weight", ".bias"); "{}" stands for the layer number, a
/// second one for the expert's. A name that the spec does not need is empty. The views refer to string literals.
struct TensorNames {
  std::string_view embedding;       ///< [n_vocab, d_model]
  std::string_view attention_norm;  ///< [d_model], the pre-norm; of both blocks in a parallel block
  /// [n_heads * head_dim, d_model]; with has_output_gate twice as many rows: for each head the query's, then the gate's.
  std::string_view q;
  std::string_view k;                  ///< [n_kv_heads * head_dim, d_model]
  std::string_view v;                  ///< [n_kv_heads * head_dim, d_model]
  std::string_view qkv = {};           ///< q, k and v in one tensor; if not empty, the three names are
  std::string_view q_norm = {};        ///< [head_dim], [n_heads * head_dim] or [q_rank]
  std::string_view k_norm = {};        ///< [head_dim], [n_kv_heads * head_dim] or [rank]
  std::string_view q_a = {};           ///< [q_rank, d_model]; this and the next three of LatentSpec
  std::string_view q_b = {};           ///< [n_heads * q_dim, q_rank]; q without a q_rank, as wide
  std::string_view kv_a = {};          ///< [rank + rope_dim, d_model]
  std::string_view kv_b = {};          ///< [n_heads * (nope_dim + v_dim), rank], head after head
  std::string_view attention_out;      ///< [d_model, n_heads * head_dim]
  std::string_view sinks = {};         ///< [n_heads]; the whole name, which has no last part
  std::string_view recurrent_in = {};  ///< of ShortConvSpec [3 n_channels, d_model], of Mamba2Spec [in_width, d_model]
  std::string_view delta_qkv = {};     ///< [qkv_width, d_model]; this and the next five of GatedDeltaSpec
  std::string_view delta_z = {};       ///< [values_width, d_model], the output's gate
  std::string_view delta_b = {};       ///< [n_heads, d_model]
  std::string_view delta_a = {};       ///< [n_heads, d_model]
  /// If not empty, this and the next are in the place of the four: for each key head rows of its query, its key, its values and
  /// their gates; for each key head b of its value heads, then a.
  std::string_view delta_qkvz = {};
  std::string_view delta_ba = {};
  std::string_view conv = {};                    ///< [channels, 1, n_taps], of recurrent layers as the next five
  std::string_view a_log = {};                   ///< [n_heads]; the whole name, as the next two's
  std::string_view dt_bias = {};                 ///< [n_heads]
  std::string_view skip = {};                    ///< [n_heads], of Mamba2Spec
  std::string_view recurrent_norm = {};          ///< [value_dim] or [inner_width]
  std::string_view recurrent_out = {};           ///< [d_model, width of the block's output]
  std::string_view attention_post_norm = {};     ///< [d_model]
  std::string_view feed_forward_norm;            ///< [d_model], the pre-norm
  std::string_view feed_forward_post_norm = {};  ///< [d_model]
  std::string_view gate;                         ///< [d_ff, d_model]; only if the feed-forward block is gated
  std::string_view up;                           ///< [d_ff, d_model]
  std::string_view gate_up = {};                 ///< gate and up in one tensor; if not empty, the two names are
  std::string_view down;                         ///< [d_model, d_ff]
  std::string_view router = {};                  ///< [n_experts, d_model]
  std::string_view choice_bias = {};             ///< [n_experts]; the whole name, which has no last part
  std::string_view expert_gate = {};             ///< [d_ff, d_model]
  std::string_view expert_up = {};               ///< [d_ff, d_model]
  std::string_view expert_down = {};             ///< [d_model, d_ff]
  /// If not empty, this and expert_down are whole names of tensors of all experts, whose biases have "_bias" at the end:
  /// [n_experts, d_model, 2 d_ff] with the columns of gate and up in turn, and [n_experts, d_ff, d_model].
  std::string_view expert_gate_up = {};
  /// If not empty: expert_gate_up and expert_down of checkpoints that have these, in the place of a tensor for each expert.
  std::string_view other_expert_gate_up = {};
  std::string_view other_expert_down = {};
  bool has_gate_up_in_halves = false;        ///< instead, the columns of gate, then those of up
  bool has_transposed_experts = true;        ///< otherwise [n_experts, 2 d_ff, d_model] and [n_experts, d_model, d_ff]
  std::string_view shared_gate = {};         ///< [d_ff_shared, d_model]
  std::string_view shared_up = {};           ///< [d_ff_shared, d_model]
  std::string_view shared_gate_up = {};      ///< these two in one tensor; if not empty, the two names are
  std::string_view shared_down = {};         ///< [d_model, d_ff_shared]
  std::string_view shared_expert_gate = {};  ///< [1, d_model], of FeedForwardSpec::has_shared_gate
  std::string_view final_norm;               ///< [d_model]
  std::string_view lm_head;                  ///< [n_vocab, d_model]; absent if the embeddings are tied
  std::string_view root = {};                ///< in the place of the leading "model." of a name; empty: no other
  std::string_view ignored_suffix;           ///< tensors whose names end so hold values that are computed anyway
};

/// The name in a checkpoint of `name`, one of `names`, for layer `layer` (any number outside the layers).
std::string checkpoint_name(const TensorNames& names, std::string_view name, std::size_t layer);

/// Where a checkpoint keeps a model that is part of a larger one.
struct TensorRoot {
  std::string_view model;    ///< in the place of the leading "model." of a name
  std::string_view lm_head;  ///< in the place of TensorNames::lm_head
};

/// A layer that drafts tokens (multi-token prediction). From the target's last hidden state at position p, after the final norm, and
/// token p + 1 it computes, with keys and values of its own at p, what gives the logits of token p + 2:
///
///     x = W [norm_e(embedding(token p + 1)) | norm_h(hidden p)]       m = norm_o(layer(x))       logits = lm_head(m)
///
/// A further token is drafted from m in the place of the hidden state. The embedding and the output layer are the model's. Drafts
/// are verified, so whatever the layer's keys and values at a position are, an answer is the same: wrong ones are accepted less often.
struct MtpSpec {
  LayerSpec layer;  ///< with attention; its layer group is one of the model's
  NormSpec norm;    ///< of all three
  /// The layer's tensors have the names of the model's, with this number in the place of "{}" and `root` as TensorNames::root.
  std::size_t number = 0;
  std::string_view root = {};       ///< empty: the model's
  std::string_view embedding_norm;  ///< [d_model]; this and the next three begin with "model.", too
  std::string_view hidden_norm;     ///< [d_model]
  std::string_view projection;      ///< [d_model, 2 d_model], the columns of the embedding first
  std::string_view output_norm;     ///< [d_model]
};

/// One of the processes that hold a model together (tensor parallelism, split.h), or the only one.
struct ModelRank {
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  bool operator==(const ModelRank&) const = default;
};

/// A decoder. All sizes are positive and so small that a product of them fits 63 bits; there is at least one layer.
/// Layers of one group have the same heads, head size and window. Some layers have attention.
struct ModelSpec {
  std::string family;  ///< as in config.json's `architectures`
  std::int32_t d_model = 0;
  std::int32_t n_vocab = 0;
  std::int32_t max_position = 0;  ///< longest context, including the scaling of RoPE, in tokens
  std::vector<LayerSpec> layers;
  std::vector<RopeSpec> ropes;
  NormSpec final_norm;
  bool tie_embeddings = false;  ///< the output layer's matrix is the embedding table
  bool has_lm_head_bias = false;
  float embedding_scale = 1;
  bool rounds_embedding_scale = false;  ///< the scale is rounded to the weights' dtype first
  float logits_scale = 1;
  float logits_softcap = 0;  ///< bound of the scaled logits; 0: no bound
  TensorNames names;
  std::vector<TensorRoot> other_roots;  ///< where the tensors may be instead
  DType dtype = DType::f32;             ///< of the checkpoint: what its config states, else its embedding's (fit_to_checkpoint)
  bool states_dtype = true;             ///< the config does
  std::string_view ignored_prefix = {};  ///< tensors whose names begin so are not loaded
  std::int32_t n_draft_layers = 0;       ///< layers of a checkpoint after these, which only draft tokens and are not loaded
  std::optional<MtpSpec> mtp = {};       ///< what the config says of one; see use_mtp
  bool uses_mtp = false;                 ///< it is loaded and run
  QuantizationSpec quantization;         ///< of the checkpoint's matrices, as its config states
  std::optional<TokenId> bos_token_id;
  std::vector<TokenId> eos_token_ids;  ///< each in [0, n_vocab)
  ModelRank rank;                      ///< the layers' heads and widths are this rank's; everything else is the whole model's

  /// Of a whole model.
  std::int64_t n_parameters() const;
  /// The number of groups: the largest group number plus one.
  std::int32_t n_groups() const;
  /// The first of the recurrent layers, whose blocks are all alike, or null; and how many there are.
  const LayerSpec* recurrent_layer() const;
  std::int32_t n_recurrent_layers() const;
  bool has_recurrent_layers() const { return n_recurrent_layers() > 0; }
  /// The layer that drafts tokens, if it is loaded, or null.
  const MtpSpec* used_mtp() const { return uses_mtp ? &*mtp : nullptr; }
};

/// Numbers the layer groups from 0 in the order of their first layers: attention layers with the same heads, head size and
/// window form a group. The layer of `mtp` joins one of them; without any, there is no `mtp`. Each group has its own KV cache and attention plan.
void group_layers(ModelSpec& spec);

}  // namespace baton
