/// What the server knows of the model it serves, besides the engine that runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "server/openai_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton {

/// Owns the text side of a model.
struct ServedModel {
  std::vector<std::string> names;  ///< at least one; the first is used in answers to requests that name none
  std::string root;                ///< where it was loaded from, for /v1/models
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;  ///< absent: chat completions are refused
  SamplingDefaults defaults;
  std::int32_t n_vocab = 0;          ///< of the logits
  std::int32_t max_model_len = 0;    ///< the engine's
  std::size_t max_prompt_bytes = 0;  ///< more text than max_model_len tokens of the longest kind hold; 0: no limit

  /// Sets both limits. A server calls it before it serves.
  void set_context(std::int32_t max_len);
  /// Refuses a text that is longer than any prompt, so that it need not be encoded. Error: invalid_request.
  Result<void> check_prompt_bytes(std::size_t n_bytes, std::string_view param) const;
  /// What a chat template may write before it is stopped; 0: no limit. More than a prompt may have, so that a prompt that is
  /// somewhat too long is refused by its length.
  std::size_t max_rendered_bytes() const;
};

}  // namespace baton
