/// config.json of a Cohere2 to its spec.
#include "model/families/readers.h"

#include <cstddef>

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kCohere2Defaults{.max_position = 8192, .tie_embeddings = true};

}  // namespace

/// Layer norms without biases, parallel blocks, a factor of the logits, a window in three of four layers, and a rotation
/// of neighbouring elements in those alone. The defaults are those of Transformers' Cohere2Config.
Result<ModelSpec> read_cohere2(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "use_qk_norm", false));
  BATON_TRY_VOID(fields::expect(config, "use_parallel_block", true));
  BATON_TRY_VOID(fields::expect(config, "use_gated_activation", true));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, kCohere2Defaults));
  spec.names.feed_forward_norm = "";
  spec.ropes[0].is_interleaved = true;
  BATON_TRY(const double logits_scale, fields::optional_number(config, "logit_scale", 1e-6, 1e6, 0.0625));
  spec.logits_scale = static_cast<float>(logits_scale);
  BATON_TRY(const double epsilon, fields::optional_number(config, "layer_norm_eps", 1e-12, 1, 1e-5));
  spec.final_norm = {.kind = NormSpec::Kind::layer, .epsilon = static_cast<float>(epsilon)};
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  BATON_TRY(const std::int32_t window, fields::read_window(config, 4096));
  BATON_TRY(const std::int32_t period, fields::optional_size(config, "sliding_window_pattern", fields::kMaxLayers, 4));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [period](std::size_t i) { return (i + 1) % static_cast<std::size_t>(period) != 0; }, spec));
  for (LayerSpec& layer : spec.layers) {
    layer.is_parallel = true;
    layer.norm = spec.final_norm;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
    if (layer.attention.window == 0) layer.attention.rope = AttentionSpec::kNoRope;
  }
  const AttentionSpec& attention = spec.layers[0].attention;
  if (attention.q_width() != spec.d_model)  // Transformers overwrites the field
    return fields::unsupported("head_dim", attention.head_dim, "'hidden_size' / 'num_attention_heads'");
  return spec;
}

}  // namespace baton
