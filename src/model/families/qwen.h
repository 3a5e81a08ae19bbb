/// Qwen2, Qwen2.5 and Qwen3.
#pragma once

#include "model/families/families.h"

namespace baton {

/// Llama with biases of queries, keys and values, and windows in some layers if the config uses them. The defaults are
/// those of Transformers' Qwen2Config.
Result<ModelSpec> read_qwen2(const json::Value& config);

/// Qwen2 with norms of queries and keys in each head, and biases only if the config states them. The defaults are those
/// of Transformers' Qwen3Config.
Result<ModelSpec> read_qwen3(const json::Value& config);

inline constexpr Family kQwen2Family{
    .name = "Qwen2ForCausalLM", .model_type = "qwen2", .models = "Qwen2, Qwen2.5", .read = read_qwen2};
inline constexpr Family kQwen3Family{
    .name = "Qwen3ForCausalLM", .model_type = "qwen3", .models = "Qwen3 (dense)", .read = read_qwen3};

}  // namespace baton
