/// config.json of a Qwen with Gated DeltaNet layers to its spec.
#include "model/families/readers.h"

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/state_storage.h"
#include "model/families/llama.h"

namespace baton {
namespace {

using json::Value;

constexpr fields::RopeContext kQuarterRope{.rotary_factor = 0.25, .allows_partial = true, .ignores_sections = true};
constexpr fields::Defaults kNextDefaults{
    .d_ff = 5632, .n_kv_heads = 2, .head_dim = 256, .max_position = 32768, .rope = kQuarterRope};
constexpr fields::Defaults kDenseDefaults{
    .d_ff = 12288, .n_kv_heads = 4, .head_dim = 256, .max_position = 32768, .rope = kQuarterRope};

void name_delta_layers(TensorNames& names) {
  names.q_norm = "model.layers.{}.self_attn.q_norm";
  names.k_norm = "model.layers.{}.self_attn.k_norm";
  names.delta_qkv = "model.layers.{}.linear_attn.in_proj_qkv";
  names.delta_z = "model.layers.{}.linear_attn.in_proj_z";
  names.delta_b = "model.layers.{}.linear_attn.in_proj_b";
  names.delta_a = "model.layers.{}.linear_attn.in_proj_a";
  names.conv = "model.layers.{}.linear_attn.conv1d";
  names.a_log = "model.layers.{}.linear_attn.A_log";
  names.dt_bias = "model.layers.{}.linear_attn.dt_bias";
  names.recurrent_norm = "model.layers.{}.linear_attn.norm";
  names.recurrent_out = "model.layers.{}.linear_attn.out_proj";
}

Result<GatedDeltaSpec> read_delta(const Value& config, const NormSpec& norm) {
  GatedDeltaSpec delta;
  BATON_TRY(delta.n_key_heads, fields::optional_size(config, "linear_num_key_heads", fields::kMaxHeads, 16));
  BATON_TRY(delta.n_heads, fields::optional_size(config, "linear_num_value_heads", fields::kMaxHeads, 32));
  BATON_TRY(delta.key_dim, fields::optional_size(config, "linear_key_head_dim", kMaxStateDim, 128));
  BATON_TRY(delta.value_dim, fields::optional_size(config, "linear_value_head_dim", kMaxStateDim, 128));
  BATON_TRY(delta.n_taps, fields::optional_size(config, "linear_conv_kernel_dim", kMaxConvTaps, 4));
  if (delta.n_heads % delta.n_key_heads != 0)
    return fields::bad_value("linear_num_value_heads",
                             "'linear_num_value_heads' must be a multiple of 'linear_num_key_heads', but they are {} and {}",
                             delta.n_heads, delta.n_key_heads);
  if (delta.n_taps < 2)
    return fields::bad_value("linear_conv_kernel_dim", "'linear_conv_kernel_dim' must be at least 2, not {}", delta.n_taps);
  BATON_TRY_VOID(fields::expect(config, "mamba_ssm_dtype", "float32"));
  delta.norm.epsilon = norm.epsilon;
  return delta;
}

/// Gives the layers that `layer_types` or `full_attention_interval` say a recurrent block.
Result<void> give_delta(const Value& config, const GatedDeltaSpec& delta, ModelSpec& spec) {
  BATON_TRY(const auto types, json::get_optional<std::vector<std::string>>(config, "layer_types"));
  if (types && types->size() != spec.layers.size())
    return fields::bad_value("layer_types", "'layer_types' must name the types of {} layers, not of {}", spec.layers.size(),
                             types->size());
  BATON_TRY(const std::int32_t interval, fields::optional_size(config, "full_attention_interval", fields::kMaxLayers, 4));
  bool has_attention = false;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (types && (*types)[i] != "linear_attention" && (*types)[i] != "full_attention")
      return fields::unsupported("layer_types", (*types)[i], R"("full_attention" or "linear_attention")");
    const bool is_recurrent = types ? (*types)[i] == "linear_attention" : (i + 1) % static_cast<std::size_t>(interval) != 0;
    if (is_recurrent) spec.layers[i].delta = delta;
    has_attention = has_attention || !is_recurrent;
  }
  if (!has_attention)
    return fields::bad_value("layer_types", "one of the {} layers must have \"full_attention\"", spec.layers.size());
  return {};
}

/// Llama with zero-centred norms, recurrent layers, and attention whose outputs have a gate and whose heads have norms; in a quarter
/// of each head it rotates. The sections of a rotation with images are alike where there is text alone.
Result<ModelSpec> read_delta_layout(const Value& config, const fields::Defaults& defaults) {
  BATON_TRY_VOID(fields::expect(config, "attn_output_gate", true));
  BATON_TRY_VOID(fields::expect_silu(config, "output_gate_type"));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, defaults));
  name_delta_layers(spec.names);
  spec.ignored_prefix = "mtp.";
  spec.final_norm.weight_offset = 1;
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  for (LayerSpec& layer : spec.layers) {
    layer.norm.weight_offset = 1;
    layer.attention.has_output_gate = true;
    layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
  }
  BATON_TRY(const GatedDeltaSpec delta, read_delta(config, spec.layers.front().norm));
  BATON_TRY_VOID(give_delta(config, delta, spec));
  return spec;
}

