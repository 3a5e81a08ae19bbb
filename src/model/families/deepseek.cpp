/// config.json of a DeepSeek V2, V3, R1 or V3.1, or of a Kimi K2, to its spec.
#include "model/families/readers.h"

#include <string>

#include "model/families/latent.h"
#include "model/families/llama.h"

namespace baton {
namespace {

constexpr LatentDefaults kDeepseekV2Defaults{.model = {.max_position = 2048}};
constexpr LatentDefaults kDeepseekV3Defaults{.model = {.max_position = 4096}};

constexpr GroupedExpertDefaults kV2Experts{.d_ff = 1407, .n_experts = 64, .n_experts_per_row = 0, .n_shared = 2};
constexpr GroupedExpertDefaults kV3Experts{.d_ff = 2048,
                                           .n_experts = 256,
                                           .n_experts_per_row = 8,
                                           .n_shared = 1,
                                           .n_groups = 8,
                                           .n_groups_per_row = 4,
                                           .renormalises = true,
                                           .scale = 2.5};

/// `topk_method` of a V2: all experts are in one group, or a group is as good as its best expert. Weights are the softmax over all
/// experts.
Result<FeedForwardSpec> read_v2_experts(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "scoring_func", "softmax"));
  BATON_TRY_VOID(fields::expect(config, "norm_topk_prob", false));
  BATON_TRY(const auto method, json::get_optional<std::string>(config, "topk_method"));
  const bool has_groups = method && *method == "group_limited_greedy";
  if (method && !has_groups && *method != "greedy")
    return fields::unsupported("topk_method", *method, R"("greedy" or "group_limited_greedy")");
  BATON_TRY(FeedForwardSpec experts, read_grouped_experts(config, kV2Experts));
  experts.routing.group_score = RoutingRule::GroupScore::best;
  if (!has_groups) experts.routing.n_groups = experts.routing.n_groups_per_row = 1;
  return experts;
}

/// Scores are sigmoids, to which a bias is added for the choice.
Result<FeedForwardSpec> read_v3_experts(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "scoring_func", "sigmoid"));
  BATON_TRY_VOID(fields::expect(config, "topk_method", "noaux_tc"));
  BATON_TRY(FeedForwardSpec experts, read_grouped_experts(config, kV3Experts));
  experts.has_choice_bias = true;
  experts.routing.score = RoutingRule::Score::sigmoid;
  experts.routing.added_to_sum = 1e-20f;
  return experts;
}

/// Gives experts to the layers after the first `first_k_dense_replace`.
Result<void> give_experts(const json::Value& config, const FeedForwardSpec& experts, std::int32_t n_dense, ModelSpec& spec) {
  BATON_TRY_VOID(fields::expect(config, "moe_layer_freq", 1));
  BATON_TRY(const double first, fields::optional_number(config, "first_k_dense_replace", 0, fields::kMaxLayers, n_dense));
  for (std::size_t i = 0; i < spec.layers.size(); ++i)
    if (static_cast<double>(i) >= first) spec.layers[i].feed_forward = experts;
  return {};
}

}  // namespace

/// The defaults are those of Transformers' DeepseekV2Config.
Result<ModelSpec> read_deepseek_v2(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_latent_layout(config, kDeepseekV2Defaults));
  spec.n_draft_layers = 0;
  BATON_TRY(const FeedForwardSpec experts, read_v2_experts(config));
  BATON_TRY_VOID(give_experts(config, experts, 0, spec));
  return spec;
}

/// The defaults are those of Transformers' DeepseekV3Config.
Result<ModelSpec> read_deepseek_v3(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_latent_layout(config, kDeepseekV3Defaults));
  spec.names.choice_bias = "model.layers.{}.mlp.gate.e_score_correction_bias";
  BATON_TRY(const FeedForwardSpec experts, read_v3_experts(config));
  BATON_TRY_VOID(give_experts(config, experts, 3, spec));
  LayerSpec drafting = spec.layers.back();
  drafting.feed_forward = experts;
  if (spec.n_draft_layers > 0) give_mtp_layer(drafting, spec);
  return spec;
}

/// The text model of a Kimi K2.5: a DeepSeek V3 in all but its sizes.
Result<ModelSpec> read_kimi_k25(const json::Value& config) { return read_text_model(config, read_deepseek_v3); }

}  // namespace baton
