/// Reads a Llama's config.json.
#include "model/families/llama.h"

#include <cmath>
#include <utility>

#include "model/families/readers.h"

namespace baton {

using json::Value;

Result<ModelSpec> read_llama_layers(const Value& config, const fields::Defaults& defaults) {
  BATON_TRY_VOID(fields::expect_decoder(config));
  ModelSpec spec;
  spec.names = kLlamaNames;
  BATON_TRY_VOID(fields::read_model_fields(config, defaults, spec));
  BATON_TRY(const std::int32_t n_layers,
            fields::size_or_default(config, "num_hidden_layers", fields::kMaxLayers, defaults.n_layers));
  LayerSpec layer;
  BATON_TRY_VOID(fields::read_heads(config, defaults, spec.d_model, layer.attention));
  layer.attention.scale = 1.0f / std::sqrt(static_cast<float>(layer.attention.head_dim));
  BATON_TRY(layer.feed_forward.d_ff,
            fields::size_or_default(config, "intermediate_size", fields::kMaxFeedForward, defaults.d_ff));
  BATON_TRY(const double epsilon, fields::optional_number(config, "rms_norm_eps", 1e-12, 1, defaults.epsilon));
  layer.norm.epsilon = static_cast<float>(epsilon);
  spec.final_norm = layer.norm;
  spec.layers.assign(static_cast<std::size_t>(n_layers), layer);
  return spec;
}

fields::RopeContext rope_context(const fields::Defaults& defaults, const ModelSpec& spec) {
  fields::RopeContext context = defaults.rope;
  context.head_dim = spec.layers.front().attention.head_dim;
  context.max_position = spec.max_position;
  return context;
}

Result<ModelSpec> read_llama_layout(const Value& config, const fields::Defaults& defaults) {
  BATON_TRY_VOID(fields::expect_silu(config, "hidden_act"));
  BATON_TRY(ModelSpec spec, read_llama_layers(config, defaults));
  BATON_TRY(RopeSpec rope, fields::read_rope(config, rope_context(defaults, spec)));
  spec.ropes.push_back(std::move(rope));
  return spec;
}

void give_post_norms(ModelSpec& spec) {
  spec.names.attention_norm = spec.names.feed_forward_norm = "";
  spec.names.attention_post_norm = "model.layers.{}.post_attention_layernorm";
  spec.names.feed_forward_post_norm = "model.layers.{}.post_feedforward_layernorm";
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  for (LayerSpec& layer : spec.layers) {
    layer.has_pre_norms = false;
    layer.has_post_norms = true;
  }
}

void name_experts(TensorNames& names) {
  names.router = "model.layers.{}.mlp.gate";
  names.expert_gate = "model.layers.{}.mlp.experts.{}.gate_proj";
  names.expert_up = "model.layers.{}.mlp.experts.{}.up_proj";
  names.expert_down = "model.layers.{}.mlp.experts.{}.down_proj";
}

void name_shared_experts(TensorNames& names) {
  names.shared_gate = "model.layers.{}.mlp.shared_experts.gate_proj";
  names.shared_up = "model.layers.{}.mlp.shared_experts.up_proj";
  names.shared_down = "model.layers.{}.mlp.shared_experts.down_proj";
}

void give_mtp_layer(const LayerSpec& layer, ModelSpec& spec) {
  spec.mtp = MtpSpec{.layer = layer,
                     .norm = layer.norm,
                     .number = spec.layers.size(),
                     .embedding_norm = "model.layers.{}.enorm",
                     .hidden_norm = "model.layers.{}.hnorm",
                     .projection = "model.layers.{}.eh_proj",
                     .output_norm = "model.layers.{}.shared_head.norm"};
}

void name_mixtral_experts(TensorNames& names) {
  names.router = "model.layers.{}.block_sparse_moe.gate";
  names.expert_gate = "model.layers.{}.block_sparse_moe.experts.{}.w1";
  names.expert_up = "model.layers.{}.block_sparse_moe.experts.{}.w3";
  names.expert_down = "model.layers.{}.block_sparse_moe.experts.{}.w2";
}

Result<void> read_llama_biases(const Value& config, ModelSpec& spec) {
  BATON_TRY(const bool of_attention, fields::optional_flag(config, "attention_bias", false));
  BATON_TRY(const bool of_feed_forward, fields::optional_flag(config, "mlp_bias", false));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = of_attention;
    layer.feed_forward.has_bias = of_feed_forward;
  }
  return {};
}

/// The layout, and the biases that the config states. The defaults are those of Transformers' LlamaConfig.
Result<ModelSpec> read_llama(const Value& config) {
  BATON_TRY_VOID(fields::expect_null(config, "sliding_window"));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {}));
  BATON_TRY_VOID(read_llama_biases(config, spec));
  return spec;
}

}  // namespace baton
