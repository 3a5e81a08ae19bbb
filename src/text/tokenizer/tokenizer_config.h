/// The files beside a tokenizer.json: tokenizer_config.json, special_tokens_map.json and the chat template.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/template/chat_templates.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/sentencepiece_model.h"

namespace baton {

/// The fields of these files that Baton reads. Empty strings where a file does not name a token.
struct TokenizerConfig {
  std::string bos_token;
  std::string eos_token;
  /// All tokens named by a role (bos, eos, unk, pad, sep, cls, mask, additional), some twice: they are special.
  std::vector<std::string> special_tokens;
  /// The tokens of roles and of extra_special_tokens by their names ("bos_token"), as chat templates see them.
  std::map<std::string, std::string, std::less<>> role_tokens;
  /// Roles that the file gives to no token ("bos_token": null).
  std::set<std::string, std::less<>> null_roles;
  std::vector<AddedToken> added_tokens;  ///< added_tokens_decoder
  /// The class of Transformers 5, without "Fast"; empty where it takes a tokenizer.json as it is.
  std::string tokenizer_class;
  std::optional<bool> legacy;             ///< of the classes that heed it
  std::optional<bool> adds_prefix_space;  ///< add_prefix_space, likewise
  /// Whether texts get the beginning or end token. As in Transformers 5, only a tokenizer that is no tokenizer.json uses
  /// them: there the post-processor says what stands around texts.
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  bool clean_up_tokenization_spaces = false;
  SentencePieceOptions sentencepiece;  ///< for tokenizer.model; Transformers' defaults where the file says nothing
  TemplateSources chat_templates;

  /// An empty text gives an empty configuration. The class is the one that the file names. Errors: invalid_data.
  static Result<TokenizerConfig> from_json(std::string_view text);

  /// tokenizer_config.json, special_tokens_map.json and chat templates (read_template_files, else chat_template.json)
  /// of `folder`, as far as they exist; of config.json the model's type, which may decide the class. Errors:
  /// invalid_data, io.
  static Result<TokenizerConfig> load(const std::filesystem::path& folder);
};

}  // namespace baton
