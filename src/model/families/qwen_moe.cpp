/// config.json of a Qwen with experts to its spec.
#include "model/families/readers.h"

#include <algorithm>
#include <vector>

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kQwen2MoeDefaults{.n_kv_heads = 16, .max_position = 32768};
constexpr fields::Defaults kQwen3MoeDefaults{.n_kv_heads = 4, .max_position = 32768};

}  // namespace

Result<FeedForwardSpec> read_qwen_experts(const json::Value& config, const QwenExpertDefaults& defaults) {
  FeedForwardSpec experts;
  BATON_TRY(experts.d_ff, fields::optional_size(config, "moe_intermediate_size", fields::kMaxFeedForward, defaults.d_ff));
  BATON_TRY_VOID(read_experts(config, experts, defaults.n_experts, defaults.n_experts_per_row));
  BATON_TRY(experts.routing.renormalises, fields::optional_flag(config, "norm_topk_prob", defaults.renormalises));
  if (defaults.d_ff_shared == 0) return experts;
  BATON_TRY(experts.d_ff_shared,
            fields::optional_size(config, "shared_expert_intermediate_size", fields::kMaxFeedForward, defaults.d_ff_shared));
  experts.has_shared_gate = true;
  return experts;
}

void name_qwen_experts(TensorNames& names) {
  name_experts(names);
  names.shared_gate = "model.layers.{}.mlp.shared_expert.gate_proj";
  names.shared_up = "model.layers.{}.mlp.shared_expert.up_proj";
  names.shared_down = "model.layers.{}.mlp.shared_expert.down_proj";
  names.shared_expert_gate = "model.layers.{}.mlp.shared_expert_gate";
}

Result<void> give_qwen_experts(const json::Value& config, const FeedForwardSpec& experts, ModelSpec& spec) {
  BATON_TRY(const std::int32_t step, fields::optional_size(config, "decoder_sparse_step", fields::kMaxLayers, 1));
  BATON_TRY(const auto without, json::get_optional<std::vector<std::int32_t>>(config, "mlp_only_layers"));
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    const bool is_left_out = without && std::ranges::find(*without, index) != without->end();
    if (!is_left_out && (index + 1) % step == 0) spec.layers[i].feed_forward = experts;
  }
  return {};
}

/// Qwen2 with experts and a gated shared expert. Without `layer_types`, every second layer below `max_window_layers` has the
/// window, if it is used. The defaults are those of Transformers' Qwen2MoeConfig.
Result<ModelSpec> read_qwen2_moe(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kQwen2MoeDefaults));
  name_qwen_experts(spec.names);
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "qkv_bias", true));
  for (LayerSpec& layer : spec.layers) layer.attention.has_qkv_bias = has_biases;
  BATON_TRY(const std::int32_t window, fields::read_used_window(config, 4096));
  BATON_TRY(const double end, fields::optional_number(config, "max_window_layers", 0, fields::kMaxLayers, 28));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [=](std::size_t i) { return window > 0 && i % 2 == 0 && static_cast<double>(i) < end; }, spec));
  BATON_TRY(const FeedForwardSpec experts,
            read_qwen_experts(config, {.d_ff = 1408, .n_experts = 60, .n_experts_per_row = 4, .d_ff_shared = 5632}));
  BATON_TRY_VOID(give_qwen_experts(config, experts, spec));
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
  BATON_TRY(const std::int32_t window, fields::read_used_window(config, 4096));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.window = window;
    layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
  }
  BATON_TRY(const FeedForwardSpec experts, read_qwen_experts(config, {.d_ff = 768, .n_experts = 128, .n_experts_per_row = 8}));
  BATON_TRY_VOID(give_qwen_experts(config, experts, spec));
  return spec;
}

}  // namespace baton
