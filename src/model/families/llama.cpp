/// Reads a Llama's config.json.
#include "model/families/llama.h"

#include <cmath>
#include <utility>

#include "model/config_fields.h"
#include "model/rope_fields.h"

namespace baton {
namespace {

using json::Value;

constexpr TensorNames kNames = {.embedding = "model.embed_tokens",
                                .attention_norm = "model.layers.{}.input_layernorm",
                                .q = "model.layers.{}.self_attn.q_proj",
                                .k = "model.layers.{}.self_attn.k_proj",
                                .v = "model.layers.{}.self_attn.v_proj",
                                .attention_out = "model.layers.{}.self_attn.o_proj",
                                .feed_forward_norm = "model.layers.{}.post_attention_layernorm",
                                .gate = "model.layers.{}.mlp.gate_proj",
                                .up = "model.layers.{}.mlp.up_proj",
                                .down = "model.layers.{}.mlp.down_proj",
                                .final_norm = "model.norm",
                                .lm_head = "lm_head",
                                .ignored_suffix = ".rotary_emb.inv_freq"};

/// Refuses fields that change the arithmetic unless they have their neutral value.
Result<void> refuse_unsupported(const Value& config) {
  BATON_TRY_VOID(fields::expect(config, "hidden_act", "silu"));
  BATON_TRY_VOID(fields::expect(config, "pretraining_tp", 1));
  BATON_TRY_VOID(fields::expect_decoder(config));
  return fields::expect_null(config, "sliding_window");
}

}  // namespace

Result<ModelSpec> read_llama(const Value& config) {
  BATON_TRY_VOID(refuse_unsupported(config));
  ModelSpec spec;
  spec.names = kNames;
  BATON_TRY_VOID(fields::read_model_fields(config, spec));
  BATON_TRY(const std::int32_t n_layers, fields::required_size(config, "num_hidden_layers", fields::kMaxLayers));
  LayerSpec layer;
  BATON_TRY_VOID(fields::read_heads(config, spec.d_model, layer.attention));
  layer.attention.scale = 1.0f / std::sqrt(static_cast<float>(layer.attention.head_dim));
  BATON_TRY(layer.feed_forward.d_ff, fields::required_size(config, "intermediate_size", fields::kMaxFeedForward));
  BATON_TRY(const double epsilon, fields::optional_number(config, "rms_norm_eps", 1e-12, 1, 1e-6));
  layer.norm.epsilon = static_cast<float>(epsilon);
  spec.final_norm = layer.norm;
  BATON_TRY(layer.attention.has_qkv_bias, fields::optional_flag(config, "attention_bias", false));
  layer.attention.has_out_bias = layer.attention.has_qkv_bias;
  BATON_TRY(layer.feed_forward.has_bias, fields::optional_flag(config, "mlp_bias", false));
  spec.layers.assign(static_cast<std::size_t>(n_layers), layer);

  BATON_TRY(RopeSpec rope,
            fields::read_rope(config, {.head_dim = layer.attention.head_dim, .max_position = spec.max_position}));
  spec.ropes.push_back(std::move(rope));
  return spec;
}

}  // namespace baton
