/// config.json of an EXAONE 4 to its spec.
#include "model/families/readers.h"

#include <cstddef>

#include "model/families/llama.h"

namespace baton {

/// Llama with norms after the blocks instead of before them and norms of queries and keys in each head. With a window, three of
/// four layers have it, and the others are not rotated. The defaults are those of Transformers' Exaone4Config.
Result<ModelSpec> read_exaone4(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.n_kv_heads = 32, .epsilon = 1e-5}));
  give_post_norms(spec);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
  }
  BATON_TRY(const std::int32_t window, fields::read_window(config, 4096));
  std::int32_t period = 4;
  // Published configs have letters here ("LLLG") beside the `layer_types` that count.
  const json::Value* types = json::find(config, "layer_types");
  if (window > 0 && (types == nullptr || types->is_null())) {
    if (const json::Value* pattern = json::find(config, "sliding_window_pattern"); pattern != nullptr && pattern->is_string())
      return fields::unsupported("sliding_window_pattern", *pattern, "a number, or 'layer_types'");
    BATON_TRY(period, fields::optional_size(config, "sliding_window_pattern", fields::kMaxLayers, period));
  }
  BATON_TRY_VOID(fields::read_windows(
      config, window, [=](std::size_t i) { return window > 0 && (i + 1) % static_cast<std::size_t>(period) != 0; }, spec));
  for (LayerSpec& layer : spec.layers)
    if (window > 0 && layer.attention.window == 0) layer.attention.rope = AttentionSpec::kNoRope;
  return spec;
}

}  // namespace baton
