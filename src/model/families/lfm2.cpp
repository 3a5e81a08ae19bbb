/// config.json of an LFM2 to its spec.
#include "model/families/readers.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/state_storage.h"
#include "model/families/llama.h"

namespace baton {
namespace {

using json::Value;

constexpr fields::RopeContext kLfm2Rope{.theta = 1e6};
constexpr fields::Defaults kLfm2Defaults{
    .d_ff = 12288, .n_kv_heads = 8, .max_position = 128000, .tie_embeddings = true, .rope = kLfm2Rope};
constexpr fields::Defaults kLfm2MoeDefaults{
    .d_ff = 7168, .n_kv_heads = 8, .max_position = 128000, .tie_embeddings = true, .rope = kLfm2Rope};

void name_lfm2(TensorNames& names) {
  names.attention_norm = "model.layers.{}.operator_norm";
  names.feed_forward_norm = "model.layers.{}.ffn_norm";
  names.attention_out = "model.layers.{}.self_attn.out_proj";
  names.q_norm = "model.layers.{}.self_attn.q_layernorm";
  names.k_norm = "model.layers.{}.self_attn.k_layernorm";
  names.recurrent_in = "model.layers.{}.conv.in_proj";
  names.conv = "model.layers.{}.conv.conv";
  names.recurrent_out = "model.layers.{}.conv.out_proj";
  names.gate = "model.layers.{}.feed_forward.w1";
  names.up = "model.layers.{}.feed_forward.w3";
  names.down = "model.layers.{}.feed_forward.w2";
  names.final_norm = "model.embedding_norm";
}

/// Gives a convolution to the layers that are none of `layer_types`' "full_attention" nor, without these, of `full_attn_idxs`.
Result<void> give_convolutions(const Value& config, const ShortConvSpec& conv, ModelSpec& spec) {
  BATON_TRY(const auto types, json::get_optional<std::vector<std::string>>(config, "layer_types"));
  BATON_TRY(const auto with_attention, json::get_optional<std::vector<std::int32_t>>(config, "full_attn_idxs"));
  if (types && types->size() != spec.layers.size())
    return fields::bad_value("layer_types", "'layer_types' must name the types of {} layers, not of {}", spec.layers.size(),
                             types->size());
  bool has_attention = false;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    bool is_conv = false;
    if (types) {
      if ((*types)[i] != "conv" && (*types)[i] != "full_attention")
        return fields::unsupported("layer_types", (*types)[i], R"("full_attention" or "conv")");
      is_conv = (*types)[i] == "conv";
    } else if (with_attention) {
      is_conv = std::ranges::find(*with_attention, static_cast<std::int32_t>(i)) == with_attention->end();
    }
    if (is_conv) spec.layers[i].conv = conv;
    has_attention = has_attention || !is_conv;
  }
  if (!has_attention)
    return fields::bad_value(types ? "layer_types" : "full_attn_idxs", "one of the {} layers must have attention",
                             spec.layers.size());
  return {};
}

/// Llama with norms of queries and keys, and short convolutions in most layers.
Result<ModelSpec> read_lfm2_layout(const Value& config, const fields::Defaults& defaults) {
  BATON_TRY(ModelSpec spec, read_llama_layers(config, defaults));
  BATON_TRY(RopeSpec rope, fields::read_rope(config, rope_context(defaults, spec)));
  spec.ropes.push_back(std::move(rope));
  name_lfm2(spec.names);
  BATON_TRY(spec.tie_embeddings, fields::optional_flag(config, "tie_embedding", spec.tie_embeddings));
  BATON_TRY(const double epsilon, fields::optional_number(config, "norm_eps", 1e-12, 1, 1e-5));
  spec.final_norm.epsilon = static_cast<float>(epsilon);
  for (LayerSpec& layer : spec.layers) {
    layer.norm = spec.final_norm;
    layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
  }
  ShortConvSpec conv{.n_channels = spec.d_model};
  BATON_TRY(conv.n_taps, fields::optional_size(config, "conv_L_cache", kMaxConvTaps, 3));
  if (conv.n_taps < 2) return fields::bad_value("conv_L_cache", "'conv_L_cache' must be at least 2, not {}", conv.n_taps);
  BATON_TRY(conv.has_bias, fields::optional_flag(config, "conv_bias", false));
  BATON_TRY_VOID(give_convolutions(config, conv, spec));
  return spec;
}

/// Two thirds of the stated width, times `block_ffn_dim_multiplier`, both rounded down, and up to a multiple of
/// `block_multiple_of`; the stated width itself without `block_auto_adjust_ff_dim`.
Result<std::int32_t> read_width(const Value& config, std::int32_t stated) {
  BATON_TRY(std::int32_t width, fields::optional_size(config, "block_ff_dim", fields::kMaxFeedForward, stated));
  BATON_TRY(const bool adjusts, fields::optional_flag(config, "block_auto_adjust_ff_dim", true));
  if (!adjusts) return width;
  BATON_TRY(const double factor, fields::optional_number(config, "block_ffn_dim_multiplier", 1e-3, 1e3, 1));
  BATON_TRY(const std::int32_t step, fields::optional_size(config, "block_multiple_of", fields::kMaxFeedForward, 256));
  width = static_cast<std::int32_t>(2 * std::int64_t{width} / 3);
  const auto scaled = static_cast<std::int64_t>(factor * width);
  const std::int64_t rounded = std::max<std::int64_t>(1, (scaled + step - 1) / step) * step;
  if (rounded > fields::kMaxFeedForward)
    return fields::bad_value("block_ffn_dim_multiplier", "the width {} of feed-forward blocks must be at most {}", rounded,
                             fields::kMaxFeedForward);
  return static_cast<std::int32_t>(rounded);
}

}  // namespace

