/// What grammars read of a vocabulary (text/tokenizer/vocabulary_bytes.h).
#include "text/tokenizer/vocabulary_bytes.h"

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"

namespace baton {
namespace {

TEST(VocabularyBytes, special_tokens_write_nothing_and_are_found_by_their_text) {
  const auto tokenizer = Tokenizer::from_json(json::dump(test::byte_level_tokenizer()), "").value();
  const std::int32_t n_vocab = tokenizer.n_vocab() + 2;  // a model may have more ids than its tokenizer
  const auto bytes = bytes_of_tokens(tokenizer, n_vocab);
  ASSERT_EQ(bytes.size(), static_cast<std::size_t>(n_vocab));
  EXPECT_EQ(bytes['a'], "a");
  EXPECT_EQ(bytes[0], std::string(1, '\0'));
  EXPECT_EQ(bytes[260], "") << "<|end|> is special";
  EXPECT_EQ(bytes[261], "tool");
  EXPECT_EQ(bytes[static_cast<std::size_t>(n_vocab) - 1], "");
  const auto special = special_tokens_of(tokenizer, n_vocab);
  ASSERT_EQ(special.size(), 1u);
  EXPECT_EQ(special.at("<|end|>"), 260);
}

}  // namespace
}  // namespace baton
