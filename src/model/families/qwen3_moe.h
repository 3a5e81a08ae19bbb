/// Qwen3 with experts.
#pragma once

#include "model/families/families.h"

namespace baton {

/// Qwen3 with experts in the layers that `decoder_sparse_step` and `mlp_only_layers` leave them. The window of a
/// config that uses one is in all layers. The defaults are those of Transformers' Qwen3MoeConfig.
Result<ModelSpec> read_qwen3_moe(const json::Value& config);

inline constexpr Family kQwen3MoeFamily{
    .name = "Qwen3MoeForCausalLM", .model_type = "qwen3_moe", .models = "Qwen3-MoE", .read = read_qwen3_moe};

}  // namespace baton
