/// Granite 3.
#pragma once

#include "model/families/families.h"

namespace baton {

/// Llama with factors of the embeddings, of attention's scores, of what the blocks add, and of the logits. The defaults
/// are those of Transformers' GraniteConfig.
Result<ModelSpec> read_granite(const json::Value& config);

inline constexpr Family kGraniteFamily{
    .name = "GraniteForCausalLM", .model_type = "granite", .models = "Granite 3", .read = read_granite};

}  // namespace baton
