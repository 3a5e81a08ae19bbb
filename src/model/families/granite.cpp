/// config.json of a Granite to its spec.
#include "model/families/readers.h"

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr double kMaxMultiplier = 1e6;

/// A factor above 0; 1 if the field is absent.
Result<float> read_multiplier(const json::Value& config, std::string_view key) {
  BATON_TRY(const double factor, fields::optional_number(config, key, 1 / kMaxMultiplier, kMaxMultiplier, 1));
  return static_cast<float>(factor);
}

}  // namespace

Result<void> read_granite_multipliers(const json::Value& config, ModelSpec& spec) {
  BATON_TRY(spec.embedding_scale, read_multiplier(config, "embedding_multiplier"));
  BATON_TRY(const float divisor, read_multiplier(config, "logits_scaling"));
  spec.logits_scale = 1 / divisor;
  BATON_TRY(const float residual, read_multiplier(config, "residual_multiplier"));
  BATON_TRY(const float scale, read_multiplier(config, "attention_multiplier"));
  for (LayerSpec& layer : spec.layers) {
    layer.residual_scale = residual;
    layer.attention.scale = scale;
  }
  return {};
}

/// Llama with these factors. The defaults are those of Transformers' GraniteConfig.
Result<ModelSpec> read_granite(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {}));
  BATON_TRY_VOID(read_llama_biases(config, spec));
  BATON_TRY_VOID(read_granite_multipliers(config, spec));
  return spec;
}

}  // namespace baton
