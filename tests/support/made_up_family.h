/// A family that no real model has and that Baton does not ship: layer norms with biases, parallel blocks, biases on
/// all linear layers, partial rotation, plain GELU, and a window in every second layer. A new family needs only this
/// file and its goldens (tools/goldens/made_up.py).
#pragma once

#include <utility>

#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/rope_fields.h"

namespace baton::testing {

inline constexpr TensorNames kMadeUpNames = {.embedding = "transformer.wte",
                                             .attention_norm = "transformer.h.{}.ln",
                                             .q = "transformer.h.{}.attn.q",
                                             .k = "transformer.h.{}.attn.k",
                                             .v = "transformer.h.{}.attn.v",
                                             .attention_out = "transformer.h.{}.attn.dense",
                                             .feed_forward_norm = "",
                                             .gate = "",
                                             .up = "transformer.h.{}.mlp.fc1",
                                             .down = "transformer.h.{}.mlp.fc2",
                                             .final_norm = "transformer.ln_f",
                                             .lm_head = "lm_head",
                                             .ignored_suffix = ""};

inline Result<ModelSpec> read_made_up(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "hidden_act", "gelu"));
  BATON_TRY_VOID(fields::expect_decoder(config));
  ModelSpec spec;
  spec.names = kMadeUpNames;
  spec.has_lm_head_bias = true;
  BATON_TRY_VOID(fields::read_model_fields(config, {}, spec));
  BATON_TRY(const std::int32_t n_layers, fields::required_size(config, "num_hidden_layers", fields::kMaxLayers));
  LayerSpec layer;
  layer.is_parallel = true;
  BATON_TRY(const double epsilon, fields::optional_number(config, "layer_norm_eps", 1e-12, 1, 1e-5));
  layer.norm = {.kind = NormSpec::Kind::layer, .epsilon = static_cast<float>(epsilon), .weight_offset = 0, .has_bias = true};
  spec.final_norm = layer.norm;
  AttentionSpec& attention = layer.attention;
  attention.has_qkv_bias = attention.has_out_bias = true;
  BATON_TRY_VOID(fields::read_heads(config, {}, spec.d_model, attention));
  BATON_TRY(const double scale, fields::optional_number(config, "attention_multiplier", 1e-6, 1e6, 1));
  attention.scale = static_cast<float>(scale);
  BATON_TRY(const double softcap, fields::optional_number(config, "attn_logit_softcapping", 0, 1e6, 0));
  attention.softcap = static_cast<float>(softcap);
  BATON_TRY(const std::int32_t d_ff, fields::required_size(config, "intermediate_size", fields::kMaxFeedForward));
  layer.feed_forward = {.kind = FeedForwardSpec::Kind::gelu, .d_ff = d_ff, .has_bias = true};
  BATON_TRY(
      RopeSpec rope,
      fields::read_rope(config, {.head_dim = attention.head_dim, .max_position = spec.max_position, .allows_partial = true}));
  spec.ropes.push_back(std::move(rope));
  spec.layers.assign(static_cast<std::size_t>(n_layers), layer);
  BATON_TRY(const std::int32_t window, fields::required_size(config, "sliding_window", fields::kMaxPositions));
  for (std::size_t i = 1; i < spec.layers.size(); i += 2) spec.layers[i].attention.window = window;
  return spec;
}

inline constexpr Family kMadeUpFamily{.name = "MadeUpForCausalLM", .model_type = "made_up", .models = "", .read = read_made_up};

}  // namespace baton::testing
