/// Reads a Qwen3-MoE's config.json.
#include "model/families/readers.h"

#include <algorithm>
#include <vector>

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kQwen3MoeDefaults{.n_kv_heads = 4, .max_position = 32768};

void name_tensors(TensorNames& names) {
  names.q_norm = "model.layers.{}.self_attn.q_norm";
  names.k_norm = "model.layers.{}.self_attn.k_norm";
  names.router = "model.layers.{}.mlp.gate";
  names.expert_gate = "model.layers.{}.mlp.experts.{}.gate_proj";
  names.expert_up = "model.layers.{}.mlp.experts.{}.up_proj";
  names.expert_down = "model.layers.{}.mlp.experts.{}.down_proj";
}

Result<FeedForwardSpec> read_experts_of_layers(const json::Value& config) {
  FeedForwardSpec experts;
  BATON_TRY(experts.d_ff, fields::optional_size(config, "moe_intermediate_size", fields::kMaxFeedForward, 768));
  BATON_TRY_VOID(read_experts(config, experts, 128, 8));
  BATON_TRY(experts.routing.renormalises, fields::optional_flag(config, "norm_topk_prob", false));
  return experts;
}

}  // namespace

/// Qwen3 with experts in the layers that `decoder_sparse_step` and `mlp_only_layers` leave them. The window of a
/// config that uses one is in all layers. The defaults are those of Transformers' Qwen3MoeConfig.
Result<ModelSpec> read_qwen3_moe(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kQwen3MoeDefaults));
  name_tensors(spec.names);
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  BATON_TRY(const bool uses_window, fields::optional_flag(config, "use_sliding_window", false));
  BATON_TRY(const std::int32_t window, fields::read_window(config, 4096));
  BATON_TRY(const FeedForwardSpec experts, read_experts_of_layers(config));
  BATON_TRY(const std::int32_t step, fields::optional_size(config, "decoder_sparse_step", fields::kMaxLayers, 1));
  BATON_TRY(const auto without, json::get_optional<std::vector<std::int32_t>>(config, "mlp_only_layers"));
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.attention.window = uses_window ? window : 0;
    layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
    const auto index = static_cast<std::int32_t>(i);
    const bool is_left_out = without && std::ranges::find(*without, index) != without->end();
    if (!is_left_out && (index + 1) % step == 0) layer.feed_forward = experts;
  }
  return spec;
}

}  // namespace baton
