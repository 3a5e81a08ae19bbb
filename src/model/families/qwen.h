/// Qwen2 and Qwen2.5.
#pragma once

#include "model/families/families.h"

namespace baton {

/// Llama with biases of queries, keys and values, and windows in some layers if the config uses them. The defaults are
/// those of Transformers' Qwen2Config.
Result<ModelSpec> read_qwen2(const json::Value& config);

inline constexpr Family kQwen2Family{
    .name = "Qwen2ForCausalLM", .model_type = "qwen2", .models = "Qwen2, Qwen2.5", .read = read_qwen2};

}  // namespace baton
