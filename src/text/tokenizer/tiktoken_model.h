/// tiktoken.model of Moonshot's models (Kimi, Moonlight): an encoding of tiktoken, whose pattern the file does not say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/tokenizer_config.h"

namespace baton {

/// Tokens have the ids from 0, special tokens the kReserved ones after them.
struct TiktokenModel {
  /// Of the words that merges never cross. Source: the models' tokenization_kimi.py, which tokenization_moonshot.py equals in this.
  static constexpr std::string_view kPattern =
      R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
      R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static constexpr TokenId kReserved = 256;

  std::vector<std::string> tokens;  ///< by rank; their bytes are spelled by GPT-2's characters
  std::vector<AddedToken> special;  ///< the tokens without a name in the configuration: `<|reserved_token_ID|>`

  /// A token in base64 and its rank in each line. Errors: invalid_data, with the line; unsupported for a configuration that names
  /// another class, which may cut texts otherwise.
  static Result<TiktokenModel> from_text(std::string_view text, const TokenizerConfig& config);

  /// Whether the first line of a file, whatever its name, is a token in base64 and its rank.
  static bool is_begin(std::string_view text);
};

}  // namespace baton