/// The defaults are those of Transformers' Lfm2Config.
Result<ModelSpec> read_lfm2(const Value& config) {
  BATON_TRY(ModelSpec spec, read_lfm2_layout(config, kLfm2Defaults));
  BATON_TRY(const std::int32_t width, read_width(config, spec.layers.front().feed_forward.d_ff));
  for (LayerSpec& layer : spec.layers) layer.feed_forward.d_ff = width;
  return spec;
}

/// With experts in all layers but the first `num_dense_layers`, chosen by the sigmoid of their logits and a bias. The defaults are
/// those of Transformers' Lfm2MoeConfig.
Result<ModelSpec> read_lfm2_moe(const Value& config) {
  BATON_TRY(ModelSpec spec, read_lfm2_layout(config, kLfm2MoeDefaults));
  spec.names.router = "model.layers.{}.feed_forward.gate";
  spec.names.choice_bias = "model.layers.{}.feed_forward.expert_bias";
  spec.names.expert_gate = "model.layers.{}.feed_forward.experts.{}.w1";
  spec.names.expert_up = "model.layers.{}.feed_forward.experts.{}.w3";
  spec.names.expert_down = "model.layers.{}.feed_forward.experts.{}.w2";
  FeedForwardSpec experts;
  BATON_TRY(experts.d_ff, fields::optional_size(config, "moe_intermediate_size", fields::kMaxFeedForward, 1792));
  BATON_TRY_VOID(read_experts(config, experts, 32, 4));
  BATON_TRY(experts.has_choice_bias, fields::optional_flag(config, "use_expert_bias", true));
  BATON_TRY(const bool renormalises, fields::optional_flag(config, "norm_topk_prob", true));
  BATON_TRY(const double scale, fields::optional_number(config, "routed_scaling_factor", 1e-6, 1e6, 1));
  experts.routing = {.score = RoutingRule::Score::sigmoid,
                     .renormalises = renormalises,
                     .added_to_sum = 1e-6f,
                     .scale = static_cast<float>(scale)};
  BATON_TRY(const double n_dense, fields::optional_number(config, "num_dense_layers", 0, fields::kMaxLayers, 2));
  for (std::size_t i = 0; i < spec.layers.size(); ++i)
    if (static_cast<double>(i) >= n_dense) spec.layers[i].feed_forward = experts;
  return spec;
}

}  // namespace baton
