/// The list of a layer's weights: the only one, whatever is known or done about them.
#pragma once

namespace baton {

/// Something about each weight of a layer, for vectors in f32, matrices, matrices of all experts and small ones of all heads: its
/// tensors in a checkpoint (LayerTensors), or itself in a backend's memory (LayerWeights). What a layer does not have is empty.
template <class Norm, class Matrix, class Experts, class Heads>
struct LayerParts {
  Norm attention_norm;    ///< of both blocks in a parallel block
  Matrix qkv;             ///< d_model to queries, keys, values; with LatentSpec to q_rank or queries, and to rank + rope_dim
  Norm q_norm, k_norm;    ///< AttentionSpec::q_norm_width and k_norm_width wide
  Matrix q_b;             ///< q_rank to queries
  Heads keys_of_heads;    ///< of each head nope_dim to rank: what expands keys, transposed, for queries; with LatentSpec
  Heads values_of_heads;  ///< of each head rank to v_dim; with LatentSpec
  Norm sinks;             ///< n_heads wide
  Matrix attention_gate;  ///< d_model to out_width; with has_output_gate
  /// d_model to GatedDeltaSpec::in_width (queries, keys, values, gates of outputs), three parts of ShortConvSpec::n_channels, or
  /// Mamba2Spec::in_width. This and the following up to recurrent_norm only in recurrent layers.
  Matrix recurrent_in;
  Matrix recurrent_gates;     ///< d_model to b and a of each head; of GatedDeltaSpec
  Norm conv;                  ///< channels * n_taps wide
  Norm conv_bias;             ///< as many as channels
  Norm a_log, dt_bias, skip;  ///< n_heads wide; skip of Mamba2Spec
  Norm recurrent_norm;        ///< value_dim or inner_width wide
  Matrix attention_out;       ///< AttentionSpec::out_width, or the width of a recurrent block's output, to d_model
  Norm attention_post_norm;
  Norm feed_forward_norm;  ///< empty in a parallel block
  Matrix up;               ///< d_model to common_d_ff; if the block is gated, to gate and then up
  Matrix down;             ///< common_d_ff to d_model
  Matrix router;           ///< d_model to n_router_logits; this and the following only with experts
  Norm choice_bias;        ///< n_experts wide
  Experts expert_up;       ///< as up, of each expert
  Experts expert_down;     ///< as down, of each expert
  Norm feed_forward_post_norm;
};

/// Calls `visit` for each weight in loading order, with that weight's part of each of `layers` (LayerParts).
template <class Visit, class... Layers>
void visit_layer(const Visit& visit, Layers&&... layers) {
  visit(layers.attention_norm...);
  visit(layers.qkv...);
  visit(layers.q_norm...);
  visit(layers.k_norm...);
  visit(layers.q_b...);
  visit(layers.keys_of_heads...);
  visit(layers.values_of_heads...);
  visit(layers.sinks...);
  visit(layers.attention_gate...);
  visit(layers.recurrent_in...);
  visit(layers.recurrent_gates...);
  visit(layers.conv...);
  visit(layers.conv_bias...);
  visit(layers.a_log...);
  visit(layers.dt_bias...);
  visit(layers.skip...);
  visit(layers.recurrent_norm...);
  visit(layers.attention_out...);
  visit(layers.attention_post_norm...);
  visit(layers.feed_forward_norm...);
  visit(layers.up...);
  visit(layers.down...);
  visit(layers.router...);
  visit(layers.choice_bias...);
  visit(layers.expert_up...);
  visit(layers.expert_down...);
  visit(layers.feed_forward_post_norm...);
}

/// The same of the layer that drafts tokens (MtpSpec).
template <class Norm, class Matrix, class Layer>
struct MtpParts {
  Norm embedding_norm, hidden_norm;
  Matrix of_embedding, of_hidden;  ///< d_model to d_model: the two halves of the projection
  Layer layer;
  Norm output_norm;
};

template <class Visit, class... Parts>
void visit_mtp(const Visit& visit, Parts&&... parts) {
  visit(parts.embedding_norm...);
  visit(parts.hidden_norm...);
  visit(parts.of_embedding...);
  visit(parts.of_hidden...);
  visit_layer(visit, parts.layer...);
  visit(parts.output_norm...);
}

}  // namespace baton
