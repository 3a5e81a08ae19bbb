/// config.json of an ERNIE 4.5 without experts to its spec.
#include "model/families/readers.h"

#include "model/families/llama.h"

namespace baton {

/// Llama that rotates neighbouring elements, with one flag for all biases. The defaults are those of Transformers'
/// Ernie4_5Config. Baidu's own code divides positions by `compression_ratio`, which Transformers does not read.
Result<ModelSpec> read_ernie4_5(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "compression_ratio", 1));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.n_kv_heads = 2,
                                                       .head_dim = 128,
                                                       .max_position = 131072,
                                                       .epsilon = 1e-5,
                                                       .tie_embeddings = true,
                                                       .rope = {.theta = 500000}}));
  spec.ropes[0].is_interleaved = true;
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "use_bias", false));
  for (LayerSpec& layer : spec.layers)
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = layer.feed_forward.has_bias = has_biases;
  return spec;
}

}  // namespace baton
