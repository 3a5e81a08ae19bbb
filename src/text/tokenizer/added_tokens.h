/// Tokens added to a model's vocabulary, and how they are found in a text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "core/limits/work_budget.h"
#include "core/result.h"
#include "io/json.h"
#include "text/models/byte_trie.h"
#include "text/models/vocabulary.h"
#include "text/split/normalizer.h"
#include "text/split/pattern.h"

namespace baton {

/// One entry of `added_tokens` (tokenizer.json) or `added_tokens_decoder` (tokenizer_config.json).
struct AddedToken {
  std::string content;
  TokenId id = -1;
  bool is_special = false;
  bool is_single_word = false;  ///< matches only between characters that are not part of a word
  bool strips_left = false;     ///< also takes the white space before it
  bool strips_right = false;
  bool is_normalized = true;  ///< is searched for in normalised text

  /// Errors: invalid_data. `value` must not hold the id where `id` is given.
  static Result<AddedToken> from_json(const json::Value& value, std::optional<TokenId> id);
};

/// The added tokens of one tokenizer. Immutable after the last call to add. Thread: any.
class AddedTokens {
 public:
  /// A part of a text: a token, or plain text where `id` is nullopt.
  struct Part {
    TextRange range;
    std::optional<TokenId> id;
  };

  /// Ignores a token whose content is empty or already known. Errors: invalid_data for an id out of range.
  Result<void> add(AddedToken token, const Normalizer& normalizer);

  /// Cuts `text` at the tokens that are searched for in raw (or in normalised) text: the longest token at the leftmost
  /// place. Ignores special tokens unless `with_special`. Plain parts are never empty. Leaves out what lies before the
  /// byte `from`, which must be a place where the text is cut in any case.
  std::vector<Part> split_raw(std::string_view text, bool with_special, std::size_t from, WorkMeter& meter) const {
    return split(text, raw_, with_special, from, meter);
  }
  std::vector<Part> split_normalized(std::string_view text, bool with_special, WorkMeter& meter) const {
    return split(text, normalized_, with_special, 0, meter);
  }
  /// The end of the last token at which split_raw(with_special) cuts `text`, whatever text follows; 0 for none.
  std::size_t last_sure_cut(std::string_view text, WorkMeter& meter) const;

  bool is_special(TokenId id) const;
  bool contains(TokenId id) const { return vocabulary_.contains(id); }
  /// What the token is in a decoder's eyes: its content, or what the normalizer makes of it where it is searched in
  /// normalised text.
  std::string_view text_of(TokenId id) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::size_t size() const { return tokens_.size(); }

 private:
  std::vector<Part> split(std::string_view text, const ByteTrie& spellings, bool with_special, std::size_t from,
                          WorkMeter& meter) const;
  bool may_grow(std::string_view text, WorkMeter& meter) const;
  bool is_whole_word(std::string_view text, TextRange range) const;

  std::vector<AddedToken> tokens_;
  Vocabulary vocabulary_;
  ByteTrie raw_;  // spelling -> place in tokens_
  ByteTrie normalized_;
  std::unordered_map<TokenId, std::string> normalized_texts_;  // where they differ from the contents
  std::vector<bool> is_special_;                               // by id
  std::optional<Pattern> word_;                                // a word character; only if a token is_single_word
};

}  // namespace baton
