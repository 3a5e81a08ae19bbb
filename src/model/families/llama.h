/// Llama 1, 2 and 3.x, and what is laid out as they are: CodeLlama, OpenLLaMA, TinyLlama.
#pragma once

#include "model/families/families.h"

namespace baton {

/// RMS norms, rotary attention with grouped heads, a gated feed-forward block, and the biases that the config states.
/// The defaults are those of Transformers' LlamaConfig.
Result<ModelSpec> read_llama(const json::Value& config);

inline constexpr Family kLlamaFamily{.name = "LlamaForCausalLM", .model_type = "llama", .read = read_llama};

}  // namespace baton
