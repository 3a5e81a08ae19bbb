/// Lists the families and finds the one that a config.json names.
#include "model/families/families.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "model/families/readers.h"
#include "model/families/refusals.h"

namespace baton {
namespace {

constexpr Family kFamilies[] = {
    {.name = "LlamaForCausalLM",
     .model_type = "llama",
     .models = "Llama 1, 2 and 3.x, CodeLlama, OpenLLaMA, TinyLlama",
     .read = read_llama},
    {.name = "Llama4ForConditionalGeneration",
     .model_type = "llama4",
     .models = "Llama 4 Scout and Maverick, text only",
     .read = read_llama4_with_images},
    {.name = "Llama4ForCausalLM", .model_type = "llama4_text", .models = "Llama 4 without images", .read = read_llama4},
    {.name = "MistralForCausalLM", .model_type = "mistral", .models = "Mistral", .read = read_mistral},
    {.name = "MinistralForCausalLM", .model_type = "ministral", .models = "Ministral", .read = read_ministral},
    {.name = "Mistral3ForConditionalGeneration",
     .model_type = "mistral3",
     .models = "Mistral Small 3.1, 3.2 and 4, Ministral 3, Devstral Small 2, text only",
     .read = read_mistral3},
    {.name = "Ministral3ForCausalLM",
     .model_type = "ministral3",
     .models = "Ministral 3 and Devstral 2 without images",
     .read = read_ministral3},
    {.name = "Mistral4ForCausalLM",
     .model_type = "mistral4",
     .models = "Mistral Small 4 without images",
     .read = read_mistral4},
    {.name = "MixtralForCausalLM", .model_type = "mixtral", .models = "Mixtral", .read = read_mixtral},
    {.name = "Qwen2ForCausalLM", .model_type = "qwen2", .models = "Qwen2, Qwen2.5", .read = read_qwen2},
    {.name = "Qwen3ForCausalLM", .model_type = "qwen3", .models = "Qwen3 (dense)", .read = read_qwen3},
    {.name = "Qwen2MoeForCausalLM", .model_type = "qwen2_moe", .models = "Qwen1.5-MoE, Qwen2-MoE", .read = read_qwen2_moe},
    {.name = "Qwen3MoeForCausalLM", .model_type = "qwen3_moe", .models = "Qwen3-MoE", .read = read_qwen3_moe},
    {.name = "Qwen3NextForCausalLM", .model_type = "qwen3_next", .models = "Qwen3-Next", .read = read_qwen3_next},
    {.name = "Qwen3_5ForCausalLM",
     .model_type = "qwen3_5_text",
     .models = "Qwen3.5 (dense) without images",
     .read = read_qwen3_5},
    {.name = "Qwen3_5ForConditionalGeneration",
     .model_type = "qwen3_5",
     .models = "Qwen3.5 and 3.6 (dense), text only",
     .read = read_qwen3_5_with_images},
    {.name = "Qwen3_5MoeForCausalLM",
     .model_type = "qwen3_5_moe_text",
     .models = "Qwen3.5 with experts, without images",
     .read = read_qwen3_5_moe},
    {.name = "Qwen3_5MoeForConditionalGeneration",
     .model_type = "qwen3_5_moe",
     .models = "Qwen3.5 and 3.6 with experts, text only",
     .read = read_qwen3_5_moe_with_images},
    {.name = "Lfm2ForCausalLM", .model_type = "lfm2", .models = "LFM2, LFM2.5", .read = read_lfm2},
    {.name = "Lfm2MoeForCausalLM", .model_type = "lfm2_moe", .models = "LFM2 with experts", .read = read_lfm2_moe},
    {.name = "PhiForCausalLM", .model_type = "phi", .models = "Phi 1, 1.5 and 2", .read = read_phi},
    {.name = "Phi3ForCausalLM", .model_type = "phi3", .models = "Phi-3, Phi-3.5, Phi-4", .read = read_phi3},
    {.name = "Gemma2ForCausalLM", .model_type = "gemma2", .models = "Gemma 2", .read = read_gemma2},
    {.name = "Gemma3ForCausalLM", .model_type = "gemma3_text", .models = "Gemma 3 (1B)", .read = read_gemma3},
    {.name = "Gemma3ForConditionalGeneration",
     .model_type = "gemma3",
     .models = "Gemma 3 (4B and larger), text only",
     .read = read_gemma3_with_images},
    {.name = "GptOssForCausalLM", .model_type = "gpt_oss", .models = "gpt-oss 20B and 120B", .read = read_gpt_oss},
    {.name = "GraniteForCausalLM", .model_type = "granite", .models = "Granite 3", .read = read_granite},
    {.name = "GraniteMoeHybridForCausalLM",
     .model_type = "granitemoehybrid",
     .models = "Granite 4",
     .read = read_granite_hybrid},
    {.name = "NemotronHForCausalLM",
     .model_type = "nemotron_h",
     .models = "Nemotron-H, Nemotron Nano 2, Nemotron 3 Nano",
     .read = read_nemotron_h},
    {.name = "Olmo2ForCausalLM", .model_type = "olmo2", .models = "OLMo 2", .read = read_olmo2},
    {.name = "Olmo3ForCausalLM", .model_type = "olmo3", .models = "OLMo 3", .read = read_olmo3},
    {.name = "Exaone4ForCausalLM", .model_type = "exaone4", .models = "EXAONE 4", .read = read_exaone4},
    {.name = "SeedOssForCausalLM", .model_type = "seed_oss", .models = "Seed-OSS", .read = read_seed_oss},
    {.name = "Ernie4_5ForCausalLM", .model_type = "ernie4_5", .models = "ERNIE 4.5 (dense)", .read = read_ernie4_5},
    {.name = "Ernie4_5_MoeForCausalLM",
     .model_type = "ernie4_5_moe",
     .models = "ERNIE 4.5 with experts",
     .read = read_ernie4_5_moe},
    {.name = "HunYuanDenseV1ForCausalLM",
     .model_type = "hunyuan_v1_dense",
     .models = "Hunyuan (dense)",
     .read = read_hunyuan_dense},
    {.name = "Glm4ForCausalLM", .model_type = "glm4", .models = "GLM-4 (0414)", .read = read_glm4},
    {.name = "Glm4MoeForCausalLM", .model_type = "glm4_moe", .models = "GLM-4.5, GLM-4.6, GLM-4.7", .read = read_glm4_moe},
    {.name = "Glm4MoeLiteForCausalLM", .model_type = "glm4_moe_lite", .models = "GLM-4.7-Flash", .read = read_glm4_moe_lite},
    {.name = "DeepseekV2ForCausalLM",
     .model_type = "deepseek_v2",
     .models = "DeepSeek V2, V2.5 and V2-Lite",
     .read = read_deepseek_v2},
    {.name = "DeepseekV3ForCausalLM",
     .model_type = "deepseek_v3",
     .models = "DeepSeek V3, V3.1 and R1, Kimi K2",
     .read = read_deepseek_v3},
    {.name = "KimiK2ForCausalLM", .model_type = "kimi_k2", .models = "Kimi K2", .read = read_deepseek_v3},
    {.name = "KimiK25ForConditionalGeneration",
     .model_type = "kimi_k25",
     .models = "Kimi K2.5, text only",
     .read = read_kimi_k25},
    {.name = "MiniMaxM2ForCausalLM", .model_type = "minimax_m2", .models = "MiniMax-M2", .read = read_minimax_m2},
    {.name = "Starcoder2ForCausalLM", .model_type = "starcoder2", .models = "StarCoder2", .read = read_starcoder2},
    {.name = "SmolLM3ForCausalLM", .model_type = "smollm3", .models = "SmolLM3", .read = read_smollm3},
    {.name = "Cohere2ForCausalLM", .model_type = "cohere2", .models = "Command R7B, Command A", .read = read_cohere2},
};

tl::unexpected<Error> unknown_family(std::span<const Family> families, std::string_view name, const json::Value& config) {
  if (const std::string_view missing = missing_part(name, config); !missing.empty())
    return fail(ErrorCode::unsupported,
                fmt::format("the architecture '{}' is not supported: Baton does not compute {}", name, missing));
  std::string known;
  for (const Family& family : families) known += (known.empty() ? "" : ", ") + std::string(family.name);
  return fail(ErrorCode::unsupported, fmt::format("the architecture '{}' is not supported; known are: {}", name, known));
}

}  // namespace

std::span<const Family> shipped_families() { return kFamilies; }

Result<const Family*> find_family(std::span<const Family> families, const json::Value& config) {
  BATON_TRY(const auto names, json::get_optional<std::vector<std::string>>(config, "architectures"));
  if (names && !names->empty()) {
    for (const Family& family : families)
      if (family.name == names->front()) return &family;
    return unknown_family(families, names->front(), config);
  }
  BATON_TRY(const auto model_type, json::get<std::string>(config, "model_type"));
  for (const Family& family : families)
    if (family.model_type == model_type) return &family;
  return unknown_family(families, model_type, config);
}

}  // namespace baton
