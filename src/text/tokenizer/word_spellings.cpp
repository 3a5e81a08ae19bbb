/// Each word is encoded twice.
#include "text/tokenizer/word_spellings.h"

#include <algorithm>
#include <string_view>
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

}  // namespace baton
