/// Tests of UTF-8 and GPT-2's byte alphabet.
#include "text/split/unicode.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace baton::unicode {
namespace {

TEST(Unicode, ill_formed_parts_become_one_replacement_each) {
  const std::string r(kReplacementUtf8);
  EXPECT_EQ(to_valid_utf8("a\x80z"), "a" + r + "z");
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(to_valid_utf8("\xE2\x82"), r);                      // cut off
  EXPECT_EQ(to_valid_utf8("\xE2\x82z"), r + "z");               // a maximal subpart
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), r + r + r + r);  // over U+10FFFF
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\xA6\x99"), "\xF0\x9F\xA6\x99");
}

TEST(Unicode, spaces_are_the_25_characters_of_white_space) {
  std::u32string spaces;
  for (char32_t c = 0; c <= 0x10FFFF; ++c)
    if (is_space(c)) spaces += c;
  std::u32string expected = U"\t\n\v\f\r \x85\xA0\u1680";
  for (char32_t c = 0x2000; c <= 0x200A; ++c) expected += c;
  EXPECT_EQ(spaces, expected + U"\u2028\u2029\u202F\u205F\u3000");
}

TEST(Unicode, the_last_character_is_found_from_the_end) {
  EXPECT_EQ(last_character("ab🦙"), "🦙");
  EXPECT_EQ(last_character("é"), "é");
  EXPECT_EQ(last_character(""), "");
}

TEST(Unicode, bytes_and_their_characters_are_a_bijection) {
  std::set<char32_t> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = character_of_byte(static_cast<unsigned char>(byte));
    EXPECT_TRUE(seen.insert(c).second);
    EXPECT_EQ(byte_of_character(c), static_cast<unsigned char>(byte));
  }
  EXPECT_EQ(character_of_byte(' '), U'Ġ');
  EXPECT_EQ(character_of_byte('\n'), U'Ċ');
  EXPECT_EQ(character_of_byte(0xAD), U'Ń');
  EXPECT_FALSE(byte_of_character(U' '));
  EXPECT_FALSE(byte_of_character(0x144));
}

TEST(Utf8Stream, gives_the_same_text_however_the_bytes_are_cut) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    const int n_parts = static_cast<int>(random() % 8);
    for (int i = 0; i < n_parts; ++i) {
      if (random() % 3 == 0)
        bytes.push_back(static_cast<char>(random() % 256));
      else
        append_utf8(bytes, random() % 2 == 0 ? 0x1F999 : 0x20AC);
    }
    Utf8Stream stream;
    std::string out;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = 1 + random() % 3;
      stream.push(std::string_view(bytes).substr(at, n), out);
      ASSERT_TRUE(is_valid_utf8(out));
      at += n;
    }
    stream.finish(out);
    ASSERT_EQ(out, to_valid_utf8(bytes));
  }
}

}  // namespace
}  // namespace baton::unicode
