/// The models whose tokens are words: WordPiece, which takes the longest beginning of a word that the vocabulary has, again
/// and again, and WordLevel, for which each word is a token.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/limits/work_budget.h"
#include "core/result.h"
#include "io/json.h"
#include "text/models/byte_trie.h"
#include "text/models/vocabulary.h"

namespace baton {

/// The `model` of a tokenizer.json when it is a WordPiece, as BERT's. A word that cannot be cut into tokens, or is longer
/// than max_input_chars_per_word, is one unknown token. Immutable. Thread: any.
class WordPiece {
 public:
  /// Tokens whose text `is_special` are never produced from text, but for the unknown one. Errors: invalid_data.
  static Result<WordPiece> from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special);

  /// Appends the tokens of `word` (valid UTF-8) to `out`.
  void encode(std::string_view word, std::vector<TokenId>& out, WorkMeter& meter) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  ByteTrie first_;  // tokens that may begin a word
  ByteTrie later_;  // tokens with the prefix, without it
  TokenId unk_id_ = -1;
  std::size_t max_characters_ = 100;
};

/// The `model` of a tokenizer.json when it is a WordLevel: words that the vocabulary does not have are the unknown token.
/// Immutable. Thread: any.
class WordLevel {
 public:
  /// As WordPiece::from_json.
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
