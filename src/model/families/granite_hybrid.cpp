/// config.json of a Granite 4 to its spec.
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

constexpr fields::Defaults kHybridDefaults{.d_ff = 11008};

void name_hybrid(TensorNames& names) {
  names.recurrent_in = "model.layers.{}.mamba.in_proj";
  names.conv = "model.layers.{}.mamba.conv1d";
  names.a_log = "model.layers.{}.mamba.A_log";
  names.dt_bias = "model.layers.{}.mamba.dt_bias";
  names.skip = "model.layers.{}.mamba.D";
  names.recurrent_norm = "model.layers.{}.mamba.norm";
  names.recurrent_out = "model.layers.{}.mamba.out_proj";
  names.gate = names.up = "";
}

Result<Mamba2Spec> read_mamba2(const Value& config, const ModelSpec& spec) {
  Mamba2Spec mamba;
  BATON_TRY(mamba.n_heads, fields::optional_size(config, "mamba_n_heads", fields::kMaxHeads, 128));
  BATON_TRY(mamba.n_groups, fields::optional_size(config, "mamba_n_groups", fields::kMaxHeads, 1));
  BATON_TRY(mamba.state_dim, fields::optional_size(config, "mamba_d_state", kMaxStateDim, 256));
  BATON_TRY(mamba.n_taps, fields::optional_size(config, "mamba_d_conv", kMaxConvTaps, 4));
  BATON_TRY(const std::int32_t expand, fields::optional_size(config, "mamba_expand", 64, 2));
  const std::int64_t width = std::int64_t{expand} * spec.d_model;
  const Value* const stated = json::find(config, "mamba_d_head");
  const bool is_auto = stated != nullptr && stated->is_string() && *stated == "auto";
  if (is_auto || stated == nullptr || stated->is_null()) {
    mamba.head_dim = static_cast<std::int32_t>(width / mamba.n_heads);
  } else {
    BATON_TRY(mamba.head_dim, fields::required_size(config, "mamba_d_head", kMaxStateDim));
  }
  if (mamba.inner_width() != width)
    return fields::bad_value("mamba_d_head",
                             "'mamba_n_heads' * 'mamba_d_head' must be 'mamba_expand' * 'hidden_size', {}, not {}", width,
                             mamba.inner_width());
  BATON_TRY_VOID(check_mamba2(mamba, "mamba_n_groups", "mamba_d_conv"));
  BATON_TRY(mamba.has_conv_bias, fields::optional_flag(config, "mamba_conv_bias", true));
  BATON_TRY(mamba.has_bias, fields::optional_flag(config, "mamba_proj_bias", false));
  BATON_TRY_VOID(expect_no_time_step_limit(config));
  mamba.n_norm_groups = 1;
  mamba.norm.epsilon = spec.final_norm.epsilon;
  return mamba;
}

/// Gives Mamba-2 to the layers that `layer_types` says: all, if there are none.
Result<void> give_mamba2(const Value& config, ModelSpec& spec) {
  BATON_TRY(const auto types, json::get_optional<std::vector<std::string>>(config, "layer_types"));
  if (types && types->size() != spec.layers.size())
    return fields::bad_value("layer_types", "'layer_types' must name the types of {} layers, not of {}", spec.layers.size(),
                             types->size());
  bool has_attention = false;
  std::vector<bool> is_recurrent;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string type = types ? (*types)[i] : "mamba";
    is_recurrent.push_back(type == "mamba" || type == "linear_attention");
    if (!is_recurrent.back() && type != "attention" && type != "full_attention")
      return fields::unsupported("layer_types", type, R"("mamba" or "attention")");
    has_attention = has_attention || !is_recurrent.back();
  }
  if (!has_attention)
    return fields::bad_value("layer_types", "one of the {} layers must have \"attention\"", spec.layers.size());
  if (std::ranges::count(is_recurrent, true) == 0) return {};
  BATON_TRY(const Mamba2Spec mamba, read_mamba2(config, spec));
  for (std::size_t i = 0; i < spec.layers.size(); ++i)
    if (is_recurrent[i]) spec.layers[i].mamba2 = mamba;
  return {};
}

/// A block as wide as `shared_intermediate_size`, and `num_local_experts` beside it unless they are 0.
Result<FeedForwardSpec> read_hybrid_experts(const Value& config, const FeedForwardSpec& of_layout, TensorNames& names) {
  BATON_TRY(const std::int32_t shared,
            fields::optional_size(config, "shared_intermediate_size", fields::kMaxFeedForward, 1024));
  const Value* const stated = json::find(config, "num_local_experts");
  const bool has_experts = stated == nullptr || stated->is_null() || *stated != 0;
  FeedForwardSpec made = of_layout;
  if (!has_experts) {
    names.gate_up = "model.layers.{}.shared_mlp.input_linear";
    names.down = "model.layers.{}.shared_mlp.output_linear";
    made.d_ff = shared;
    return made;
  }
  names.shared_gate_up = "model.layers.{}.shared_mlp.input_linear";
  names.shared_down = "model.layers.{}.shared_mlp.output_linear";
  names.router = "model.layers.{}.block_sparse_moe.router.layer";
  names.expert_gate_up = "model.layers.{}.block_sparse_moe.input_linear.weight";
  names.expert_down = "model.layers.{}.block_sparse_moe.output_linear.weight";
  names.has_gate_up_in_halves = true;
  names.has_transposed_experts = false;
  BATON_TRY_VOID(read_experts(config, {.n_experts = "num_local_experts"}, made, 8, 2));
  made.routing.renormalises = true;
  made.d_ff_shared = shared;
  return made;
}

}  // namespace

/// Granite with Mamba-2 in most layers, and experts beside a shared one in all layers or none. Queries and keys are rotated only if
/// `position_embedding_type` says "rope". The defaults are those of Transformers' GraniteMoeHybridConfig.
Result<ModelSpec> read_granite_hybrid(const Value& config) {
  BATON_TRY_VOID(fields::expect(config, "normalization_function", "rmsnorm"));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kHybridDefaults));
  name_hybrid(spec.names);
  BATON_TRY_VOID(read_granite_multipliers(config, spec));
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  BATON_TRY(const auto positions, json::get_optional<std::string>(config, "position_embedding_type"));
  if (positions && *positions != "rope" && *positions != "nope")
    return fields::unsupported("position_embedding_type", *positions, R"("rope", "nope" or null)");
  BATON_TRY(const FeedForwardSpec experts, read_hybrid_experts(config, spec.layers.front().feed_forward, spec.names));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
    if (positions != "rope") layer.attention.rope = AttentionSpec::kNoRope;
    layer.feed_forward = experts;
  }
  if (positions != "rope") spec.ropes.clear();
  BATON_TRY_VOID(give_mamba2(config, spec));
  return spec;
}

}  // namespace baton
