/// Reads a Mixtral's config.json.
#include "model/families/readers.h"

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kMixtralDefaults{.n_kv_heads = 8, .max_position = 131072, .epsilon = 1e-5, .rope = {.theta = 1e6}};

}  // namespace

/// All layers have experts, whose weights are the softmax over the chosen ones, and the window of `sliding_window`, if
/// any. The defaults are those of Transformers' MixtralConfig.
Result<ModelSpec> read_mixtral(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "attention_bias", false));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kMixtralDefaults));
  name_mixtral_experts(spec.names);
  BATON_TRY(const std::int32_t window, fields::read_window(config, 0));
  for (LayerSpec& layer : spec.layers) {
    BATON_TRY_VOID(read_experts(config, layer.feed_forward, 8, 2));
    layer.feed_forward.routing.renormalises = true;
    layer.attention.window = window;
  }
  return spec;
}

}  // namespace baton
