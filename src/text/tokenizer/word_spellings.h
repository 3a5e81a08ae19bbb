/// The token sequences that spell words, for lists of words that an answer must not hold.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

/// The token sequences of words at the beginning of a text and after a space, each once. Spaces in front of a word do not
/// count, so a word of spaces alone has no spelling.
std::vector<std::vector<TokenId>> spell_words(const Tokenizer& tokenizer, std::span<const std::string> words);

}  // namespace baton
