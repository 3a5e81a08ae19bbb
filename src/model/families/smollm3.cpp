/// config.json of a SmolLM3 to its spec.
#include "model/families/readers.h"

#include <cstdint>
#include <vector>

#include "model/families/llama.h"

namespace baton {
namespace {

/// `no_rope_layers` holds 1 for the layers that are rotated, despite its name, and 0 for the others. Without it every
/// layer is rotated but each `no_rope_layer_interval`-th.
Result<std::vector<bool>> read_rotated_layers(const json::Value& config, std::size_t n_layers) {
  std::vector<bool> rotated(n_layers);
  BATON_TRY(const auto listed, json::get_optional<std::vector<std::int64_t>>(config, "no_rope_layers"));
  if (listed && listed->size() != n_layers)
    return fields::bad_value("no_rope_layers", "'no_rope_layers' must hold a number for each of {} layers, not {}", n_layers,
                             listed->size());
  BATON_TRY(const std::int32_t interval, fields::optional_size(config, "no_rope_layer_interval", fields::kMaxLayers, 4));
  for (std::size_t i = 0; i < n_layers; ++i)
    rotated[i] = listed ? (*listed)[i] != 0 : (i + 1) % static_cast<std::size_t>(interval) != 0;
  return rotated;
}

}  // namespace

/// Llama with layers whose queries and keys are not rotated. The defaults are those of Transformers' SmolLM3Config.
Result<ModelSpec> read_smollm3(const json::Value& config) {
  BATON_TRY(
      ModelSpec spec,
      read_llama_layout(config, {.n_kv_heads = 4, .max_position = 32768, .tie_embeddings = true, .rope = {.theta = 2000000}}));
  BATON_TRY_VOID(read_llama_biases(config, spec));
  BATON_TRY(const std::vector<bool> rotated, read_rotated_layers(config, spec.layers.size()));
  for (std::size_t i = 0; i < rotated.size(); ++i)
    if (!rotated[i]) spec.layers[i].attention.rope = AttentionSpec::kNoRope;
  BATON_TRY(const std::int32_t window, fields::read_used_window(config, 0));
  BATON_TRY_VOID(fields::read_windows(
      config, window, [&](std::size_t i) { return window > 0 && !rotated[i]; }, spec));
  return spec;
}

}  // namespace baton
