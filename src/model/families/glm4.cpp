/// config.json of a GLM-4 (0414) to its spec.
#include "model/families/readers.h"

#include "model/families/llama.h"

namespace baton {

/// Llama with norms after both blocks, too, gate and up in one tensor, biases of queries, keys and values, and heads of which
/// neighbouring elements of the first half are rotated. The defaults are those of Transformers' Glm4Config.
Result<ModelSpec> read_glm4(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.n_kv_heads = 2,
                                                       .head_dim = 128,
                                                       .max_position = 131072,
                                                       .epsilon = 1.5625e-7,
                                                       .rope = {.rotary_factor = 0.5, .allows_partial = true}}));
  spec.ropes[0].is_interleaved = true;
  spec.names.gate = spec.names.up = "";
  spec.names.gate_up = "model.layers.{}.mlp.gate_up_proj";
  spec.names.attention_post_norm = "model.layers.{}.post_self_attn_layernorm";
  spec.names.feed_forward_post_norm = "model.layers.{}.post_mlp_layernorm";
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", true));
  for (LayerSpec& layer : spec.layers) {
    layer.has_post_norms = true;
    layer.attention.has_qkv_bias = has_biases;
  }
  return spec;
}

}  // namespace baton
