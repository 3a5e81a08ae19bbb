/// Tests of UTF-8, one character at a time.
#include "core/utf8.h"

#include <string>

#include <gtest/gtest.h>

namespace baton::unicode {
namespace {

TEST(Utf8, every_code_point_survives_encoding_and_decoding) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    const Step step = decode_front(text);
    ASSERT_TRUE(step.is_valid) << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.n_bytes, text.size());
  }
}

TEST(Utf8, an_ill_formed_step_has_the_bytes_of_one_replacement) {
  const auto n_bytes = [](std::string_view text) {
    const Step step = decode_front(text);
    EXPECT_FALSE(step.is_valid);
    EXPECT_EQ(step.code_point, kReplacement);
    return step.n_bytes;
  };
  EXPECT_EQ(n_bytes("\x80z"), 1u);
  EXPECT_EQ(n_bytes("\xC0\xAF"), 1u);          // overlong
  EXPECT_EQ(n_bytes("\xE2\x82z"), 2u);         // a maximal subpart
  EXPECT_EQ(n_bytes("\xED\xA0\x80"), 1u);      // a surrogate
  EXPECT_EQ(n_bytes("\xF4\x90\x80\x80"), 1u);  // over U+10FFFF
  EXPECT_FALSE(decode_front("\xE2\x82z").is_cut_off);
  EXPECT_TRUE(decode_front("\xE2\x82").is_cut_off);
  EXPECT_TRUE(is_valid_utf8("häß 🦙"));
  EXPECT_FALSE(is_valid_utf8("h\xE4"));
}

}  // namespace
}  // namespace baton::unicode
