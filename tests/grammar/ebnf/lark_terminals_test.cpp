/// The terminals of Lark's module `common`, by texts that they match and others.
#include "grammar/ebnf/lark_terminals.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "support/grammar_texts.h"

namespace baton::grammar {
namespace {

struct Case {
  std::string_view name;
  std::vector<std::string_view> texts;
  std::vector<std::string_view> others;
};

TEST(LarkTerminals, match_what_lark_says) {
  const std::vector<Case> cases{
      {"DIGIT", {"0", "9"}, {"", "12", "a"}},
      {"HEXDIGIT", {"0", "f", "F"}, {"g", "0x"}},
      {"INT", {"0", "12"}, {"-1", "1."}},
      {"SIGNED_INT", {"12", "-1", "+3"}, {"--1", "1.0"}},
      {"DECIMAL", {"1.", "1.5", ".5"}, {"1", "."}},
      {"FLOAT", {"1e5", "1.5", ".5E-3", "1.e+2"}, {"1", "-1.5", "e5"}},
      {"SIGNED_FLOAT", {"-1e5", "+1.5", ".5"}, {"1", "-"}},
      {"NUMBER", {"1", "1.5", ".5", "1e5", "1.e2"}, {"-1", ".", "e2"}},
      {"SIGNED_NUMBER", {"1", "-1.5e-2", "+.5"}, {"+", "1-"}},
      {"ESCAPED_STRING", {R"("")", R"("a b")", R"("\"")", R"("\\")"}, {R"("a)", R"("\")", "\"a\nb\"", "a"}},
      {"LCASE_LETTER", {"a"}, {"A", "ab"}},
      {"UCASE_LETTER", {"Z"}, {"z"}},
      {"LETTER", {"a", "Z"}, {"1", "_"}},
      {"WORD", {"a", "abZ"}, {"", "a1"}},
      {"CNAME", {"_", "a1", "_A_9"}, {"1a", "a-b"}},
      {"WS_INLINE", {" ", " \t "}, {"", "\n"}},
      {"WS", {" ", "\r\n\t\f"}, {"", "\v"}},
      {"CR", {"\r"}, {"\n"}},
      {"LF", {"\n"}, {"\r\n"}},
      {"NEWLINE", {"\n", "\r\n\n"}, {"", "\r"}},
      {"SH_COMMENT", {"#", "# a"}, {"a", "#\n"}},
      {"CPP_COMMENT", {"//", "// a"}, {"/", "//\n"}},
      {"C_COMMENT", {"/**/", "/* a\n* / **/"}, {"/*/", "/**/ */"}},
      {"SQL_COMMENT", {"--", "-- a"}, {"-", "--\n"}}};
  for (const Case& one : cases) {
    const auto regex = common_terminal(one.name);
    ASSERT_TRUE(regex) << one.name;
    const auto grammar = testing::compiled(GrammarKind::regex, *regex);
    for (const std::string_view text : one.texts)
      EXPECT_TRUE(testing::accepts(*grammar.program, text)) << one.name << ": " << text;
    for (const std::string_view text : one.others)
      EXPECT_FALSE(testing::accepts(*grammar.program, text)) << one.name << ": " << text;
  }
}

TEST(LarkTerminals, has_no_others) {
  for (const std::string_view name : {"", "digit", "LFS", "common"}) EXPECT_FALSE(common_terminal(name)) << name;
}

}  // namespace
}  // namespace baton::grammar
