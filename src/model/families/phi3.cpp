/// config.json of a Phi-3 to its spec.
#include "model/families/readers.h"

#include <utility>

#include "model/families/llama.h"

namespace baton {
namespace {

TensorNames phi3_names() {
  TensorNames names = kLlamaNames;
  names.q = names.k = names.v = names.gate = names.up = "";
  names.qkv = "model.layers.{}.self_attn.qkv_proj";
  names.gate_up = "model.layers.{}.mlp.gate_up_proj";
  return names;
}

/// Fields of Microsoft's own code for these models.
Result<void> refuse_other_phi3(const json::Value& config) {
  for (const std::string_view key : {"attention_bias", "mlp_bias", "lm_head_bias"}) {
    BATON_TRY_VOID(fields::expect(config, key, false));
  }
  BATON_TRY_VOID(fields::expect(config, "full_attn_mod", 1));
  return fields::expect(config, "interpolate_factor", 1);
}

}  // namespace

/// Llama with fused tensors, heads of which a part may be rotated, and one window in all layers or none. The defaults
/// are those of Transformers' Phi3Config.
Result<ModelSpec> read_phi3(const json::Value& config) {
  BATON_TRY_VOID(refuse_other_phi3(config));
  BATON_TRY(
      ModelSpec spec,
      read_llama_layout(config, {.max_position = 4096,
                                 .epsilon = 1e-5,
                                 .rope = {.allows_partial = true, .yarn_is_longrope = true, .original_max_position = 4096}}));
  spec.names = phi3_names();
  BATON_TRY(const std::int32_t window, fields::read_window(config, 0));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [window](std::size_t) { return window > 0; }, spec));
  return spec;
}

}  // namespace baton
