/// The files beside a tokenizer.json: tokenizer_config.json, special_tokens_map.json and the chat template.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/added_tokens.h"
#include "text/chat_templates.h"
#include "text/sentencepiece_model.h"

namespace baton {

/// The fields of these files that Baton reads. Empty strings where a file does not name a token.
struct TokenizerConfig {
  std::string bos_token;
  std::string eos_token;
  /// All tokens named by a role (bos, eos, unk, pad, sep, cls, mask, additional), some twice: they are special.
  std::vector<std::string> special_tokens;
  /// The tokens of roles and of extra_special_tokens by their names ("bos_token"), as chat templates see them.
  std::map<std::string, std::string, std::less<>> role_tokens;
  std::vector<AddedToken> added_tokens;  ///< added_tokens_decoder
  /// Whether texts get the beginning or end token. As in Transformers 5, only a tokenizer that is no tokenizer.json uses
  /// them: there the post-processor says what stands around texts.
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  bool clean_up_tokenization_spaces = false;
  SentencePieceOptions sentencepiece;  ///< for tokenizer.model; Transformers' defaults where the file says nothing
  TemplateSources chat_templates;

  /// An empty text gives an empty configuration. Errors: invalid_data.
  static Result<TokenizerConfig> from_json(std::string_view text);

  /// tokenizer_config.json, special_tokens_map.json and chat templates (read_template_files, else chat_template.json)
  /// of `folder`, as far as they exist. Errors: invalid_data, io.
  static Result<TokenizerConfig> load(const std::filesystem::path& folder);
};

}  // namespace baton
