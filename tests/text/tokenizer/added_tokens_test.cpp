/// Tests of added tokens: where they are found in text.
#include "text/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

AddedToken token(std::string content, TokenId id) { return {.content = std::move(content), .id = id, .is_normalized = false}; }

AddedTokens added_tokens_of(const std::vector<AddedToken>& tokens) {
  AddedTokens added;
  for (const AddedToken& each : tokens) EXPECT_TRUE(added.add(each, Normalizer()));
  return added;
}

/// "text|<3>|text": the parts, tokens by their ids.
std::string split(const AddedTokens& added, std::string_view text, bool with_special = true) {
  std::string out;
  for (const AddedTokens::Part& part : added.split_raw(text, with_special, 0, UnlimitedWork().meter())) {
    if (!out.empty()) out += '|';
    if (part.id)
      out += '<' + std::to_string(*part.id) + '>';
    else
      out += text.substr(part.range.begin, part.range.end - part.range.begin);
  }
  return out;
}

TEST(AddedTokens, the_longest_at_the_leftmost_place_wins) {
  const AddedTokens added = added_tokens_of({token("<a", 1), token("<a>", 2), token("a>b", 3)});
  EXPECT_EQ(split(added, "x<a>by<a"), "x|<2>|by|<1>");
  EXPECT_EQ(split(added, "a>b<a>"), "<3>|<2>");
  EXPECT_EQ(split(added, ""), "");
  EXPECT_EQ(split(added, "plain"), "plain");
}

TEST(AddedTokens, special_ones_are_passed_over_in_strangers_texts) {
  AddedToken special = token("<s>", 1);
  special.is_special = true;
  const AddedTokens added = added_tokens_of({special, token("tool", 2)});
  EXPECT_EQ(split(added, "<s>tool<s>"), "<1>|<2>|<1>");
  EXPECT_EQ(split(added, "<s>tool<s>", false), "<s>|<2>|<s>");
  EXPECT_TRUE(added.is_special(1));
  EXPECT_FALSE(added.is_special(2));
  EXPECT_FALSE(added.is_special(-1));
  EXPECT_FALSE(added.is_special(1000));
}

TEST(AddedTokens, single_words_stand_between_characters_that_are_no_words) {
  AddedToken word = token("word", 1);
  word.is_single_word = true;
  const AddedTokens added = added_tokens_of({word});
  EXPECT_EQ(split(added, "word sword word's éword word\u0301 (word)"), "<1>| sword |<1>|'s éword word\u0301 (|<1>|)");
}

TEST(AddedTokens, stripping_takes_white_space_along) {
  AddedToken both = token("<m>", 1);
  both.strips_left = true;
  both.strips_right = true;
  const AddedTokens added = added_tokens_of({both});
  EXPECT_EQ(split(added, "a \n<m>\u3000 b"), "a|<1>|b");
  EXPECT_EQ(split(added, " <m> <m> "), "<1>|<1>");
}

TEST(AddedTokens, normalized_ones_are_searched_as_the_normalizer_writes_them) {
  const auto normalizer = Normalizer::from_json({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}});
  ASSERT_TRUE(normalizer);
  AddedTokens added;
  AddedToken spaced = token("a b", 1);
  spaced.is_normalized = true;
  ASSERT_TRUE(added.add(spaced, *normalizer));
  EXPECT_EQ(split(added, "a b"), "a b");
  EXPECT_EQ(added.split_normalized("xa▁b", true, UnlimitedWork().meter()).back().id, 1);
}

TEST(AddedTokens, reads_files_and_refuses_ids_out_of_range) {
  const auto read = AddedToken::from_json({{"id", 5}, {"content", "<s>"}, {"special", true}, {"rstrip", true}}, std::nullopt);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->id, 5);
  EXPECT_TRUE(read->is_special && read->strips_right && !read->strips_left);
  EXPECT_FALSE(read->is_normalized) << "special tokens are searched in raw text";
  EXPECT_FALSE(AddedToken::from_json({{"id", 5}}, std::nullopt));
  EXPECT_FALSE(AddedToken::from_json({{"content", "a"}}, std::nullopt));
  EXPECT_FALSE(AddedToken::from_json(3, std::nullopt));
  AddedTokens added;
  EXPECT_FALSE(added.add(token("a", -1), Normalizer()));
  EXPECT_FALSE(added.add(token("a", kMaxTokenId + 1), Normalizer()));
  EXPECT_TRUE(added.add(token("", 1), Normalizer()));
  EXPECT_EQ(added.size(), 0u);
}

}  // namespace
}  // namespace baton
