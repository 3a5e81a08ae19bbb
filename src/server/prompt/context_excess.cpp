/// Lengths of prompts and of the texts that they are made from.
#include "server/prompt/context_excess.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "engine/schedule/request_check.h"

namespace baton {

std::optional<ContextExcess> context_excess(const ServedModel& model, std::int64_t prompt_len, const SamplingParams& sampling) {
  const std::int32_t max_len = model.max_model_len;
  if (max_len <= 0) return std::nullopt;
  if (prompt_len >= max_len) return ContextExcess{prompt_len, {}, max_len};
  if (!sampling.max_tokens || prompt_len + *sampling.max_tokens <= max_len) return std::nullopt;
  return ContextExcess{prompt_len, sampling.max_tokens, max_len};
}

std::optional<ContextExcess> text_excess(const ServedModel& model, std::size_t n_bytes) {
  if (model.max_prompt_bytes == 0 || n_bytes <= model.max_prompt_bytes) return std::nullopt;
  return ContextExcess{model.least_tokens(n_bytes), {}, model.max_model_len, /*is_least=*/true};
}

std::optional<ContextExcess> text_excess(const ServedModel& model, const json::Value& messages) {
  std::size_t n_bytes = 0;
  const auto add = [&](const json::Value* text) {
    if (text != nullptr && text->is_string()) n_bytes += text->get_ref<const std::string&>().size();
  };
  for (const json::Value& message : messages) {
    // Of what the model itself has said, templates leave out parts.
    if (json::is_text(message["role"], "assistant")) continue;
    const json::Value* content = json::find(message, "content");
    add(content);
    if (content == nullptr || !content->is_array()) continue;
    for (const json::Value& part : *content) add(json::find(part, "text"));
  }
  return text_excess(model, n_bytes);
}

Error openai_excess(const ContextExcess& excess) {
  return {ErrorCode::invalid_request,
          context_excess_message(excess.max_len, excess.prompt_len, excess.max_tokens, excess.is_least),
          excess.max_tokens ? "max_tokens" : "messages"};
}

}  // namespace baton
