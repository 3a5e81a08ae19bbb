/// The readers of all families, for the table in families.cpp, and what several of them call; NAME.cpp describes and defines
/// read_NAME.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "model/rope_fields.h"
#include "model/spec.h"

namespace baton {

/// The names of the fields that say how many experts a layer has, and how many of them compute a row.
struct ExpertFields {
  std::string_view n_experts;
  std::string_view n_experts_per_row = "num_experts_per_tok";
};
/// Reads them; the last two arguments are the defaults.
Result<void> read_experts(const json::Value& config, const ExpertFields& of, FeedForwardSpec& spec, std::int32_t n_experts,
                          std::int32_t n_experts_per_row);
/// The same of `num_local_experts` (Transformers 5) or `num_experts`.
Result<void> read_experts(const json::Value& config, FeedForwardSpec& spec, std::int32_t n_experts,
                          std::int32_t n_experts_per_row);
/// What the fields of experts with shared ones mean if they are absent.
struct GroupedExpertDefaults {
  std::int32_t d_ff = 0;
  std::int32_t n_experts = 0;
  std::int32_t n_experts_per_row = 0;  ///< 0: required
  std::int32_t n_shared = 0;
  std::int32_t n_groups = 1;
  std::int32_t n_groups_per_row = 1;
  bool renormalises = false;
  double scale = 1;
};
/// Experts as in DeepSeek's models: the best `num_experts_per_tok` of `n_routed_experts`, out of `topk_group` of `n_group` groups,
/// by softmax, and a shared expert as wide as `n_shared_experts` of them.
Result<FeedForwardSpec> read_grouped_experts(const json::Value& config, const GroupedExpertDefaults& defaults);
/// What the fields of a Qwen's experts mean if they are absent.
struct QwenExpertDefaults {
  std::int32_t d_ff = 0;
  std::int32_t n_experts = 0;
  std::int32_t n_experts_per_row = 0;
  std::int32_t d_ff_shared = 0;  ///< 0: there is no shared expert
  bool renormalises = false;
};
/// Experts as in Qwen's models, the shared one with a gate.
Result<FeedForwardSpec> read_qwen_experts(const json::Value& config, const QwenExpertDefaults& defaults);
/// Gives experts to the layers that `decoder_sparse_step` and `mlp_only_layers` leave them.
Result<void> give_qwen_experts(const json::Value& config, const FeedForwardSpec& experts, ModelSpec& spec);
/// Names them, the shared one too.
void name_qwen_experts(TensorNames& names);
/// Reads the text model inside a model that also takes images, `text_config`, with `read`. Tied embeddings, dtype, special
/// tokens and quantisation are those of the whole config where it states them. The spec knows the names that the text
/// model's tensors have inside the whole.
Result<ModelSpec> read_text_model(const json::Value& config, Result<ModelSpec> (*read)(const json::Value&));

/// Reads a Granite's factors: of the embeddings, of attention's scores, of what the blocks add, and of the logits.
Result<void> read_granite_multipliers(const json::Value& config, ModelSpec& spec);
/// Refuses bounds of Mamba-2's time steps, which `time_step_limit` states.
Result<void> expect_no_time_step_limit(const json::Value& config);
/// Refuses a Mamba-2 whose groups do not share its heads, or with a kernel of one token; `n_groups` and `n_taps` name the fields.
Result<void> check_mamba2(const Mamba2Spec& mamba, std::string_view n_groups, std::string_view n_taps);

/// Reads the rotation of each type of layer: ropes[0] for layers that see all positions, ropes[1] for those with a window, which
/// `spec` has already. Transformers 5 has one object for each type in `rope_parameters`; in 4, `rope_scaling` is of the first
/// only. `full` and `sliding` say what each is where the config says nothing.
Result<void> read_ropes_of_types(const json::Value& config, const fields::RopeContext& full, const fields::RopeContext& sliding,
                                 ModelSpec& spec);

Result<ModelSpec> read_cohere2(const json::Value& config);
Result<ModelSpec> read_deepseek_v2(const json::Value& config);
Result<ModelSpec> read_deepseek_v3(const json::Value& config);
Result<ModelSpec> read_ernie4_5(const json::Value& config);
Result<ModelSpec> read_ernie4_5_moe(const json::Value& config);
Result<ModelSpec> read_exaone4(const json::Value& config);
Result<ModelSpec> read_gemma2(const json::Value& config);
Result<ModelSpec> read_gemma3(const json::Value& config);
Result<ModelSpec> read_gemma3_with_images(const json::Value& config);
Result<ModelSpec> read_glm4(const json::Value& config);
Result<ModelSpec> read_glm4_moe(const json::Value& config);
Result<ModelSpec> read_glm4_moe_lite(const json::Value& config);
Result<ModelSpec> read_gpt_oss(const json::Value& config);
Result<ModelSpec> read_granite(const json::Value& config);
Result<ModelSpec> read_granite_hybrid(const json::Value& config);
Result<ModelSpec> read_hunyuan_dense(const json::Value& config);
Result<ModelSpec> read_kimi_k25(const json::Value& config);
Result<ModelSpec> read_lfm2(const json::Value& config);
Result<ModelSpec> read_lfm2_moe(const json::Value& config);
Result<ModelSpec> read_llama(const json::Value& config);
Result<ModelSpec> read_llama4(const json::Value& config);
Result<ModelSpec> read_llama4_with_images(const json::Value& config);
Result<ModelSpec> read_minimax_m2(const json::Value& config);
Result<ModelSpec> read_ministral(const json::Value& config);
Result<ModelSpec> read_ministral3(const json::Value& config);
Result<ModelSpec> read_mistral(const json::Value& config);
Result<ModelSpec> read_mistral3(const json::Value& config);
Result<ModelSpec> read_mistral4(const json::Value& config);
Result<ModelSpec> read_mixtral(const json::Value& config);
Result<ModelSpec> read_nemotron_h(const json::Value& config);
Result<ModelSpec> read_olmo2(const json::Value& config);
Result<ModelSpec> read_olmo3(const json::Value& config);
Result<ModelSpec> read_phi(const json::Value& config);
Result<ModelSpec> read_phi3(const json::Value& config);
Result<ModelSpec> read_qwen2(const json::Value& config);
Result<ModelSpec> read_qwen2_moe(const json::Value& config);
Result<ModelSpec> read_qwen3(const json::Value& config);
Result<ModelSpec> read_qwen3_5(const json::Value& config);
Result<ModelSpec> read_qwen3_5_moe(const json::Value& config);
Result<ModelSpec> read_qwen3_5_moe_with_images(const json::Value& config);
Result<ModelSpec> read_qwen3_5_with_images(const json::Value& config);
Result<ModelSpec> read_qwen3_moe(const json::Value& config);
Result<ModelSpec> read_qwen3_next(const json::Value& config);
Result<ModelSpec> read_seed_oss(const json::Value& config);
Result<ModelSpec> read_smollm3(const json::Value& config);
Result<ModelSpec> read_starcoder2(const json::Value& config);

}  // namespace baton
