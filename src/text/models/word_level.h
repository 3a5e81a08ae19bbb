/// The WordLevel model: each word is a token.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "io/json.h"
#include "text/models/vocabulary.h"

namespace baton {

/// The `model` of a tokenizer.json when it is a WordLevel: words that the vocabulary does not have are the unknown token.
/// Immutable. Thread: any.
class WordLevel {
 public:
  /// Tokens whose text `is_special` are never produced from text, but for the unknown one. Errors: invalid_data.
  static Result<WordLevel> from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special);

  /// Appends the token of `word` to `out`.
  void encode(std::string_view word, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  std::vector<bool> is_special_;  // by id
  TokenId unk_id_ = -1;
};

}  // namespace baton
