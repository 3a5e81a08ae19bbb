/// The text side of a model: tokenizer, chat templates, the format of its messages and sampling defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "engine/request/request.h"
#include "load/model_files.h"
#include "load/model_options.h"
#include "parsers/message_format.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

struct TextSide {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template = {};  ///< absent: the model has none
  std::optional<ChatTemplate> tool_template = {};  ///< for conversations with tools; absent: chat_template
  parsers::MessageFormat format = {};              ///< how the model writes calls of tools and reasoning
  std::vector<TokenId> stop_ids = {};              ///< the format's tokens that end an answer, for EngineOptions::eos_token_ids
  SamplingDefaults defaults = {};                  ///< generation_config.json's
  std::int32_t n_vocab = 0;                        ///< of the model's logits; the tokenizer may have more or fewer tokens
};

/// The tokenizer of `options.model`, which may also be a tokenizer's file. Neither weights nor a configuration are
/// needed. Errors: those of the files.
Result<Tokenizer> load_tokenizer(const ModelOptions& options, const HubProgress& progress);

/// Reads tokenizer, templates and sampling defaults. A tokenizer with more tokens than the model is logged. Errors:
/// those of the files; invalid_request names a field of `options`.
Result<TextSide> load_text(const ModelFiles& files, const ModelOptions& options);

}  // namespace baton
