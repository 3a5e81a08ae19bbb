/// The readers of all families, for the table in families.cpp; NAME.cpp describes and defines read_NAME.
#pragma once

#include "core/result.h"
#include "io/json.h"
#include "model/spec.h"

namespace baton {

Result<ModelSpec> read_cohere2(const json::Value& config);
Result<ModelSpec> read_gemma2(const json::Value& config);
Result<ModelSpec> read_gemma3(const json::Value& config);
Result<ModelSpec> read_gemma3_with_images(const json::Value& config);
Result<ModelSpec> read_granite(const json::Value& config);
Result<ModelSpec> read_llama(const json::Value& config);
Result<ModelSpec> read_ministral(const json::Value& config);
Result<ModelSpec> read_mistral(const json::Value& config);
Result<ModelSpec> read_mistral3(const json::Value& config);
Result<ModelSpec> read_mixtral(const json::Value& config);
Result<ModelSpec> read_olmo2(const json::Value& config);
Result<ModelSpec> read_phi(const json::Value& config);
Result<ModelSpec> read_phi3(const json::Value& config);
Result<ModelSpec> read_qwen2(const json::Value& config);
Result<ModelSpec> read_qwen3(const json::Value& config);
Result<ModelSpec> read_qwen3_moe(const json::Value& config);
Result<ModelSpec> read_smollm3(const json::Value& config);

}  // namespace baton
