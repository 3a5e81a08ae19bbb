/// The whole config's fields joined with those of its text model.
#include "model/families/text_model.h"

#include <string>
#include <string_view>
#include <utility>

namespace baton {

Result<ModelSpec> read_text_model(const json::Value& config, Result<ModelSpec> (*read)(const json::Value&)) {
  BATON_TRY(json::Value text, json::get<json::Value>(config, "text_config"));
  if (!text.is_object()) return json::wrong_type("text_config", "an object", text);
  for (const std::string_view key : {"tie_word_embeddings", "dtype", "torch_dtype", "bos_token_id", "eos_token_id",
                                     "quantization_config", "compression_config"})
    if (const json::Value* found = json::find(config, key); found != nullptr && !found->is_null())
      text[std::string(key)] = *found;
  BATON_TRY(ModelSpec spec, read(text));
  spec.other_roots = {{.model = "language_model.model.", .lm_head = "language_model.lm_head"},  // Transformers 4
                      {.model = "model.language_model.", .lm_head = "lm_head"}};                // 5
  return spec;
}

}  // namespace baton
