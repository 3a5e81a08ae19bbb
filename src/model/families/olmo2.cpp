/// config.json of an OLMo 2 to its spec.
#include "model/families/readers.h"

#include "model/families/llama.h"

namespace baton {

/// Llama with norms after the blocks instead of before them, and norms of queries and keys over all heads of a row. The
/// defaults are those of Transformers' Olmo2Config.
Result<ModelSpec> read_olmo2(const json::Value& config) {
  BATON_TRY_VOID(fields::expect_null(config, "clip_qkv"));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.epsilon = 1e-5}));
  spec.names.attention_norm = spec.names.feed_forward_norm = "";
  spec.names.attention_post_norm = "model.layers.{}.post_attention_layernorm";
  spec.names.feed_forward_post_norm = "model.layers.{}.post_feedforward_layernorm";
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  for (LayerSpec& layer : spec.layers) {
    layer.has_pre_norms = false;
    layer.has_post_norms = true;
    layer.attention.qk_norm = QkNorm::width;
    layer.attention.qk_norm_spec = layer.norm;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
  }
  return spec;
}

}  // namespace baton
