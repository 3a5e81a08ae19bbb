/// Reads the config.json of a Mistral, a Ministral, a Ministral 3 or a Mistral Small 4.
#include "model/families/readers.h"

#include <algorithm>
#include <utility>

#include "model/families/latent.h"
#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kMistralDefaults{.n_kv_heads = 8, .max_position = 131072};
constexpr fields::Defaults kMinistral3Defaults{
    .n_kv_heads = 8, .head_dim = 128, .max_position = 262144, .epsilon = 1e-5, .rope = {.scales_queries = true}};
constexpr LatentDefaults kMistral4Defaults{.model = {.max_position = 1048576, .rope = {.scales_queries = true}},
                                           .q_rank = 1024,
                                           .rank = 256,
                                           .nope_dim = 64,
                                           .factor_is_of_query = true};
constexpr GroupedExpertDefaults kMistral4Experts{
    .d_ff = 2048, .n_experts = 128, .n_experts_per_row = 4, .n_shared = 1, .renormalises = true};
constexpr std::int32_t kMistralWindow = 4096;  // if the field is absent

/// All layers have the window, or none. Transformers ignores the types of these models' layers. A config that means other windows
/// is one of another family.
Result<void> read_window_of_all(const json::Value& config, std::int32_t fallback, ModelSpec& spec) {
  BATON_TRY(const std::int32_t window, fields::read_window(config, fallback));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [window](std::size_t) { return window > 0; }, spec));
  const auto has_another_window = [window](const LayerSpec& layer) { return layer.attention.window != window; };
  if (std::ranges::any_of(spec.layers, has_another_window))
    return fields::unsupported("layer_types", *json::find(config, "layer_types"),
                               window > 0 ? "\"sliding_attention\" in all layers of a Mistral with 'sliding_window'"
                                          : "\"full_attention\" in all layers of a Mistral without 'sliding_window'");
  return {};
}

}  // namespace

/// Llama with one window in all layers or none. The defaults are those of Transformers' MistralConfig.
Result<ModelSpec> read_mistral(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "attention_bias", false));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kMistralDefaults));
  BATON_TRY_VOID(read_window_of_all(config, kMistralWindow, spec));
  return spec;
}

/// The same with queries that are scaled by their positions. The defaults are those of Transformers' Ministral3Config, but the
/// rotation must be stated.
Result<ModelSpec> read_ministral3(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "attention_bias", false));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kMinistral3Defaults));
  BATON_TRY_VOID(read_window_of_all(config, 0, spec));
  return spec;
}

/// Latent attention with queries that are scaled by their positions, and experts with a shared one after the first
/// `first_k_dense_replace` layers, by softmax. The defaults are those of Transformers' Mistral4Config, but the rotation must be
/// stated.
Result<ModelSpec> read_mistral4(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_latent_layout(config, kMistral4Defaults));
  spec.n_draft_layers = 0;
  spec.names.expert_gate_up = "model.layers.{}.mlp.experts.gate_up_proj";
  spec.names.expert_down = "model.layers.{}.mlp.experts.down_proj";
  spec.names.has_gate_up_in_halves = true;
  spec.names.has_transposed_experts = false;
  BATON_TRY(const FeedForwardSpec experts, read_grouped_experts(config, kMistral4Experts));
  BATON_TRY(const double n_dense, fields::optional_number(config, "first_k_dense_replace", 0, fields::kMaxLayers, 0));
  for (std::size_t i = 0; i < spec.layers.size(); ++i)
    if (static_cast<double>(i) >= n_dense) spec.layers[i].feed_forward = experts;
  return spec;
}

/// The text model inside a Mistral Small 3 or 4, a Ministral 3 or a Devstral Small 2 that also takes images: `text_config`, which
/// must be one of these three's.
Result<ModelSpec> read_mistral3(const json::Value& config) {
  BATON_TRY(const auto text, json::get<json::Value>(config, "text_config"));
  const json::Value* type = json::find(text, "model_type");
  if (type == nullptr || type->is_null() || *type == "mistral") return read_text_model(config, read_mistral);
  if (*type == "ministral3") return read_text_model(config, read_ministral3);
  if (*type == "mistral4") return read_text_model(config, read_mistral4);
  return fields::unsupported("model_type", *type, R"("mistral", "ministral3" or "mistral4")");
}

/// `layer_types` says which layers have the window. The defaults are those of Transformers' MinistralConfig.
Result<ModelSpec> read_ministral(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "attention_bias", false));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kMistralDefaults));
  BATON_TRY(const std::int32_t window, fields::read_window(config, kMistralWindow));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [window](std::size_t) { return window > 0; }, spec));
  return spec;
}

}  // namespace baton
