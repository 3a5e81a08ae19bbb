/// The text model inside a model that also takes images.
#pragma once

#include "core/result.h"
#include "io/json.h"
#include "model/spec.h"

namespace baton {

/// Reads `text_config` with `read`. Tied embeddings, dtype, special tokens and quantisation are those of the whole
/// config where it states them. The spec knows the names that the text model's tensors have inside the whole.
Result<ModelSpec> read_text_model(const json::Value& config, Result<ModelSpec> (*read)(const json::Value&));

}  // namespace baton
