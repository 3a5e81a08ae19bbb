/// Each id is asked about once.
#include "text/tokenizer/vocabulary_bytes.h"

#include <algorithm>
#include <utility>

namespace baton {

std::vector<std::vector<TokenId>> spell_words(const Tokenizer& tokenizer, std::span<const std::string> words) {
  std::vector<std::vector<TokenId>> runs;
  for (const std::string& word : words) {
    const std::size_t begin = word.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    const std::string bare = word.substr(begin);
    for (const std::string& spelling : {bare, " " + bare}) {
      std::vector<TokenId> run = tokenizer.encode(spelling, /*add_special_tokens=*/false);
      if (!run.empty() && std::ranges::find(runs, run) == runs.end()) runs.push_back(std::move(run));
    }
  }
  return runs;
}

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
