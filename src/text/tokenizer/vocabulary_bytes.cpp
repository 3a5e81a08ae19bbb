/// Each id is asked about once.
#include "text/tokenizer/vocabulary_bytes.h"

namespace baton {

std::vector<std::string> bytes_of_tokens(const Tokenizer& tokenizer, std::int32_t n_vocab) {
  std::vector<std::string> bytes(static_cast<std::size_t>(n_vocab));
  for (TokenId id = 0; id < n_vocab; ++id)
    if (!tokenizer.is_special(id)) bytes[static_cast<std::size_t>(id)] = tokenizer.token_bytes(id);
  return bytes;
}

std::map<std::string, TokenId, std::less<>> special_tokens_of(const Tokenizer& tokenizer, std::int32_t n_vocab) {
  std::map<std::string, TokenId, std::less<>> special;
  for (TokenId id = 0; id < n_vocab; ++id)
    if (tokenizer.is_special(id)) special.emplace(tokenizer.token_text(id), id);
  return special;
}

}  // namespace baton
