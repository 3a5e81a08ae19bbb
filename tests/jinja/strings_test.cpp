/// Python's str on UTF-8: cases that the goldens of whole templates do not cover.
#include "jinja/strings.h"

#include <gtest/gtest.h>

#include "jinja/print.h"

namespace baton::jinja {
namespace {

using Parts = std::vector<std::string_view>;

TEST(JinjaStrings, bytes_that_are_not_utf8_count_one_by_one_and_never_overrun) {
  for (const std::string_view text :
       {"\xff", "a\xe2\x82", "\xf0\x9f\x98", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\x80\x80"}) {
    EXPECT_FALSE(is_valid_utf8(text));
    EXPECT_EQ(characters(text).size(), length(text));
    EXPECT_EQ(offsets(text).back(), text.size());
    EXPECT_EQ(strip(text, true, true), text);
  }
  EXPECT_EQ(char_at("\xff", 0), 0xFFFDU);
  EXPECT_TRUE(is_valid_utf8("a é € 😀"));
  EXPECT_EQ(length("a é € 😀"), 7U);
}

TEST(JinjaStrings, strip_removes_unicode_blanks_from_the_sides_asked_for) {
  EXPECT_EQ(strip("\u2003\u00a0a b\u3000\n", true, true), "a b");
  EXPECT_EQ(strip(" a ", false, true), " a");
  EXPECT_EQ(strip(" \t", true, true), "");
  EXPECT_EQ(strip("ééaé", "é", true, false), "aé");
}

TEST(JinjaStrings, split_follows_python_at_the_limits) {
  EXPECT_EQ(split("", std::nullopt, -1), Parts());
  EXPECT_EQ(split("", ",", -1), Parts({""}));
  EXPECT_EQ(split(" a  b ", std::nullopt, 0), Parts({"a  b "}));
  EXPECT_EQ(split("a,b", ",", 0), Parts({"a,b"}));
  EXPECT_EQ(split_from_right(" a  b ", std::nullopt, 1), Parts({" a", "b"}));
  EXPECT_EQ(split_from_right("a,b,c", ",", 1), Parts({"a,b", "c"}));
  EXPECT_EQ(split_from_right("aaa", "aa", -1), Parts({"a", ""}));
  EXPECT_EQ(split_lines("a\n\nb\r\n", false), Parts({"a", "", "b"}));
  EXPECT_EQ(split_lines("a\r\nb", true), Parts({"a\r\n", "b"}));
}

TEST(JinjaStrings, floats_print_the_shortest_digits_as_python_does) {
  EXPECT_EQ(float_text(0.1), "0.1");
  EXPECT_EQ(float_text(100), "100.0");
  EXPECT_EQ(float_text(1e16), "1e+16");
  EXPECT_EQ(float_text(9999999999999998), "9999999999999998.0");
  EXPECT_EQ(float_text(0.0001), "0.0001");
  EXPECT_EQ(float_text(0.00001), "1e-05");
  EXPECT_EQ(float_text(-1.5e-7), "-1.5e-07");
  EXPECT_EQ(float_text(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(float_text(5e-324), "5e-324");
}

TEST(JinjaStrings, quotes_are_chosen_as_python_chooses_them) {
  EXPECT_EQ(represent("plain"), "'plain'");
  EXPECT_EQ(represent("it's"), "\"it's\"");
  EXPECT_EQ(represent("both ' and \""), "'both \\' and \"'");
  EXPECT_EQ(represent("\x01\u00a0\u200b😀"), "'\\x01\\xa0\\u200b😀'");
}

}  // namespace
}  // namespace baton::jinja
