/// What the server knows of the model it serves, besides the engine that runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  std::int32_t n_vocab = 0;        ///< of the logits
  std::int32_t max_model_len = 0;  ///< the engine's; set by Server::start
};

}  // namespace baton
