/// config.json of an ERNIE 4.5, without and with experts, to its spec.
#include "model/families/readers.h"

#include <cmath>

#include "model/families/llama.h"

namespace baton {
namespace {

/// Llama that rotates neighbouring elements. Baidu's own code divides positions by `compression_ratio`, which Transformers does
/// not read.
Result<ModelSpec> read_ernie_layout(const json::Value& config, std::int32_t n_kv_heads, std::int32_t head_dim) {
  BATON_TRY_VOID(fields::expect(config, "compression_ratio", 1));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.n_kv_heads = n_kv_heads,
                                                       .head_dim = head_dim,
                                                       .max_position = 131072,
                                                       .epsilon = 1e-5,
                                                       .tie_embeddings = true,
                                                       .rope = {.theta = 500000}}));
  spec.ropes[0].is_interleaved = true;
  return spec;
}

/// A layer's experts. Transformers has a bias in each of them if `use_bias` is set, and no published file does.
Result<FeedForwardSpec> read_ernie_experts(const json::Value& config) {
  FeedForwardSpec experts;
  BATON_TRY(experts.d_ff, fields::optional_size(config, "moe_intermediate_size", fields::kMaxFeedForward, 1536));
  BATON_TRY_VOID(read_experts(config, {.n_experts = "moe_num_experts", .n_experts_per_row = "moe_k"}, experts, 64, 6));
  BATON_TRY(const double n_shared, fields::optional_number(config, "moe_num_shared_experts", 0, kMaxExperts, 2));
  const double d_ff_shared = std::floor(n_shared) * experts.d_ff;
  if (d_ff_shared > fields::kMaxFeedForward)
    return fields::bad_value("moe_num_shared_experts",
                             "'moe_num_shared_experts' times 'moe_intermediate_size' must be at most {}, not {}",
                             fields::kMaxFeedForward, d_ff_shared);
  experts.d_ff_shared = static_cast<std::int32_t>(d_ff_shared);
  experts.has_choice_bias = true;
  BATON_TRY(const double least_sum, fields::optional_number(config, "moe_norm_min", 1e-30, 1, 1e-12));
  experts.routing = {.renormalises = true, .least_sum = static_cast<float>(least_sum)};
  return experts;
}

}  // namespace

/// One flag is for all biases. The defaults are those of Transformers' Ernie4_5Config.
Result<ModelSpec> read_ernie4_5(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_ernie_layout(config, 2, 128));
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "use_bias", false));
  for (LayerSpec& layer : spec.layers)
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = layer.feed_forward.has_bias = has_biases;
  return spec;
}

/// Experts are in every `moe_layer_interval`-th layer from `moe_layer_start_index` to `moe_layer_end_index`, chosen by their
/// softmax and a bias, with a shared expert as wide as `moe_num_shared_experts` of them. The defaults are those of
/// Transformers' Ernie4_5_MoeConfig.
Result<ModelSpec> read_ernie4_5_moe(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "use_bias", false));
  BATON_TRY(ModelSpec spec, read_ernie_layout(config, 4, 0));
  name_experts(spec.names);
  spec.names.choice_bias = "model.layers.{}.mlp.moe_statics.e_score_correction_bias";
  name_shared_experts(spec.names);
  BATON_TRY(const FeedForwardSpec experts, read_ernie_experts(config));
  BATON_TRY(const double first, fields::optional_number(config, "moe_layer_start_index", 0, fields::kMaxLayers, 1));
  BATON_TRY(const double last, fields::optional_number(config, "moe_layer_end_index", -1, fields::kMaxLayers, -1));
  BATON_TRY(const std::int32_t interval, fields::optional_size(config, "moe_layer_interval", fields::kMaxLayers, 1));
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const auto index = static_cast<double>(i);
    const bool is_inside = index >= first && (last == -1 || index <= last);
    if (is_inside && (i + 1) % static_cast<std::size_t>(interval) == 0) spec.layers[i].feed_forward = experts;
  }
  return spec;
}

}  // namespace baton
