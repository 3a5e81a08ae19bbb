/// The list of refusals.h.
#include "model/families/refusals.h"

#include <array>

namespace baton {
namespace {

constexpr std::string_view kLatentAttention = "its multi-head latent attention (only that of the families in docs/models.md)";
constexpr std::string_view kIndexer = "sparse attention with an indexer";
constexpr std::string_view kDeltaNet = "its Gated DeltaNet layers (only those of the families in docs/models.md)";
constexpr std::string_view kMamba = "its state-space layers (only Mamba-2 of the families in docs/models.md)";
constexpr std::string_view kExperts = "its experts (only those of the families in docs/models.md)";
constexpr std::string_view kImages = "images or sound";
constexpr std::string_view kEncoder = "an encoder";

constexpr auto kRefused = std::to_array<RefusedFamily>({
    {"DeepseekV32ForCausalLM", "deepseek_v32", kIndexer},
    {"GlmMoeDsaForCausalLM", "glm_moe_dsa", kIndexer},
    {"Gemma3nForConditionalGeneration", "gemma3n", "alternating updates and embeddings in each layer"},
    {"T5ForConditionalGeneration", "t5", kEncoder},
    {"BartForConditionalGeneration", "bart", kEncoder},
    {"WhisperForConditionalGeneration", "whisper", kEncoder},
});

/// A field that only architectures with this part have.
struct Marker {
  std::string_view key;
  std::string_view missing;
};
constexpr auto kMarkers = std::to_array<Marker>({
    {"index_topk", kIndexer},
    {"linear_attn_config", "Kimi Delta Attention (linear attention)"},
    {"kv_lora_rank", kLatentAttention},
    {"linear_num_key_heads", kDeltaNet},
    {"mamba_d_state", kMamba},
    {"ssm_state_size", kMamba},
    {"num_local_experts", kExperts},
    {"num_experts", kExperts},
    {"n_routed_experts", kExperts},
    {"vision_config", kImages},
    {"audio_config", kImages},
});

bool has(const json::Value& config, std::string_view key) {
  const json::Value* found = json::find(config, key);
  return found != nullptr && !found->is_null() && *found != false && *found != 0;
}

}  // namespace

std::span<const RefusedFamily> refused_families() { return kRefused; }

std::string_view missing_part(std::string_view name, const json::Value& config) {
  for (const RefusedFamily& family : kRefused)
    if (family.name == name || family.model_type == name) return family.missing;
  if (has(config, "is_encoder_decoder")) return kEncoder;
  const json::Value* const text = json::find(config, "text_config");
  for (const auto& [key, missing] : kMarkers)
    if (has(config, key) || (text != nullptr && has(*text, key))) return missing;
  return {};
}

}  // namespace baton
