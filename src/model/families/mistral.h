/// Mistral and Ministral: Llama with sliding windows.
#pragma once

#include "model/families/families.h"

namespace baton {

/// All layers have the window, or none. The defaults are those of Transformers' MistralConfig.
Result<ModelSpec> read_mistral(const json::Value& config);
/// `layer_types` says which layers have the window. The defaults are those of Transformers' MinistralConfig.
Result<ModelSpec> read_ministral(const json::Value& config);

inline constexpr Family kMistralFamily{
    .name = "MistralForCausalLM", .model_type = "mistral", .models = "Mistral", .read = read_mistral};
inline constexpr Family kMinistralFamily{
    .name = "MinistralForCausalLM", .model_type = "ministral", .models = "Ministral", .read = read_ministral};

}  // namespace baton
