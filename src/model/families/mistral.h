/// Mistral and Ministral: Llama with sliding windows.
#pragma once

#include "model/families/families.h"

namespace baton {

/// All layers have the window, or none. The defaults are those of Transformers' MistralConfig.
Result<ModelSpec> read_mistral(const json::Value& config);
/// `layer_types` says which layers have the window. The defaults are those of Transformers' MinistralConfig.
Result<ModelSpec> read_ministral(const json::Value& config);

/// The text model inside a Mistral Small 3 that also takes images: `text_config`, which must be a Mistral's.
Result<ModelSpec> read_mistral3(const json::Value& config);

inline constexpr Family kMistralFamily{
    .name = "MistralForCausalLM", .model_type = "mistral", .models = "Mistral", .read = read_mistral};
inline constexpr Family kMinistralFamily{
    .name = "MinistralForCausalLM", .model_type = "ministral", .models = "Ministral", .read = read_ministral};

inline constexpr Family kMistral3Family{.name = "Mistral3ForConditionalGeneration",
                                        .model_type = "mistral3",
                                        .models = "Mistral Small 3.1 and 3.2, text only",
                                        .read = read_mistral3};

}  // namespace baton
