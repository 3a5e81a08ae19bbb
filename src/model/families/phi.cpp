/// Reads a Phi's config.json.
#include "model/families/readers.h"

#include <cmath>
#include <utility>

#include "model/config_fields.h"
#include "model/rope_fields.h"

namespace baton {
namespace {

constexpr TensorNames kPhiNames = {.embedding = "model.embed_tokens",
                                   .attention_norm = "model.layers.{}.input_layernorm",
                                   .q = "model.layers.{}.self_attn.q_proj",
                                   .k = "model.layers.{}.self_attn.k_proj",
                                   .v = "model.layers.{}.self_attn.v_proj",
                                   .attention_out = "model.layers.{}.self_attn.dense",
                                   .feed_forward_norm = "",
                                   .gate = "",
                                   .up = "model.layers.{}.mlp.fc1",
                                   .down = "model.layers.{}.mlp.fc2",
                                   .final_norm = "model.final_layernorm",
                                   .lm_head = "lm_head",
                                   .ignored_suffix = ".rotary_emb.inv_freq"};

}  // namespace

/// Layer norms, parallel blocks, a plain feed-forward block with GELU, heads of which a part is rotated, and a bias on
/// every linear layer. The defaults are those of Transformers' PhiConfig.
Result<ModelSpec> read_phi(const json::Value& config) {
  BATON_TRY_VOID(fields::expect_decoder(config));
  BATON_TRY_VOID(fields::expect(config, "qk_layernorm", false));
  ModelSpec spec;
  spec.names = kPhiNames;
  spec.has_lm_head_bias = true;
  BATON_TRY_VOID(fields::read_model_fields(config, {}, spec));
  BATON_TRY(const std::int32_t n_layers, fields::required_size(config, "num_hidden_layers", fields::kMaxLayers));
  LayerSpec layer;
  layer.is_parallel = true;
  BATON_TRY(const double epsilon, fields::optional_number(config, "layer_norm_eps", 1e-12, 1, 1e-5));
  layer.norm = {.kind = NormSpec::Kind::layer, .epsilon = static_cast<float>(epsilon), .has_bias = true};
  spec.final_norm = layer.norm;
  BATON_TRY_VOID(fields::read_heads(config, {}, spec.d_model, layer.attention));
  layer.attention.scale = 1.0f / std::sqrt(static_cast<float>(layer.attention.head_dim));
  layer.attention.has_qkv_bias = layer.attention.has_out_bias = true;
  layer.feed_forward.has_bias = true;
  BATON_TRY(layer.feed_forward.kind, fields::read_gelu(config, "hidden_act", FeedForwardSpec::Kind::gelu_tanh));
  BATON_TRY(layer.feed_forward.d_ff, fields::required_size(config, "intermediate_size", fields::kMaxFeedForward));
  spec.layers.assign(static_cast<std::size_t>(n_layers), layer);
  BATON_TRY(RopeSpec rope, fields::read_rope(config, {.head_dim = layer.attention.head_dim,
                                                      .max_position = spec.max_position,
                                                      .rotary_factor = 0.5,
                                                      .allows_partial = true}));
  spec.ropes.push_back(std::move(rope));
  return spec;
}

}  // namespace baton
