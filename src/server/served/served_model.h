/// What the server knows of the model it serves, besides the engine that runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/shared_list.h"
#include "io/prefix_file.h"
#include "parsers/message_format.h"
#include "server/request/generation.h"
#include "server/served/grammars.h"
#include "text/template/chat_template.h"
#include "text/template/template_traits.h"
#include "text/tokenizer/tokenizer.h"

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
  /// The template for conversations with tools where the model has one of its own.
  std::optional<ChatTemplate> tool_template = std::nullopt;
  parsers::MessageFormat format = {};          ///< how the model writes calls and reasoning
  TemplateTraits traits = {};                  ///< of chat_template
  TemplateTraits tool_traits = {};             ///< of the template for conversations with tools
  SharedList<TokenId> markers = {};            ///< special tokens whose text the format reads
  std::vector<std::string> marker_texts = {};  ///< their texts, in the same order
  std::string weight_scheme = {};              ///< the engine's, for /v1/models
  std::string activation_scheme = {};          ///< likewise
  bool excludes_unchosen_tools = false;        ///< prompts lack the tools where `tool_choice` is "none"
  PrefixIdentity identity = {};                ///< which configuration and weights it is; needed for a prefix store only
  std::unique_ptr<Grammars> grammars = {};     ///< of structured output; absent: requests that bring a grammar are refused

  /// Sets the traits of the templates, and the markers of the format. Call it when those are set.
  void look_at_templates();
  /// The template of a conversation with or without tools, and its traits. There is a chat template.
  const ChatTemplate& template_for(bool has_tools) const {
    return has_tools && tool_template ? *tool_template : *chat_template;
  }
  const TemplateTraits& traits_for(bool has_tools) const { return has_tools ? tool_traits : traits; }

  /// Sets both limits. A server calls it before it serves.
  void set_context(std::int32_t max_len);
  /// Refuses a text that is longer than any prompt, so that it need not be encoded. Error: invalid_request.
  Result<void> check_prompt_bytes(std::size_t n_bytes, std::string_view param) const;
  /// The least number of tokens that so many bytes of text can have; 0 where there is no limit of prompts.
  std::int64_t least_tokens(std::size_t n_bytes) const;
  /// What a chat template may write before it is stopped; 0: no limit. More than a prompt may have, so that a prompt that is
  /// somewhat too long is refused by its length.
  std::size_t max_rendered_bytes() const;
};

}  // namespace baton
