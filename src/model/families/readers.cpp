/// What several readers of families have in common.
#include "model/families/readers.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/ops.h"
#include "model/config_fields.h"

namespace baton {

Result<void> read_experts(const json::Value& config, FeedForwardSpec& spec, std::int32_t n_experts,
                          std::int32_t n_experts_per_row) {
  const std::string_view key = json::find(config, "num_local_experts") != nullptr ? "num_local_experts" : "num_experts";
  BATON_TRY(spec.n_experts, fields::optional_size(config, key, kMaxExperts, n_experts));
  BATON_TRY(spec.n_experts_per_row, fields::optional_size(config, "num_experts_per_tok",
                                                          std::min(kMaxExpertsPerRow, spec.n_experts), n_experts_per_row));
  return {};
}

Result<ModelSpec> read_text_model(const json::Value& config, Result<ModelSpec> (*read)(const json::Value&)) {
  BATON_TRY(json::Value text, json::get<json::Value>(config, "text_config"));
  if (!text.is_object()) return json::wrong_type("text_config", "an object", text);
  for (const std::string_view key : {"tie_word_embeddings", "dtype", "torch_dtype", "bos_token_id", "eos_token_id"})
    if (const json::Value* found = json::find(config, key); found != nullptr && !found->is_null())
      text[std::string(key)] = *found;
  BATON_TRY(ModelSpec spec, read(text));
  spec.other_roots = {{.model = "language_model.model.", .lm_head = "language_model.lm_head"},  // Transformers 4
                      {.model = "model.language_model.", .lm_head = "lm_head"}};                // 5
  return spec;
}

}  // namespace baton
