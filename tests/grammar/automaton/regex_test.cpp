/// Tests of regular expressions and of the formats that are written with them.
#include "grammar/automaton/regex.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/automaton/char_ranges.h"
#include "grammar/automaton/regex_characters.h"
#include "grammar/automaton/string_formats.h"
#include "support/grammar_texts.h"

namespace baton::grammar {
namespace {

using testing::accepts;
using testing::compiled;
using testing::refusal;

struct RegexCase {
  std::string regex;
  std::vector<std::string> matching;
  std::vector<std::string> other;
};

TEST(Regex, matches_whole_texts) {
  const std::vector<RegexCase> cases{
      {"a|bc", {"a", "bc"}, {"", "b", "abc"}},
      {"^(a|b)+$", {"a", "abba"}, {"", "abc"}},
      {"(?:ab){2,3}", {"abab", "ababab"}, {"ab", "abababab"}},
      {"a{2,}b{0}", {"aa", "aaaa"}, {"a", "aab"}},
      {"x*?y+?z??", {"y", "xyz", "xxyy"}, {"x", "yzz"}},
      {".", {"a", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"", "\n", "ab", "\xC3", "\xED\xA0\x80"}},
      {"[^a-c\\d]", {"d", "\n", "\xE2\x82\xAC"}, {"a", "5", ""}},
      {"[\\]\\-a-]", {"]", "-", "a"}, {"b", "\\"}},
      {"\\x41\\u00e9\\u{1F600}\\t", {"A\xC3\xA9\xF0\x9F\x98\x80\t"}, {"A\xC3\xA9\xF0\x9F\x98\x80t"}},
      {"\\ud83d\\ude00", {"\xF0\x9F\x98\x80"}, {""}},
      {"\\w+\\s\\W\\D", {"ab_9 -x", "a\xC2\xA0\xC3\xA9y"}, {"ab-x-y", "a b1"}},
      {"\\p{Lu}\\p{Ll}*\\P{L}", {"Abc1", "\xC3\x89\xC3\xA9!"}, {"abc1", "Abcd"}},
      {"\\p{Letter}\\p{gc=Nd}", {"a5"}, {"5a"}},
      {"(?<year>[0-9]{4})-(?P<month>[0-9]{2})", {"2024-05"}, {"2024-5"}},
      {"(^a|b)c", {"ac", "bc"}, {"c"}},
      {"a\\.b\\/c", {"a.b/c"}, {"axb/c"}},
      {"", {""}, {"a"}},
  };
  for (const RegexCase& one : cases) {
    const auto grammar = compiled(GrammarKind::regex, one.regex);
    for (const std::string& text : one.matching) EXPECT_TRUE(accepts(*grammar.program, text)) << one.regex << ": " << text;
    for (const std::string& text : one.other) EXPECT_FALSE(accepts(*grammar.program, text)) << one.regex << ": " << text;
  }
}

TEST(Regex, looks_ahead) {
  const std::vector<RegexCase> cases{
      {"^(?!a)[a-c]+$", {"b", "cab"}, {"", "a", "abc"}},
      {"(?=.*[a-z])(?=.*\\d).{3,}", {"ab1", "1b2"}, {"abc", "123", "a1"}},
      {"(?!.*\\.\\.)[a.]+", {"a.a.", "a"}, {"a..", ""}},
      {"a(?=b)[bc]+", {"ab", "abc"}, {"acb", "a"}},
      {"(?:(?=\\d|x)[\\dxy]*|z)", {"1y", "x", "z"}, {"y1", "zz", ""}},
      {"P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)",
       {"P3W", "P1Y2M", "PT5M", "P1DT2.5S"},
       {"P", "PT", "P1Y3W", "P1DT"}},
      {"(?!(?!a)).*", {"a", "ab"}, {"", "b"}},
      {"(?=ab$)?a.*", {"ab", "ax"}, {"b"}},
      {"(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*", {"1.5", "-0", "+.5"}, {"", "-", ".", "x"}},
      {"^(?=^a|b)[abc]*$", {"a", "bc"}, {"", "ca"}},
      {"(?!foo$)[a-z]{3}", {"bar", "fox"}, {"foo", "fo"}},
      {"(?=.{2,4}$)(a|bc)+", {"aa", "bca", "bcbc"}, {"a", "bcbca"}},
  };
  for (const RegexCase& one : cases) {
    const auto grammar = compiled(GrammarKind::regex, one.regex);
    for (const std::string& text : one.matching) EXPECT_TRUE(accepts(*grammar.program, text)) << one.regex << ": " << text;
    for (const std::string& text : one.other) EXPECT_FALSE(accepts(*grammar.program, text)) << one.regex << ": " << text;
  }
}

/// Somewhere in a text, look-ahead sees all that follows.
TEST(Regex, looks_ahead_where_it_searches) {
  EXPECT_NE(refusal(GrammarKind::json_schema, R"x({"pattern": "(?!^a)b"})x").find("anchor inside of look-ahead"),
            std::string::npos);
  const std::vector<RegexCase> cases{{"^(?!^a)[ab]", {"b", "bax"}, {"ab", "xb"}},
                                     {"a(?!.*b)c", {"xacx", "acbac"}, {"acb", "ab"}},
                                     {"(?!ab)a.", {"ac", "abac"}, {"ab", "a"}},
                                     {"^(?=..$)", {"ab"}, {"a", "abc"}},
                                     {"(^|x)(?=y)", {"y", "axy"}, {"ay", "x"}}};
  for (const RegexCase& one : cases) {
    const auto grammar = compiled(GrammarKind::json_schema, R"({"type": "string", "pattern": ")" + one.regex + "\"}");
    for (const std::string& text : one.matching)
      EXPECT_TRUE(accepts(*grammar.program, '"' + text + '"')) << one.regex << ": " << text;
    for (const std::string& text : one.other)
      EXPECT_FALSE(accepts(*grammar.program, '"' + text + '"')) << one.regex << ": " << text;
  }
}

TEST(Regex, names_what_it_does_not_support_and_where_it_is_wrong) {
  const std::vector<std::pair<std::string, std::string>> cases{{"(a(?=b)b)*", "look-ahead in a repetition"},
                                                               {"(?<!a)b", "look-behind"},
                                                               {"(?=a", "without ')'"},
                                                               {"x(?=^a)", "an anchor inside"},
                                                               {"(a|^(?=b))c^", "an anchor inside"},
                                                               {"(a)\\1", "back reference"},
                                                               {"\\bword", "word boundary"},
                                                               {"(?i)a", "flags"},
                                                               {"a^b", "anchor inside"},
                                                               {"(a$)+", "repeated anchor"},
                                                               {"a++", "possessive"},
                                                               {"\\p{Greek}", "'Greek'"},
                                                               {"\\q", "'\\q'"},
                                                               {"[[:alpha:]]", "'[:'"},
                                                               {"(a", "without ')'"},
                                                               {"a)", "')' without"},
                                                               {"[a", "without ']'"},
                                                               {"*a", "repeats nothing"},
                                                               {"a{3,2}", "wrong order"},
                                                               {"a{1", "begins no"},
                                                               {"[b-a]", "before its begin"},
                                                               {"\\x4", "hexadecimal"},
                                                               {"a\\", "backslash"},
                                                               {"a{200000}", "repeats more than 100000 times"},
                                                               {"\xC3", "not valid UTF-8"}};
  for (const auto& [regex, reason] : cases)
    EXPECT_NE(refusal(GrammarKind::regex, regex).find(reason), std::string::npos)
        << regex << ": " << refusal(GrammarKind::regex, regex);
  EXPECT_NE(refusal(GrammarKind::regex, "ab(c").find("at byte 4"), std::string::npos);
}

TEST(Regex, nesting_beyond_the_stack_is_refused) {
  const std::string deep = std::string(400'000, '(') + "a" + std::string(400'000, ')');
  EXPECT_NE(refusal(GrammarKind::regex, deep).find("nested too deep"), std::string::npos);
}

TEST(Regex, a_long_text_is_not_nested) {
  EXPECT_EQ(refusal(GrammarKind::regex, std::string(100'000, 'a')), "");
  std::string groups;
  for (int i = 0; i < 20'000; ++i) groups += "(b?)[cd]";
  EXPECT_EQ(refusal(GrammarKind::regex, groups), "");
}

TEST(CharRanges, joins_and_complements) {
  EXPECT_EQ(normalized({{5, 9}, {1, 2}, {3, 4}, {20, 30}}), (CharRanges{{1, 9}, {20, 30}}));
  EXPECT_EQ(complement({{0, 4}, {10, 10}}), (CharRanges{{5, 9}, {11, kLastCodePoint}}));
  EXPECT_EQ(complement({{0, kLastCodePoint}}), CharRanges{});
  EXPECT_FALSE(category_ranges("Nonsense").has_value());
}

TEST(StringFormat, checks_texts_by_their_standards) {
  const std::vector<RegexCase> cases{
      {"date",
       {"2024-02-29", "2000-02-29", "1999-12-31"},
       {"2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "24-01-01"}},
      {"time", {"23:59:59Z", "12:00:00.5+01:30"}, {"24:00:00Z", "12:00:00", "12:00:00+24:00"}},
      {"date-time", {"2024-02-29T12:00:00Z", "1963-06-19t08:30:06.283185z"}, {"2024-02-30T12:00:00Z", "2024-02-29 12:00:00Z"}},
      {"duration", {"P1Y2M3DT4H5M6S", "P2W", "PT1M"}, {"P", "PT", "P1YT", "P1D2H", "P2W1D"}},
      {"email", {"a.b@example.com", "x@[127.0.0.1]"}, {".a@example.com", "a..b@example.com", "a@-b.com", "a"}},
      {"hostname", {"a", "a-b.c", std::string(63, 'a')}, {"", "-a", "a-", "a..b", std::string(64, 'a')}},
      {"ipv4", {"0.0.0.0", "255.255.255.255"}, {"256.1.1.1", "01.1.1.1", "1.1.1"}},
      {"ipv6",
       {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "::ffff:192.168.0.1", "1:2:3:4:5:6:1.2.3.4", "1:2::7:8"},
       {":", "1:2:3:4:5:6:7", "1::2::3", "12345::", "1:2:3:4:5:6:7:8:9", "::1.2.3"}},
      {"uri",
       {"http://a@b.c:80/d?e#f", "urn:a:b", "mailto:a@b", "http://[::1]/"},
       {"//a/b", "a b:c", "1http://a", "http://a b", "http://a/%6G"}},
      {"uri-reference", {"", "a/b", "//host/path", "#x", "http://a"}, {"a\\b", "%6G", "1:b"}},
      {"uuid",
       {"2eb8aa08-aa98-11ea-b4aa-73b441d16380"},
       {"2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638"}},
      {"json-pointer", {"", "/a/~0~1", "//"}, {"a", "/~", "/~2"}},
      {"relative-json-pointer", {"0", "1/a", "12#"}, {"", "/a", "01", "1#a"}},
  };
  for (const RegexCase& one : cases) {
    const StringFormat format = string_format(one.regex);
    ASSERT_EQ(format.use, FormatUse::checked) << one.regex;
    const auto grammar = compiled(GrammarKind::regex, format.regex);
    for (const std::string& text : one.matching) EXPECT_TRUE(accepts(*grammar.program, text)) << one.regex << ": " << text;
    for (const std::string& text : one.other) EXPECT_FALSE(accepts(*grammar.program, text)) << one.regex << ": " << text;
  }
  EXPECT_EQ(string_format("idn-hostname").use, FormatUse::refused);
  EXPECT_EQ(string_format("int32").use, FormatUse::annotation);
}

}  // namespace
}  // namespace baton::grammar
