/// Tests of patterns: matches, and Oniguruma's meaning of constructs that PCRE2 reads differently.
#include "text/split/pattern.h"

#include <random>

#include <gtest/gtest.h>

#include "core/log.h"

namespace baton {
namespace {

/// The matches of `expression` in `text`, joined by '|'.
std::string matches(std::string_view expression, std::string_view text) {
  const auto pattern = Pattern::regex(expression);
  if (!pattern) return "error: " + pattern.error().message;
  std::string out;
  for (const TextRange& range : pattern->find_all(text)) {
    if (!out.empty()) out += '|';
    out += text.substr(range.begin, range.end - range.begin);
  }
  return out;
}

TEST(Pattern, finds_literals_without_overlap) {
  const std::vector<TextRange> expected = {{0, 2}, {2, 4}};
  EXPECT_EQ(Pattern::literal("aa").find_all("aaaaa"), expected);
  EXPECT_TRUE(Pattern::literal("").find_all("aaa").empty());
  EXPECT_EQ(Pattern::literal(" ").replace_all(" a b ", "▁"), "▁a▁b▁");
}

TEST(Pattern, several_threads_find_the_matches_of_one) {
  const Parallel parallel(3);
  std::mt19937 random(5);
  const std::vector<std::string> parts = {"a", "b", "ab", " ", "  ", "\n", "1", "22", "é", "的", "'s", "."};
  for (const char* expression : {R"('s| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", R"(...)", R"((?<=a)b)", R"(\b\w+)",
                                 R"(x*)", R"(a*?)", R"((?=b))", R"(^a|$)", R"(z)", R"([\s\S]*)", R"(a\Kb)", R"((?<=(a))b?)"}) {
    const auto pattern = Pattern::regex(expression);
    ASSERT_TRUE(pattern) << pattern.error().message;
    for (std::size_t length = 0; length < 300; length += 7) {
      std::string text;
      for (std::size_t i = 0; i < length; ++i) text += parts[random() % parts.size()];
      ASSERT_EQ(pattern->find_all(text, parallel, UnlimitedWork().meter()), pattern->find_all(text))
          << expression << " in '" << text << "'";
    }
  }
  EXPECT_EQ(Pattern::literal("aa").find_all("aaaaa", parallel, UnlimitedWork().meter()),
            Pattern::literal("aa").find_all("aaaaa"));
}

TEST(Pattern, knows_unicode_classes) {
  EXPECT_EQ(matches(R"(\p{L}+|\p{N}{1,3})", "añb1234 日本 Ⅷ"), "añb|123|4|日本|Ⅷ");
  EXPECT_EQ(matches(R"((?i:'s|'T))", "it'S 't x"), "'S|'t");
  EXPECT_EQ(matches(R"(\s+(?!\S)|\s+)", "a   b  "), "  | |  ");
}

TEST(Pattern, keeps_onigurumas_meaning) {
  EXPECT_EQ(matches(R"(\h+)", "xyzBEEFg"), "BEEF");  // hexadecimal digits, not blanks
  EXPECT_EQ(matches(R"(a\vb)",
                    "a\x0b"
                    "b a\nb"),
            "a\x0b"
            "b");                                     // one character, not a class
  EXPECT_EQ(matches(R"(^b$)", "a\nb\nc"), "b");       // always line by line
  EXPECT_EQ(matches(R"((?m:a.b))", "a\nb"), "a\nb");  // m lets the dot match newlines
  EXPECT_EQ(matches(R"(a.b)", "a\nb axb"), "axb");
  EXPECT_EQ(matches(R"(\w+)", "a\u0301b-c"), "a\u0301b|c");    // marks belong to words
  EXPECT_EQ(matches(R"([^\s\w]+)", "a-\u180e b"), "-\u180e");  // U+180E is no white space
  EXPECT_EQ(matches(R"(\u00e9)", "é"), "é");
  EXPECT_EQ(matches(R"(\p{Han}+)", "日。本ab"), "日|本");  // the script, not scripts that use the character
  EXPECT_EQ(matches(R"([^\p{^Han}]|\P{Latin})", "本ab。"), "本|。");
  EXPECT_EQ(matches(R"(\p{Alphabetic}\pN\p{Lu})", "a1B"), "a1B");
}

TEST(Pattern, classes_in_classes_add_their_members) {
  EXPECT_EQ(matches("[a[bc]d]+", "xabcdx"), "abcd");
  EXPECT_EQ(matches(R"( ?[^(\s|[.,!?])]+)", "it is (so)."), "it| is|so");  // BLOOM's words
}

// Kimi's words: letters by case, without Han.
TEST(Pattern, takes_a_class_away_from_general_categories) {
  EXPECT_EQ(matches(R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)", "AbÇ接\u0301x 力ア々ー1\u01c5\n"),
            "A|Ç|\u0301|ア|ー|\u01c5");
  EXPECT_EQ(matches(R"(x?[\p{L}&&[^\p{Han}b]]{2,}y)", "xacy xaby 接ccy"), "xacy|ccy");
  EXPECT_EQ(matches(R"([\p{Nd}&&[^0-3\s]])", "0345"), "4|5");
  EXPECT_EQ(matches(R"([\p{L}&&[^a]]+)", std::string(100'000, 'b')), std::string(100'000, 'b'));
}

TEST(Pattern, refuses_by_name_what_would_mean_something_else) {
  for (const char* expression : {"[a&&b]",
                                 R"([\p{L}a&&[^b]])",
                                 R"([^\p{L}&&[^b]])",
                                 R"([\p{Han}&&[^b]])",
                                 R"([\p{L}&&[b]])",
                                 R"([\p{L}&&[^b]c])",
                                 R"([\p{L}&&[^[b]]])",
                                 R"([\p{L}&&[^\]]])",
                                 R"([\p{L}&&[^]])",
                                 R"([\p{L}&&[^a&&b]])",
                                 "[&&[^b]]",
                                 R"([\p{&&[^b]])",
                                 "[a[^b]]",
                                 "[a[-b]]",
                                 "[a-[b]]",
                                 "a{2}+",
                                 R"(\Qa\E)",
                                 R"([\W])",
                                 "(*UCP)a",
                                 "[]a]"}) {
    const auto pattern = Pattern::regex(expression);
    ASSERT_FALSE(pattern) << expression;
    EXPECT_EQ(pattern.error().code, ErrorCode::unsupported);
    EXPECT_NE(pattern.error().message.find("is not supported"), std::string::npos) << pattern.error().message;
  }
  EXPECT_FALSE(Pattern::regex("(a"));
  EXPECT_FALSE(Pattern::regex("\\"));
  EXPECT_FALSE(Pattern::regex(R"(\p{)"));
  EXPECT_FALSE(Pattern::regex("\xff"));
  EXPECT_FALSE(Pattern::regex(std::string(100'000, 'a')));
}

TEST(Pattern, an_empty_match_never_follows_another_match) {
  const auto pattern = Pattern::regex("a*");
  ASSERT_TRUE(pattern);
  const std::vector<TextRange> expected = {{0, 2}, {3, 3}, {4, 5}};
  EXPECT_EQ(pattern->find_all("aabca").size(), expected.size());
  EXPECT_EQ(pattern->find_all("aabca"), expected);
}

TEST(Pattern, gives_up_on_an_expression_that_explodes) {
  const auto pattern = Pattern::regex("(?:a+)+$|b");
  ASSERT_TRUE(pattern);
  log::set_level(log::Level::error);  // a warning says that it gave up
  EXPECT_LE(pattern->find_all(std::string(40, 'a') + "!b").size(), 1u);
  log::set_level(log::Level::info);
}

TEST(Pattern, matches_repeated_groups_in_long_texts) {
  const auto pattern = Pattern::regex("(?:a|b)+c");
  ASSERT_TRUE(pattern);
  std::string text(100'000, 'a');
  text += 'c';
  const std::vector<TextRange> expected = {{0, text.size()}};
  EXPECT_EQ(pattern->find_all(text), expected);
}

TEST(Pattern, reads_both_forms_from_files) {
  EXPECT_EQ(*Pattern::from_json({{"String", "a.c"}}, "X")->as_literal(), "a.c");
  EXPECT_EQ(Pattern::from_json({{"Regex", "a.c"}}, "X")->find_all("abc").size(), 1u);
  EXPECT_FALSE(Pattern::from_json({{"Glob", "a"}}, "X"));
  EXPECT_FALSE(Pattern::from_json(7, "X"));
}

}  // namespace
}  // namespace baton
