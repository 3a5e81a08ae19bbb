/// Phi 1, 1.5 and 2.
#pragma once

#include "model/families/families.h"

namespace baton {

/// Layer norms, parallel blocks, a plain feed-forward block with GELU, heads of which a part is rotated, and a bias on
/// every linear layer. The defaults are those of Transformers' PhiConfig.
Result<ModelSpec> read_phi(const json::Value& config);

inline constexpr Family kPhiFamily{
    .name = "PhiForCausalLM", .model_type = "phi", .models = "Phi 1, 1.5 and 2", .read = read_phi};

}  // namespace baton
