/// Reads the config.json of a Mistral or a Ministral.
#include "model/families/readers.h"

#include <algorithm>

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kMistralDefaults{.n_kv_heads = 8, .max_position = 131072};
constexpr std::int32_t kMistralWindow = 4096;  // if the field is absent

}  // namespace

/// All layers have the window, or none. The defaults are those of Transformers' MistralConfig.
Result<ModelSpec> read_mistral(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "attention_bias", false));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kMistralDefaults));
  BATON_TRY(const std::int32_t window, fields::read_window(config, kMistralWindow));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [window](std::size_t) { return window > 0; }, spec));
  // Transformers ignores the types of a Mistral's layers. A config that means other windows is one of another family.
  const auto has_another_window = [window](const LayerSpec& layer) { return layer.attention.window != window; };
  if (std::ranges::any_of(spec.layers, has_another_window))
    return fields::unsupported("layer_types", *json::find(config, "layer_types"),
                               window > 0 ? "\"sliding_attention\" in all layers of a Mistral with 'sliding_window'"
                                          : "\"full_attention\" in all layers of a Mistral without 'sliding_window'");
  return spec;
}

/// The text model inside a Mistral Small 3 that also takes images: `text_config`, which must be a Mistral's.
Result<ModelSpec> read_mistral3(const json::Value& config) {
  BATON_TRY(const auto text, json::get<json::Value>(config, "text_config"));
  BATON_TRY_VOID(fields::expect(text, "model_type", "mistral"));
  return read_text_model(config, read_mistral);
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
