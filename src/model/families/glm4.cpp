/// config.json of a GLM-4 (0414), or of a GLM-4.5, 4.6 or 4.7 with experts, GLM-4.7-Flash among them, to its spec.
#include "model/families/readers.h"

#include <string>
#include <vector>

#include "model/families/latent.h"
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

constexpr GroupedExpertDefaults kGlm4MoeExperts{
    .d_ff = 1408, .n_experts = 128, .n_experts_per_row = 8, .n_shared = 1, .renormalises = true};
constexpr GroupedExpertDefaults kGlm4LiteExperts{
    .d_ff = 1536, .n_experts = 64, .n_experts_per_row = 4, .n_shared = 1, .renormalises = true, .scale = 1.8};
constexpr LatentDefaults kGlm4LiteDefaults{
    .model = {.n_kv_heads = 20, .max_position = 202752, .epsilon = 1e-5}, .q_rank = 768, .nope_dim = 192, .v_dim = 256};

/// Experts that are chosen by their sigmoids and a bias.
Result<FeedForwardSpec> read_glm4_experts(const json::Value& config, const GroupedExpertDefaults& defaults) {
  BATON_TRY(FeedForwardSpec experts, read_grouped_experts(config, defaults));
  experts.has_choice_bias = true;
  experts.routing.score = RoutingRule::Score::sigmoid;
  experts.routing.added_to_sum = 1e-20f;
  return experts;
}

}  // namespace

/// Llama with biases of queries, keys and values and norms of queries and keys if the config states them, heads of which the
/// first half is rotated (element i with i + half of it, not as in GLM-4), and experts with a shared one after the first
/// layers. The files have more layers for drafting (multi-token prediction), `num_nextn_predict_layers`, of which the first can be
/// used. The defaults are those of Transformers' Glm4MoeConfig.
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
  BATON_TRY(const FeedForwardSpec experts, read_glm4_experts(config, kGlm4MoeExperts));
  spec.n_draft_layers = static_cast<std::int32_t>(n_draft);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.attention.has_qkv_bias = has_biases;
    if (has_norms) layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
    if (static_cast<double>(i) >= n_dense) layer.feed_forward = experts;
  }
  LayerSpec drafting = spec.layers.back();
  drafting.feed_forward = experts;
  if (spec.n_draft_layers > 0) give_mtp_layer(drafting, spec);
  return spec;
}

/// Latent attention, and experts with a shared one in the layers that `mlp_layer_types` calls "sparse", without it all after the
/// first `first_k_dense_replace`. The defaults are those of Transformers' Glm4MoeLiteConfig.
Result<ModelSpec> read_glm4_moe_lite(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_latent_layout(config, kGlm4LiteDefaults));
  spec.names.choice_bias = "model.layers.{}.mlp.gate.e_score_correction_bias";
  BATON_TRY(const FeedForwardSpec experts, read_glm4_experts(config, kGlm4LiteExperts));
  BATON_TRY(const double n_dense, fields::optional_number(config, "first_k_dense_replace", 0, fields::kMaxLayers, 1));
  std::vector<std::string> types;
  for (std::size_t i = 0; i < spec.layers.size(); ++i)
    types.emplace_back(static_cast<double>(i) < n_dense ? "dense" : "sparse");
  if (const json::Value* given = json::find(config, "mlp_layer_types"); given != nullptr && !given->is_null()) {
    BATON_TRY(types, json::get<std::vector<std::string>>(config, "mlp_layer_types"));
  }
  if (types.size() != spec.layers.size())
    return fields::bad_value("mlp_layer_types", "'mlp_layer_types' must name the types of {} layers, not of {}",
                             spec.layers.size(), types.size());
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (types[i] != "sparse" && types[i] != "dense")
      return fields::unsupported("mlp_layer_types", types[i], R"("dense" or "sparse")");
    if (types[i] == "sparse") spec.layers[i].feed_forward = experts;
  }
  LayerSpec drafting = spec.layers.back();
  drafting.feed_forward = experts;
  if (spec.n_draft_layers > 0) give_mtp_layer(drafting, spec);
  return spec;
}

}  // namespace baton
