/// A tokenizer's vocabulary as grammars and lists of words need it: what each id of a model writes, and which ids are special.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

/// The bytes that each of `n_vocab` ids writes after other text; none for special tokens and ids without a token.
std::vector<std::string> bytes_of_tokens(const Tokenizer& tokenizer, std::int32_t n_vocab);

/// The special tokens among `n_vocab` ids, by their text.
std::map<std::string, TokenId, std::less<>> special_tokens_of(const Tokenizer& tokenizer, std::int32_t n_vocab);

/// The token sequences of words at the beginning of a text and after a space, each once. Spaces in front of a word do not
/// count, so a word of spaces alone has no spelling.
std::vector<std::vector<TokenId>> spell_words(const Tokenizer& tokenizer, std::span<const std::string> words);

}  // namespace baton