/// Says that there is one layer with attention for drafts, unless `mtp_num_hidden_layers` is 0 or it has an embedding of its own.
/// The config of a Qwen3-Next does not mention it.
Result<void> give_qwen_mtp(const Value& config, const FeedForwardSpec& feed_forward, ModelSpec& spec) {
  BATON_TRY(const double n_layers, fields::optional_number(config, "mtp_num_hidden_layers", 0, fields::kMaxLayers, 1));
  BATON_TRY(const bool has_embedding, fields::optional_flag(config, "mtp_use_dedicated_embeddings", false));
  if (n_layers == 0 || has_embedding) return {};
  LayerSpec layer = spec.layers.front();
  layer.delta.reset();
  layer.feed_forward = feed_forward;
  spec.mtp = MtpSpec{.layer = layer,
                     .norm = layer.norm,
                     .root = "mtp.",
                     .embedding_norm = "model.pre_fc_norm_embedding",
                     .hidden_norm = "model.pre_fc_norm_hidden",
                     .projection = "model.fc",
                     .output_norm = "model.norm"};
  return {};
}

}  // namespace

/// With experts, and tensors that hold several parts of a recurrent layer for each key head. The defaults are those of
/// Transformers' Qwen3NextConfig.
Result<ModelSpec> read_qwen3_next(const Value& config) {
  BATON_TRY(ModelSpec spec, read_delta_layout(config, kNextDefaults));
  name_qwen_experts(spec.names);
  spec.names.delta_qkvz = "model.layers.{}.linear_attn.in_proj_qkvz";
  spec.names.delta_ba = "model.layers.{}.linear_attn.in_proj_ba";
  BATON_TRY(const FeedForwardSpec experts,
            read_qwen_experts(
                config, {.d_ff = 512, .n_experts = 512, .n_experts_per_row = 10, .d_ff_shared = 512, .renormalises = true}));
  BATON_TRY_VOID(give_qwen_experts(config, experts, spec));
  BATON_TRY_VOID(give_qwen_mtp(config, experts, spec));
  return spec;
}

/// The defaults are those of Transformers' Qwen3_5TextConfig.
Result<ModelSpec> read_qwen3_5(const Value& config) {
  BATON_TRY(ModelSpec spec, read_delta_layout(config, kDenseDefaults));
  BATON_TRY_VOID(give_qwen_mtp(config, spec.layers.front().feed_forward, spec));
  return spec;
}

/// With experts in all layers, a tensor for each or one for all. The defaults are those of Transformers' Qwen3_5MoeTextConfig.
Result<ModelSpec> read_qwen3_5_moe(const Value& config) {
  BATON_TRY(ModelSpec spec, read_delta_layout(config, kNextDefaults));
  name_qwen_experts(spec.names);
  spec.names.other_expert_gate_up = "model.layers.{}.mlp.experts.gate_up_proj";
  spec.names.other_expert_down = "model.layers.{}.mlp.experts.down_proj";
  spec.names.has_gate_up_in_halves = true;
  spec.names.has_transposed_experts = false;
  BATON_TRY_VOID(fields::expect(config, "norm_topk_prob", true));
  BATON_TRY(const FeedForwardSpec experts,
            read_qwen_experts(
                config, {.d_ff = 512, .n_experts = 256, .n_experts_per_row = 8, .d_ff_shared = 512, .renormalises = true}));
  for (LayerSpec& layer : spec.layers) layer.feed_forward = experts;
  BATON_TRY_VOID(give_qwen_mtp(config, experts, spec));
  return spec;
}

Result<ModelSpec> read_qwen3_5_with_images(const Value& config) { return read_text_model(config, read_qwen3_5); }

Result<ModelSpec> read_qwen3_5_moe_with_images(const Value& config) { return read_text_model(config, read_qwen3_5_moe); }

}  // namespace baton
