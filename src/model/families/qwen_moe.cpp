/// config.json of a Qwen with experts to its spec.
#include "model/families/readers.h"

#include <algorithm>
#include <vector>

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kQwen2MoeDefaults{.n_kv_heads = 16, .max_position = 32768};
constexpr fields::Defaults kQwen3MoeDefaults{.n_kv_heads = 4, .max_position = 32768};

/// The experts of one layer; `width` is the default of `moe_intermediate_size`, the next two of the numbers of experts.
Result<FeedForwardSpec> read_experts_of_layer(const json::Value& config, std::int32_t width, std::int32_t n_experts,
                                              std::int32_t n_experts_per_row) {
  FeedForwardSpec experts;
  BATON_TRY(experts.d_ff, fields::optional_size(config, "moe_intermediate_size", fields::kMaxFeedForward, width));
  BATON_TRY_VOID(read_experts(config, experts, n_experts, n_experts_per_row));
  BATON_TRY(experts.routing.renormalises, fields::optional_flag(config, "norm_topk_prob", false));
  return experts;
}

/// Gives experts to the layers that `decoder_sparse_step` and `mlp_only_layers` leave them.
Result<void> give_experts(const json::Value& config, const FeedForwardSpec& experts, ModelSpec& spec) {
  BATON_TRY(const std::int32_t step, fields::optional_size(config, "decoder_sparse_step", fields::kMaxLayers, 1));
  BATON_TRY(const auto without, json::get_optional<std::vector<std::int32_t>>(config, "mlp_only_layers"));
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    const bool is_left_out = without && std::ranges::find(*without, index) != without->end();
    if (!is_left_out && (index + 1) % step == 0) spec.layers[i].feed_forward = experts;
  }
  return {};
}

}  // namespace

/// Qwen2 with experts and a gated shared expert. Without `layer_types`, every second layer below `max_window_layers` has the
/// window, if it is used. The defaults are those of Transformers' Qwen2MoeConfig.
Result<ModelSpec> read_qwen2_moe(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kQwen2MoeDefaults));
  name_experts(spec.names);
  spec.names.shared_gate = "model.layers.{}.mlp.shared_expert.gate_proj";
  spec.names.shared_up = "model.layers.{}.mlp.shared_expert.up_proj";
  spec.names.shared_down = "model.layers.{}.mlp.shared_expert.down_proj";
  spec.names.shared_expert_gate = "model.layers.{}.mlp.shared_expert_gate";
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "qkv_bias", true));
  for (LayerSpec& layer : spec.layers) layer.attention.has_qkv_bias = has_biases;
  BATON_TRY(const bool uses_window, fields::optional_flag(config, "use_sliding_window", false));
  BATON_TRY(const std::int32_t window, fields::read_window(config, 4096));
  BATON_TRY(const double end, fields::optional_number(config, "max_window_layers", 0, fields::kMaxLayers, 28));
  BATON_TRY_VOID(fields::read_windows(
      config, uses_window ? window : 0,
      [=](std::size_t i) { return uses_window && i % 2 == 0 && static_cast<double>(i) < end; }, spec));
  BATON_TRY(FeedForwardSpec experts, read_experts_of_layer(config, 1408, 60, 4));
  BATON_TRY(experts.d_ff_shared,
            fields::optional_size(config, "shared_expert_intermediate_size", fields::kMaxFeedForward, 5632));
  experts.has_shared_gate = true;
  BATON_TRY_VOID(give_experts(config, experts, spec));
  return spec;
}

/// Qwen3 with experts. The window of a config that uses one is in all layers. The defaults are those of Transformers'
/// Qwen3MoeConfig.
Result<ModelSpec> read_qwen3_moe(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kQwen3MoeDefaults));
  name_experts(spec.names);
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  BATON_TRY(const bool uses_window, fields::optional_flag(config, "use_sliding_window", false));
  BATON_TRY(const std::int32_t window, fields::read_window(config, 4096));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.window = uses_window ? window : 0;
    layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
  }
  BATON_TRY(const FeedForwardSpec experts, read_experts_of_layer(config, 768, 128, 8));
  BATON_TRY_VOID(give_experts(config, experts, spec));
  return spec;
}

}  // namespace baton
