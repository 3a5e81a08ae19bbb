/// Llama, Llama 2 and Llama 3.
#pragma once

#include "model/families/families.h"

namespace baton {

/// RMS norms, rotary attention with grouped heads, a gated feed-forward block, no biases. The defaults are those of
/// Transformers' LlamaConfig.
Result<ModelSpec> read_llama(const json::Value& config);

inline constexpr Family kLlamaFamily{.name = "LlamaForCausalLM", .model_type = "llama", .read = read_llama};

}  // namespace baton
