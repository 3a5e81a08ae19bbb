/// Mixtral: Mistral with experts.
#pragma once

#include "model/families/families.h"

namespace baton {

/// All layers have experts, whose weights are the softmax over the chosen ones, and the window of `sliding_window`, if
/// any. The defaults are those of Transformers' MixtralConfig.
Result<ModelSpec> read_mixtral(const json::Value& config);

inline constexpr Family kMixtralFamily{
    .name = "MixtralForCausalLM", .model_type = "mixtral", .models = "Mixtral", .read = read_mixtral};

}  // namespace baton
