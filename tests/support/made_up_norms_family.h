/// A second family that no model has and Baton does not ship: norms before and after blocks, of queries and keys, gates of
/// each kind, layers without rotation, scales and a soft-cap of logits, another mixture in each of its four layers. Its
/// goldens are those of tools/goldens/made_up_norms.py.
#pragma once

#include <cmath>

#include "model/config_fields.h"
#include "model/families/families.h"

namespace baton::testing {

inline constexpr TensorNames kMadeUpNormsNames = {.embedding = "model.embed",
                                                  .attention_norm = "model.layers.{}.attention.pre",
                                                  .q = "model.layers.{}.attention.q",
                                                  .k = "model.layers.{}.attention.k",
                                                  .v = "model.layers.{}.attention.v",
                                                  .q_norm = "model.layers.{}.attention.q_norm",
                                                  .k_norm = "model.layers.{}.attention.k_norm",
                                                  .attention_out = "model.layers.{}.attention.o",
                                                  .attention_post_norm = "model.layers.{}.attention.post",
                                                  .feed_forward_norm = "model.layers.{}.mlp.pre",
                                                  .feed_forward_post_norm = "model.layers.{}.mlp.post",
                                                  .gate = "model.layers.{}.mlp.gate",
                                                  .up = "model.layers.{}.mlp.up",
                                                  .down = "model.layers.{}.mlp.down",
                                                  .final_norm = "model.norm",
                                                  .lm_head = "lm_head",
                                                  .ignored_suffix = ""};

inline Result<ModelSpec> read_made_up_norms(const json::Value& config) {
  ModelSpec spec;
  spec.names = kMadeUpNormsNames;
  BATON_TRY_VOID(fields::read_model_fields(config, {}, spec));
  const auto number = [&](const char* key) { return fields::optional_number(config, key, 1e-6, 1e6, 1); };
  LayerSpec layer;
  BATON_TRY_VOID(fields::read_heads(config, {}, spec.d_model, layer.attention));
  BATON_TRY(layer.feed_forward.d_ff, fields::required_size(config, "intermediate_size", fields::kMaxFeedForward));
  BATON_TRY(const double epsilon, number("rms_norm_eps"));
  BATON_TRY(const double attention_scale, number("attention_multiplier"));
  BATON_TRY(const double residual_scale, number("residual_multiplier"));
  BATON_TRY(const double logits_scale, number("logits_scaling"));
  BATON_TRY(const double softcap, number("final_logit_softcapping"));
  BATON_TRY(const std::int32_t window, fields::required_size(config, "sliding_window", fields::kMaxPositions));
  layer.norm = {.kind = NormSpec::Kind::rms, .epsilon = static_cast<float>(epsilon), .weight_offset = 1, .has_bias = false};
  layer.attention.qk_norm_spec = spec.final_norm = layer.norm;
  layer.attention.scale = static_cast<float>(attention_scale);
  layer.residual_scale = static_cast<float>(residual_scale);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.d_model));
  spec.rounds_embedding_scale = true;
  spec.logits_scale = static_cast<float>(logits_scale);
  spec.logits_softcap = static_cast<float>(softcap);
  const std::int32_t head_dim = layer.attention.head_dim;
  spec.ropes = {{.rotary_dim = head_dim, .theta = 10000, .scaling = {}}, {.rotary_dim = head_dim, .theta = 500, .scaling = {}}};
  spec.layers.assign(4, layer);
  constexpr FeedForwardSpec::Kind kKinds[] = {FeedForwardSpec::Kind::gated_gelu_tanh, FeedForwardSpec::Kind::gated_gelu,
                                              FeedForwardSpec::Kind::gated_silu, FeedForwardSpec::Kind::gated_gelu_tanh};
  constexpr QkNorm kQkNorms[] = {QkNorm::head, QkNorm::width, QkNorm::head, QkNorm::none};
  constexpr std::int32_t kRopes[] = {0, AttentionSpec::kNoRope, 1, AttentionSpec::kNoRope};
  for (std::size_t i = 0; i < 4; ++i) {
    LayerSpec& of = spec.layers[i];
    of.feed_forward.kind = kKinds[i];
    of.attention.qk_norm = kQkNorms[i];
    of.attention.rope = kRopes[i];
    of.attention.window = i % 2 == 1 ? window : 0;
    of.has_pre_norms = i != 1;
    of.has_post_norms = i != 3;
  }
  return spec;
}

inline constexpr Family kMadeUpNormsFamily{
    .name = "MadeUpNormsForCausalLM", .model_type = "made_up_norms", .models = "", .read = read_made_up_norms};

}  // namespace baton::testing
