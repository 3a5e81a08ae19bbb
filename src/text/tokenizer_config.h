/// The files beside a tokenizer.json: tokenizer_config.json, special_tokens_map.json and the chat template.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/added_tokens.h"
#include "text/sentencepiece_model.h"

namespace baton {

/// The fields of these files that Baton reads. Empty strings where a file does not name a token.
struct TokenizerConfig {
  std::string bos_token;
  std::string eos_token;
  /// All tokens named by a role (bos, eos, unk, pad, sep, cls, mask, additional), some twice: they are special.
  std::vector<std::string> special_tokens;
  std::vector<AddedToken> added_tokens;  ///< added_tokens_decoder
  /// Whether texts get the beginning or end token. As in Transformers 5, only a tokenizer that is no tokenizer.json uses
  /// them: there the post-processor says what stands around texts.
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  bool clean_up_tokenization_spaces = false;
  SentencePieceOptions sentencepiece;  ///< for tokenizer.model; Transformers' defaults where the file says nothing
  std::string chat_template;           ///< of several, the one named "default"

  /// An empty text gives an empty configuration. Errors: invalid_data.
  static Result<TokenizerConfig> from_json(std::string_view text);

  /// tokenizer_config.json, special_tokens_map.json, chat_template.jinja and chat_template.json of `folder`, as far as
  /// they exist. Errors: invalid_data, io.
  static Result<TokenizerConfig> load(const std::filesystem::path& folder);
};

}  // namespace baton
