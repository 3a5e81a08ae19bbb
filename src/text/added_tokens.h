/// Tokens added to a model's vocabulary, and where a text spells them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "io/json.h"
#include "text/normalizer.h"
#include "text/pattern.h"
#include "text/vocabulary.h"

namespace baton {

/// One entry of `added_tokens` (tokenizer.json) or `added_tokens_decoder` (tokenizer_config.json).
struct AddedToken {
  std::string content;
  TokenId id = -1;
  bool is_special = false;
  bool is_single_word = false;  ///< matches only between characters that are no part of words
  bool strips_left = false;     ///< takes the white space before it along
  bool strips_right = false;
  bool is_normalized = true;  ///< is searched in normalised text

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

  /// Ignored where the content is empty or there already. Errors: invalid_data for an id out of range.
  Result<void> add(AddedToken token, const Normalizer& normalizer);

  /// Cuts `text` at the tokens that are searched in raw, or in normalised, text: the longest at the leftmost place. Special
  /// tokens are passed over unless `with_special`. Plain parts are never empty.
  /// What lies before the byte `from`, a place where the text is cut in any case, is left out.
  std::vector<Part> split_raw(std::string_view text, bool with_special, std::size_t from) const {
    return split(text, raw_, with_special, from);
  }
  std::vector<Part> split_normalized(std::string_view text, bool with_special) const {
    return split(text, normalized_, with_special, 0);
  }
  /// The end of the last token at which split_raw(with_special) cuts `text` whatever is put behind it; 0 if there is none.
  std::size_t last_sure_cut(std::string_view text) const;

  bool is_special(TokenId id) const;
  bool contains(TokenId id) const { return vocabulary_.contains(id); }
  /// What the token is in a decoder's eyes: its content, or what the normalizer makes of it where it is searched in normalised
  /// text.
  std::string_view text_of(TokenId id) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::size_t size() const { return tokens_.size(); }

 private:
  /// The spellings to look for, by their first byte and then by length, the longest first.
  struct Index {
    struct Hash {
      using is_transparent = void;
      std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> tokens;  // spelling -> place in tokens_
    std::array<std::vector<std::size_t>, 256> lengths;

    void insert(const std::string& spelling, std::size_t token);
  };

  std::vector<Part> split(std::string_view text, const Index& index, bool with_special, std::size_t from) const;
  bool may_grow(std::string_view text) const;
  const AddedToken* find_longest(std::string_view text, const Index& index, std::size_t& length) const;
  bool is_whole_word(std::string_view text, TextRange range) const;

  std::vector<AddedToken> tokens_;
  Vocabulary vocabulary_;
  Index raw_;
  Index normalized_;
  std::unordered_map<TokenId, std::string> normalized_texts_;  // where they differ from the contents
  std::vector<bool> is_special_;                               // by id
  std::optional<Pattern> word_;                                // one character of a word; only where a token is_single_word
};

}  // namespace baton
