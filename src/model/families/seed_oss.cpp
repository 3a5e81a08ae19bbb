/// config.json of a Seed-OSS to its spec.
#include "model/families/readers.h"

#include "model/families/llama.h"

namespace baton {

/// Llama with biases of queries, keys and values, and others if the config states them. The defaults are those of Transformers'
/// SeedOssConfig.
Result<ModelSpec> read_seed_oss(const json::Value& config) {
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.n_kv_heads = 8, .head_dim = 128, .max_position = 524288}));
  BATON_TRY(const bool of_qkv, fields::optional_flag(config, "attention_bias", true));
  BATON_TRY(const bool of_out, fields::optional_flag(config, "attention_out_bias", false));
  BATON_TRY(const bool of_feed_forward, fields::optional_flag(config, "mlp_bias", false));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.has_qkv_bias = of_qkv;
    layer.attention.has_out_bias = of_out;
    layer.feed_forward.has_bias = of_feed_forward;
  }
  return spec;
}

}  // namespace baton
