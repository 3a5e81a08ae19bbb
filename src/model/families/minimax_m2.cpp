/// config.json of a MiniMax-M2 to its spec.
#include "model/families/readers.h"

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kMiniMaxM2Defaults{
    .n_kv_heads = 8, .head_dim = 128, .max_position = 196608, .rope = {.theta = 5e6, .allows_partial = true}};

/// Fields of the published config whose other values would change the arithmetic.
Result<void> expect_published(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "scoring_func", "sigmoid"));
  BATON_TRY_VOID(fields::expect(config, "use_routing_bias", true));
  BATON_TRY_VOID(fields::expect(config, "use_qk_norm", true));
  BATON_TRY_VOID(fields::expect(config, "qk_norm_type", "per_layer"));
  return fields::expect(config, "shared_intermediate_size", 0);
}

}  // namespace

/// Llama with norms over all queries and all keys of a row, and experts in all layers, chosen by the sigmoid of their logits and
/// a bias. `rotary_dim` says how many elements of a head are rotated, where `partial_rotary_factor` does not. The
/// defaults are those of Transformers' MiniMaxM2Config, which does not read `rotary_dim`; the published code does.
Result<ModelSpec> read_minimax_m2(const json::Value& config) {
  BATON_TRY_VOID(expect_published(config));
  fields::Defaults defaults = kMiniMaxM2Defaults;
  BATON_TRY(const std::int32_t head_dim, fields::optional_size(config, "head_dim", fields::kMaxHeadDim, defaults.head_dim));
  BATON_TRY(const std::int32_t rotary_dim, fields::optional_size(config, "rotary_dim", head_dim, head_dim));
  defaults.rope.rotary_factor = static_cast<double>(rotary_dim) / head_dim;
  BATON_TRY(ModelSpec spec, read_llama_layout(config, defaults));
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  name_mixtral_experts(spec.names);
  spec.names.choice_bias = "model.layers.{}.block_sparse_moe.e_score_correction_bias";
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::width;
    layer.attention.qk_norm_spec = layer.norm;
    BATON_TRY_VOID(read_experts(config, layer.feed_forward, 256, 8));
    layer.feed_forward.routing = {.score = RoutingRule::Score::sigmoid, .renormalises = true};
    layer.feed_forward.has_choice_bias = true;
  }
  return spec;
}

}  // namespace baton
