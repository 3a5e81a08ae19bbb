/// Mistral's tekken.json: an encoding of tiktoken with its pattern, after the special tokens.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// What a tekken.json says. Special tokens have the ids from 0, `tokens` those after them.
struct Tekken {
  std::string pattern;                      ///< of the words that merges never cross
  std::vector<std::string> special_tokens;  ///< by id; `<SPECIAL_i>` where the file leaves room for more
  std::vector<std::string> tokens;          ///< by rank; their bytes are spelled by GPT-2's characters

  /// A file of version v1 to v7 without special_tokens, as the first ones were, has those of mistral-common. Errors:
  /// invalid_data, with the field's name; unsupported for a later file without special_tokens.
  static Result<Tekken> from_json(const json::Value& root);
};

}  // namespace baton
