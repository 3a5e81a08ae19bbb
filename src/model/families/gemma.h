/// Gemma 2 and the text model of Gemma 3.
#pragma once

#include "model/families/families.h"

namespace baton {

/// Norms with an offset of 1 before and after both blocks, a gated feed-forward block with GELU, scaled embeddings,
/// soft-caps of scores and logits, a window in every other layer. The defaults are those of Gemma2Config.
Result<ModelSpec> read_gemma2(const json::Value& config);
/// The same with norms of queries and keys, a window in five of six layers, and a rotation of its own for those. The
/// defaults are those of Gemma3TextConfig.
Result<ModelSpec> read_gemma3(const json::Value& config);
/// The text model inside a Gemma 3 that also takes images: `text_config`.
Result<ModelSpec> read_gemma3_with_images(const json::Value& config);

inline constexpr Family kGemma2Family{
    .name = "Gemma2ForCausalLM", .model_type = "gemma2", .models = "Gemma 2", .read = read_gemma2};
inline constexpr Family kGemma3Family{
    .name = "Gemma3ForCausalLM", .model_type = "gemma3_text", .models = "Gemma 3 (1B)", .read = read_gemma3};
inline constexpr Family kGemma3WithImagesFamily{.name = "Gemma3ForConditionalGeneration",
                                                .model_type = "gemma3",
                                                .models = "Gemma 3 (4B and larger), text only",
                                                .read = read_gemma3_with_images};

}  // namespace baton
