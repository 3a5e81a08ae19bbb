/// What several readers of families have in common.
#include "model/families/readers.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/ops.h"
#include "model/config_fields.h"

namespace baton {

Result<void> read_experts(const json::Value& config, const ExpertFields& of, FeedForwardSpec& spec, std::int32_t n_experts,
                          std::int32_t n_experts_per_row) {
  BATON_TRY(spec.n_experts, fields::optional_size(config, of.n_experts, kMaxExperts, n_experts));
  BATON_TRY(spec.n_experts_per_row, fields::optional_size(config, of.n_experts_per_row,
                                                          std::min(kMaxExpertsPerRow, spec.n_experts), n_experts_per_row));
  return {};
}

Result<void> read_experts(const json::Value& config, FeedForwardSpec& spec, std::int32_t n_experts,
                          std::int32_t n_experts_per_row) {
  const bool is_new = json::find(config, "num_local_experts") != nullptr;
  return read_experts(config, {.n_experts = is_new ? "num_local_experts" : "num_experts"}, spec, n_experts, n_experts_per_row);
}

Result<FeedForwardSpec> read_grouped_experts(const json::Value& config, const GroupedExpertDefaults& defaults) {
  FeedForwardSpec experts;
  BATON_TRY(experts.d_ff, fields::optional_size(config, "moe_intermediate_size", fields::kMaxFeedForward, defaults.d_ff));
  const ExpertFields names{.n_experts = "n_routed_experts"};
  if (defaults.n_experts_per_row == 0 && json::find(config, names.n_experts_per_row) == nullptr)
    return json::missing(names.n_experts_per_row);
  BATON_TRY_VOID(read_experts(config, names, experts, defaults.n_experts, defaults.n_experts_per_row));
  BATON_TRY(const std::int32_t n_shared, fields::optional_size(config, "n_shared_experts", kMaxExperts, defaults.n_shared));
  if (std::int64_t{n_shared} * experts.d_ff > fields::kMaxFeedForward)
    return fields::bad_value("n_shared_experts", "'n_shared_experts' times 'moe_intermediate_size' must be at most {}, not {}",
                             fields::kMaxFeedForward, std::int64_t{n_shared} * experts.d_ff);
  experts.d_ff_shared = n_shared * experts.d_ff;
  RoutingRule& routing = experts.routing;
  BATON_TRY(routing.renormalises, fields::optional_flag(config, "norm_topk_prob", defaults.renormalises));
  BATON_TRY(const double scale, fields::optional_number(config, "routed_scaling_factor", 1e-6, 1e6, defaults.scale));
  routing.scale = static_cast<float>(scale);
  BATON_TRY(routing.n_groups, fields::optional_size(config, "n_group", kMaxExpertGroups, defaults.n_groups));
  BATON_TRY(routing.n_groups_per_row, fields::optional_size(config, "topk_group", routing.n_groups,
                                                            std::min(routing.n_groups, defaults.n_groups_per_row)));
  if (experts.n_experts % routing.n_groups != 0)
    return fields::bad_value("n_group", "'n_group' must divide the {} experts, not be {}", experts.n_experts, routing.n_groups);
  if (experts.n_experts_per_row > experts.n_experts / routing.n_groups * routing.n_groups_per_row)
    return fields::bad_value("topk_group", "'topk_group' must be so many groups that they have {} experts, not {}",
                             experts.n_experts_per_row, routing.n_groups_per_row);
  return experts;
}

Result<ModelSpec> read_text_model(const json::Value& config, Result<ModelSpec> (*read)(const json::Value&)) {
  BATON_TRY(json::Value text, json::get<json::Value>(config, "text_config"));
  if (!text.is_object()) return json::wrong_type("text_config", "an object", text);
  for (const std::string_view key : {"tie_word_embeddings", "dtype", "torch_dtype", "bos_token_id", "eos_token_id"})
    if (const json::Value* found = json::find(config, key); found != nullptr && !found->is_null())
      text[std::string(key)] = *found;
  BATON_TRY(ModelSpec spec, read(text));
  spec.other_roots = {{.model = "language_model.model.", .lm_head = "language_model.lm_head"},  // Transformers 4
                      {.model = "model.language_model.", .lm_head = "lm_head"}};                // 5
  return spec;
}

Result<void> expect_no_time_step_limit(const json::Value& config) {
  constexpr std::string_view kKey = "time_step_limit";
  const json::Value* const found = json::find(config, kKey);
  if (found == nullptr || found->is_null()) return {};
  const auto is_infinite = [](const json::Value& number) {
    if (number.is_object()) return number == json::Value{{"__float__", "Infinity"}};
    return number.is_number_float() && std::isinf(number.get<double>());
  };
  const bool has_none = found->is_array() && found->size() == 2 && (*found)[0] == 0 && is_infinite((*found)[1]);
  return has_none ? Result<void>{} : fields::unsupported(kKey, *found, "[0.0, Infinity]");
}

Result<void> check_mamba2(const Mamba2Spec& mamba, std::string_view n_groups, std::string_view n_taps) {
  if (mamba.n_heads % mamba.n_groups != 0)
    return fields::bad_value(n_groups, "'{}' must divide the {} heads of Mamba-2, not be {}", n_groups, mamba.n_heads,
                             mamba.n_groups);
  if (mamba.n_taps < 2) return fields::bad_value(n_taps, "'{}' must be at least 2, not {}", n_taps, mamba.n_taps);
  return {};
}

Result<void> read_ropes_of_types(const json::Value& config, const fields::RopeContext& full, const fields::RopeContext& sliding,
                                 ModelSpec& spec) {
  const json::Value* parameters = json::find(config, "rope_parameters");
  const json::Value none = json::Value::object();
  if (parameters == nullptr || parameters->is_null()) parameters = &none;
  if (!parameters->is_object()) return json::wrong_type("rope_parameters", "an object", *parameters);
  for (const auto& [key, value] : parameters->items())
    if (key != "full_attention" && key != "sliding_attention")
      return fields::unsupported("rope_parameters", *parameters,
                                 "an object for \"full_attention\" and for \"sliding_attention\"");
  const json::Value* of_full = json::find(*parameters, "full_attention");
  json::Value both = of_full != nullptr && of_full->is_object() ? *of_full : json::Value::object();
  if (const json::Value* scaling = json::find(config, "rope_scaling"); scaling != nullptr && !scaling->is_null()) {
    if (!scaling->is_object()) return json::wrong_type("rope_scaling", "an object", *scaling);
    both.update(*scaling);
    of_full = &both;
  }
  BATON_TRY(RopeSpec first, fields::read_rope_parameters(of_full, full));
  BATON_TRY(RopeSpec second, fields::read_rope_parameters(json::find(*parameters, "sliding_attention"), sliding));
  spec.ropes = {std::move(first), std::move(second)};
  for (LayerSpec& layer : spec.layers) layer.attention.rope = layer.attention.window > 0 ? 1 : 0;
  return {};
}

}  // namespace baton
