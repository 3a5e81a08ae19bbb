/// Command R7B and Command A.
#pragma once

#include "model/families/families.h"

namespace baton {

/// Layer norms without biases, parallel blocks, a factor of the logits, a window in three of four layers, and a rotation
/// of neighbouring elements in those alone. The defaults are those of Transformers' Cohere2Config.
Result<ModelSpec> read_cohere2(const json::Value& config);

inline constexpr Family kCohere2Family{
    .name = "Cohere2ForCausalLM", .model_type = "cohere2", .models = "Command R7B, Command A", .read = read_cohere2};

}  // namespace baton
