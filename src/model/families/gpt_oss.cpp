/// config.json of a gpt-oss to its spec.
#include "model/families/readers.h"

#include <cstddef>

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kGptOssDefaults{
    .n_kv_heads = 8, .head_dim = 64, .max_position = 131072, .epsilon = 1e-5, .rope = {.theta = 150000}};

void name_tensors(TensorNames& names) {
  names.sinks = "model.layers.{}.self_attn.sinks";
  names.router = "model.layers.{}.mlp.router";
  names.expert_gate_up = "model.layers.{}.mlp.experts.gate_up_proj";
  names.expert_down = "model.layers.{}.mlp.experts.down_proj";
}

/// The config with the rotation of GptOssConfig if it states none.
json::Value with_rotation(const json::Value& config) {
  json::Value made = config;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"})
    if (const json::Value* found = json::find(config, key); found != nullptr && !found->is_null()) return made;
  made["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                             {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
  return made;
}

/// The limits stand in newer configs; Transformers has their defaults in its code.
Result<void> read_gate(const json::Value& config, FeedForwardSpec& spec) {
  spec.kind = FeedForwardSpec::Kind::gated_clamped_silu;
  BATON_TRY(const double alpha, fields::optional_number(config, "swiglu_alpha", 1e-3, 1e3, 1.702));
  BATON_TRY(const double limit, fields::optional_number(config, "swiglu_limit", 1e-3, 1e6, 7));
  spec.gate_alpha = static_cast<float>(alpha);
  spec.gate_limit = static_cast<float>(limit);
  return {};
}

}  // namespace

/// Llama with sinks, a window in every second layer from the first on, and experts in all layers, which share tensors. The
/// experts and the router have biases, whatever `attention_bias` says of the others. The defaults are those of Transformers'
/// GptOssConfig.
Result<ModelSpec> read_gpt_oss(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(with_rotation(config), kGptOssDefaults));
  name_tensors(spec.names);
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", true));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.has_sinks = true;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
    BATON_TRY_VOID(read_experts(config, layer.feed_forward, 128, 4));
    BATON_TRY_VOID(read_gate(config, layer.feed_forward));
    layer.feed_forward.routing.renormalises = true;
    layer.feed_forward.has_bias = true;
  }
  BATON_TRY(const std::int32_t window, fields::read_window(config, 128));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [](std::size_t i) { return i % 2 == 0; }, spec));
  return spec;
}

}  // namespace baton
