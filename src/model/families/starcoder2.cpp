/// config.json of a StarCoder2 to its spec.
#include "model/families/readers.h"

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr fields::Defaults kStarcoder2Defaults{.n_kv_heads = 2, .max_position = 4096, .tie_embeddings = true};

}  // namespace

/// Layer norms before both blocks, a plain feed-forward block with GELU, one flag for all biases but those of the norms, and one
/// window in all layers or none. The defaults are those of Transformers' Starcoder2Config.
Result<ModelSpec> read_starcoder2(const json::Value& config) {
  BATON_TRY_VOID(fields::expect(config, "norm_type", "layer_norm"));
  BATON_TRY_VOID(fields::expect(config, "mlp_type", "default"));
  BATON_TRY(ModelSpec spec, read_llama_layers(config, kStarcoder2Defaults));
  spec.names.gate = "";
  spec.names.up = "model.layers.{}.mlp.c_fc";
  spec.names.down = "model.layers.{}.mlp.c_proj";
  BATON_TRY(const double epsilon, fields::optional_number(config, "norm_epsilon", 1e-12, 1, 1e-5));
  spec.final_norm = {.kind = NormSpec::Kind::layer, .epsilon = static_cast<float>(epsilon), .has_bias = true};
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "use_bias", true));
  BATON_TRY(const FeedForwardSpec::Kind gelu, fields::read_gelu(config, "hidden_act", FeedForwardSpec::Kind::gelu_tanh));
  for (LayerSpec& layer : spec.layers) {
    layer.norm = spec.final_norm;
    layer.feed_forward.kind = gelu;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = layer.feed_forward.has_bias = has_biases;
  }
  BATON_TRY(const std::int32_t window, fields::read_window(config, 0));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [window](std::size_t) { return window > 0; }, spec));
  BATON_TRY(RopeSpec rope, fields::read_rope(config, rope_context(kStarcoder2Defaults, spec)));
  spec.ropes.push_back(std::move(rope));
  return spec;
}

}  // namespace baton
