/// config.json of a GLM-4 (0414), or of a GLM-4.5, 4.6 or 4.7 with experts, to its spec.
#include "model/families/readers.h"

#include "model/families/llama.h"

namespace baton {

/// Llama with norms after both blocks, too, gate and up in one tensor, biases of queries, keys and values, and heads of which
/// neighbouring elements of the first half are rotated. The defaults are those of Transformers' Glm4Config.
Result<ModelSpec> read_glm4(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.n_kv_heads = 2,
                                                       .head_dim = 128,
                                                       .max_position = 131072,
                                                       .epsilon = 1.5625e-7,
                                                       .rope = {.rotary_factor = 0.5, .allows_partial = true}}));
  spec.ropes[0].is_interleaved = true;
  spec.names.gate = spec.names.up = "";
  spec.names.gate_up = "model.layers.{}.mlp.gate_up_proj";
  spec.names.attention_post_norm = "model.layers.{}.post_self_attn_layernorm";
  spec.names.feed_forward_post_norm = "model.layers.{}.post_mlp_layernorm";
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", true));
  for (LayerSpec& layer : spec.layers) {
    layer.has_post_norms = true;
    layer.attention.has_qkv_bias = has_biases;
  }
  return spec;
}

namespace {

/// The experts of the layers after the first `first_k_dense_replace`.
Result<FeedForwardSpec> read_glm4_experts(const json::Value& config) {
  FeedForwardSpec experts;
  BATON_TRY(experts.d_ff, fields::optional_size(config, "moe_intermediate_size", fields::kMaxFeedForward, 1408));
  BATON_TRY_VOID(read_experts(config, {.n_experts = "n_routed_experts"}, experts, 128, 8));
  BATON_TRY(const std::int32_t n_shared, fields::optional_size(config, "n_shared_experts", kMaxExperts, 1));
  if (std::int64_t{n_shared} * experts.d_ff > fields::kMaxFeedForward)
    return fields::bad_value("n_shared_experts", "'n_shared_experts' times 'moe_intermediate_size' must be at most {}, not {}",
                             fields::kMaxFeedForward, std::int64_t{n_shared} * experts.d_ff);
  experts.d_ff_shared = n_shared * experts.d_ff;
  experts.has_choice_bias = true;
  RoutingRule& routing = experts.routing;
  routing.score = RoutingRule::Score::sigmoid;
  routing.added_to_sum = 1e-20f;
  BATON_TRY(routing.renormalises, fields::optional_flag(config, "norm_topk_prob", true));
  BATON_TRY(const double scale, fields::optional_number(config, "routed_scaling_factor", 1e-6, 1e6, 1));
  routing.scale = static_cast<float>(scale);
  BATON_TRY(routing.n_groups, fields::optional_size(config, "n_group", kMaxExpertGroups, 1));
  BATON_TRY(routing.n_groups_per_row, fields::optional_size(config, "topk_group", routing.n_groups, 1));
  if (experts.n_experts % routing.n_groups != 0)
    return fields::bad_value("n_group", "'n_group' must divide the {} experts, not be {}", experts.n_experts, routing.n_groups);
  if (experts.n_experts_per_row > experts.n_experts / routing.n_groups * routing.n_groups_per_row)
    return fields::bad_value("topk_group", "'topk_group' must be so many groups that they have {} experts, not {}",
                             experts.n_experts_per_row, routing.n_groups_per_row);
  return experts;
}

}  // namespace

/// Llama with biases of queries, keys and values and norms of queries and keys if the config states them, heads of which the
/// first half is rotated (element i with i + half of it, not as in GLM-4), and experts with a shared one after the first
/// layers. The files have more layers for drafting (multi-token prediction), `num_nextn_predict_layers`, which are not
/// loaded. The defaults are those of Transformers' Glm4MoeConfig.
Result<ModelSpec> read_glm4_moe(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.n_kv_heads = 8,
                                                       .max_position = 131072,
                                                       .epsilon = 1e-5,
                                                       .rope = {.rotary_factor = 0.5, .allows_partial = true}}));
  name_experts(spec.names);
  spec.names.choice_bias = "model.layers.{}.mlp.gate.e_score_correction_bias";
  name_shared_experts(spec.names);
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  BATON_TRY(const bool has_norms, fields::optional_flag(config, "use_qk_norm", false));
  BATON_TRY(const double n_dense, fields::optional_number(config, "first_k_dense_replace", 0, fields::kMaxLayers, 1));
  BATON_TRY(const double n_draft, fields::optional_number(config, "num_nextn_predict_layers", 0, fields::kMaxLayers, 1));
  BATON_TRY(const FeedForwardSpec experts, read_glm4_experts(config));
  spec.n_draft_layers = static_cast<std::int32_t>(n_draft);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.attention.has_qkv_bias = has_biases;
    if (has_norms) layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
    if (static_cast<double>(i) >= n_dense) layer.feed_forward = experts;
  }
  return spec;
}

}  // namespace baton
