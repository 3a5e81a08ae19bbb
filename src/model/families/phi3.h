/// Phi-3, Phi-3.5 and Phi-4.
#pragma once

#include "model/families/families.h"

namespace baton {

/// Llama with fused tensors, heads of which a part may be rotated, and one window in all layers or none. The defaults
/// are those of Transformers' Phi3Config.
Result<ModelSpec> read_phi3(const json::Value& config);

inline constexpr Family kPhi3Family{
    .name = "Phi3ForCausalLM", .model_type = "phi3", .models = "Phi-3, Phi-3.5, Phi-4", .read = read_phi3};

}  // namespace baton
