/// SmolLM3.
#pragma once

#include "model/families/families.h"

namespace baton {

/// Llama with layers whose queries and keys are not rotated. The defaults are those of Transformers' SmolLM3Config.
Result<ModelSpec> read_smollm3(const json::Value& config);

inline constexpr Family kSmolLm3Family{
    .name = "SmolLM3ForCausalLM", .model_type = "smollm3", .models = "SmolLM3", .read = read_smollm3};

}  // namespace baton
