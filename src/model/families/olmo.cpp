/// config.json of an OLMo 2 or 3 to its spec.
#include "model/families/readers.h"

#include <cstddef>

#include "model/families/llama.h"

namespace baton {
namespace {

constexpr double kOlmo3Theta = 500000;

/// Norms after the blocks instead of before them, and norms of queries and keys over all heads of a row.
Result<void> read_olmo_norms(const json::Value& config, ModelSpec& spec) {
  give_post_norms(spec);
  BATON_TRY(const bool has_biases, fields::optional_flag(config, "attention_bias", false));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = QkNorm::width;
    layer.attention.qk_norm_spec = layer.norm;
    layer.attention.has_qkv_bias = layer.attention.has_out_bias = has_biases;
  }
  return {};
}

}  // namespace

/// Llama with the norms above. The defaults are those of Transformers' Olmo2Config.
Result<ModelSpec> read_olmo2(const json::Value& config) {
  BATON_TRY_VOID(fields::expect_null(config, "clip_qkv"));
  BATON_TRY(ModelSpec spec, read_llama_layout(config, {.epsilon = 1e-5}));
  BATON_TRY_VOID(read_olmo_norms(config, spec));
  return spec;
}

/// The same with a window in three of four layers and scaled rotations in the others alone. The defaults are those of
/// Olmo3Config. A `rope_theta` outside of `rope_parameters` is of all layers in Transformers 4 and of the others in 5, so it
/// may only be the default.
Result<ModelSpec> read_olmo3(const json::Value& config) {
  BATON_TRY_VOID(fields::expect_null(config, "clip_qkv"));
  BATON_TRY_VOID(fields::expect_silu(config, "hidden_act"));
  BATON_TRY_VOID(fields::expect(config, "rope_theta", kOlmo3Theta));
  constexpr fields::Defaults kDefaults{.epsilon = 1e-5, .rope = {.theta = kOlmo3Theta}};
  BATON_TRY(ModelSpec spec, read_llama_layers(config, kDefaults));
  BATON_TRY_VOID(read_olmo_norms(config, spec));
  BATON_TRY(const std::int32_t window, fields::read_window(config, 4096));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [](std::size_t i) { return (i + 1) % 4 != 0; }, spec));
  const fields::RopeContext context = rope_context(kDefaults, spec);
  BATON_TRY_VOID(read_ropes_of_types(config, context, context, spec));
  return spec;
}

}  // namespace baton
