/// OLMo 2.
#pragma once

#include "model/families/families.h"

namespace baton {

/// Llama with norms after the blocks instead of before them, and norms of queries and keys over all heads of a row. The
/// defaults are those of Transformers' Olmo2Config.
Result<ModelSpec> read_olmo2(const json::Value& config);

inline constexpr Family kOlmo2Family{.name = "Olmo2ForCausalLM", .model_type = "olmo2", .models = "OLMo 2", .read = read_olmo2};

}  // namespace baton
