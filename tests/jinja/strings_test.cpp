/// Python's str on UTF-8: cases that the goldens of whole templates do not cover.
#include "jinja/strings.h"

#include <ctime>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "jinja/print.h"

namespace baton::jinja {
namespace {

TEST(JinjaStrings, bytes_that_are_not_utf8_count_one_by_one_and_never_overrun) {
  for (const std::string_view text :
       {"\xff", "a\xe2\x82", "\xf0\x9f\x98", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\x80\x80"}) {
    EXPECT_FALSE(is_valid_utf8(text));
    EXPECT_EQ(offsets(text).size(), length(text) + 1);
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

using Texts = std::vector<std::string_view>;

Texts split_of(std::string_view text, std::optional<std::string_view> separator, std::int64_t most) {
  Parts parts;
  split(text, separator, most, parts);
  return parts.parts;
}
Texts lines_of(std::string_view text) {
  Parts parts;
  split_lines(text, parts);
  return parts.parts;
}

TEST(JinjaStrings, split_follows_python_at_the_limits) {
  EXPECT_EQ(split_of("", std::nullopt, -1), Texts());
  EXPECT_EQ(split_of("", ",", -1), Texts({""}));
  EXPECT_EQ(split_of(" a  b ", std::nullopt, 0), Texts({"a  b "}));
  EXPECT_EQ(split_of("a,b", ",", 0), Texts({"a,b"}));
  EXPECT_EQ(lines_of("a\n\nb\r\n"), Texts({"a", "", "b"}));
}

TEST(JinjaStrings, a_list_of_parts_ends_where_it_may_not_grow) {
  int n = 0;
  Parts parts{.parts = {}, .may_add = [&] { return ++n <= 3; }};
  split("a,b,c,d,e", ",", -1, parts);
  EXPECT_EQ(parts.parts.size(), 3U);
}

TEST(JinjaStrings, searches_find_what_the_standard_library_finds) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string text(random() % 200, 'a'), part(random() % 40, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    for (char& c : part) c = random() % 8 == 0 ? 'b' : 'a';
    if (random() % 2 == 0 && text.size() > 40) part = text.substr(random() % (text.size() - 40), random() % 40);
    const std::size_t from = random() % (text.size() + 2);
    EXPECT_EQ(find_first(text, part, from), text.find(part, from)) << text << " " << part << " " << from;
  }
}

/// The searches of the standard library compare 10^12 bytes here.
TEST(JinjaStrings, a_search_takes_linear_time_whatever_it_looks_for) {
  const std::string text(4'000'000, 'a');
  const std::string half(2'000'000, 'a');
  const std::clock_t begin = std::clock();
  EXPECT_EQ(find_first(text, half + "b", 0), std::string_view::npos);
  EXPECT_EQ(strip(text, half, true, true), "");
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10);
}

TEST(JinjaStrings, a_beginning_ends_with_a_whole_character) {
  EXPECT_EQ(beginning("aé", 3), "aé");
  EXPECT_EQ(beginning("aé", 2), "a");
  EXPECT_EQ(beginning("é", 1), "");
  EXPECT_EQ(beginning("abc", 2), "ab");
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
