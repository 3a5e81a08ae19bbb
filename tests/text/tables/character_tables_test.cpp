/// Tests of the sets of characters: a few of each, at the ends of ranges, and what changed from version to version.
#include "text/tables/character_tables.h"

#include <gtest/gtest.h>

namespace baton::unicode {
namespace {

TEST(CharacterTables, know_members_and_neighbours) {
  EXPECT_TRUE(is_punctuation('!') && is_punctuation('$') && is_punctuation('~') && is_punctuation(0x3001));
  EXPECT_FALSE(is_punctuation('a') || is_punctuation(0x20AC) || is_punctuation(0x2E52)) << "U+2E52 is of Unicode 14";
  EXPECT_TRUE(is_combining_mark(0x301) && is_combining_mark(0x903) && is_combining_mark(0x8D4));
  EXPECT_FALSE(is_combining_mark(0x898) || is_combining_mark('a'));
  EXPECT_TRUE(is_numeric('0') && is_numeric(0xB2) && is_numeric(0x2167) && is_numeric(0x10D40));
  EXPECT_FALSE(is_numeric('a') || is_numeric('/') || is_numeric(':'));
  EXPECT_TRUE(is_beyond_normalization(0x898) && is_beyond_normalization(0x11938));
  EXPECT_FALSE(is_beyond_normalization(0x301) || is_beyond_normalization(0xE9));
}

TEST(CharacterTables, new_characters_have_old_ones_of_their_kind_for_pcre2) {
  EXPECT_EQ(known_to_regex('a'), U'a');
  EXPECT_EQ(known_to_regex(0x4E00), char32_t{0x4E00});
  EXPECT_NE(known_to_regex(0x1C89), char32_t{0x1C89}) << "a capital letter of Unicode 16";
  EXPECT_NE(known_to_regex(0x31350), char32_t{0x31350}) << "a Han character of Unicode 15";
  EXPECT_EQ(known_to_regex(0x10FFFF), char32_t{0x10FFFF});
}

}  // namespace
}  // namespace baton::unicode
