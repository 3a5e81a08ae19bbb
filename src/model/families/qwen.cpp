/// Reads a Qwen's config.json.
#include "model/families/readers.h"

#include "model/families/llama.h"

namespace baton {
namespace {

/// Reads the sliding windows. `sliding_window` counts if `use_sliding_window` is set. Without `layer_types` the layers
/// from `max_window_layers` on have it.
Result<void> read_qwen_windows(const json::Value& config, ModelSpec& spec) {
  BATON_TRY(const std::int32_t window, fields::read_used_window(config, 4096));
  BATON_TRY(const double first, fields::optional_number(config, "max_window_layers", 0, fields::kMaxLayers, 28));
  return fields::read_windows(
      config, window, [=](std::size_t i) { return window > 0 && static_cast<double>(i) >= first; }, spec);
}

}  // namespace

/// Llama with biases of queries, keys and values, and windows in some layers if the config uses them. The defaults are
/// those of Transformers' Qwen2Config.
Result<ModelSpec> read_qwen2(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.n_kv_heads = 32, .max_position = 32768}));
  for (LayerSpec& layer : spec.layers) layer.attention.has_qkv_bias = true;
  BATON_TRY_VOID(read_qwen_windows(config, spec));
  return spec;
}

/// Qwen2 with norms of queries and keys in each head, and biases only if the config states them. The defaults are those
/// of Transformers' Qwen3Config.
Result<ModelSpec> read_qwen3(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.n_kv_heads = 32, .head_dim = 128, .max_position = 32768}));
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::head;
    layer.attention.qk_norm_spec = layer.norm;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
  }
  BATON_TRY_VOID(read_qwen_windows(config, spec));
  return spec;
}

}  // namespace baton
