/// Words as the token sequences that spell them (text/tokenizer/vocabulary_bytes.h).
#include "text/tokenizer/vocabulary_bytes.h"

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"

namespace baton {
namespace {

using Runs = std::vector<std::vector<TokenId>>;

TEST(WordSpellings, are_those_at_the_beginning_and_after_a_space) {
  const auto tokenizer = Tokenizer::from_json(json::dump(test::byte_level_tokenizer()), "").value();
  const auto spell = [&](const std::vector<std::string>& words) { return spell_words(tokenizer, words); };
  const std::vector<TokenId> the = tokenizer.encode("the", false);
  const std::vector<TokenId> the_after_space = tokenizer.encode(" the", false);
  ASSERT_NE(the, the_after_space);
  EXPECT_EQ(spell({"the"}), (Runs{the, the_after_space}));
  EXPECT_EQ(spell({"  the", "the"}), (Runs{the, the_after_space})) << "each once";
  EXPECT_EQ(spell({}), Runs{});
  EXPECT_EQ(spell({"", "  "}), Runs{}) << "spaces alone spell nothing";
}

}  // namespace
}  // namespace baton
