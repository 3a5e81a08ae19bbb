/// Tests of grammars in GBNF and Lark.
#include "grammar/front/ebnf.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/automaton/program.h"
#include "support/grammar_texts.h"

namespace baton::grammar {
namespace {

using testing::accepts;
using testing::compiled;
using testing::refusal;

TEST(Ebnf, reads_gbnf) {
  const auto arithmetic = compiled(GrammarKind::ebnf, R"ebnf(
# sums of products
root ::= term (("+" | "-") term)*   # with a comment
term ::= factor
  | factor "*" term
factor ::= number | "(" root ")"
number ::= [0-9]+ ("." [0-9]{1,2})?
)ebnf");
  for (const char* text : {"1", "1+2*3", "((1.25))-4", "(1+2)*(3-4)"}) EXPECT_TRUE(accepts(*arithmetic.program, text)) << text;
  for (const char* text : {"", "1+", "(1", "1.250", "1)", "+1"}) EXPECT_FALSE(accepts(*arithmetic.program, text)) << text;
}

TEST(Ebnf, reads_escapes_and_classes) {
  const auto grammar = compiled(GrammarKind::ebnf, "root ::= \"\\\"\\x41\\u00e9\\U0001F600\\n\" [^\\]a-c] .{2,2}");
  EXPECT_TRUE(accepts(*grammar.program, "\"A\xC3\xA9\xF0\x9F\x98\x80\nd\n\xE2\x82\xAC"));
  EXPECT_FALSE(accepts(*grammar.program, "\"A\xC3\xA9\xF0\x9F\x98\x80\nbxx"));
  EXPECT_FALSE(accepts(*grammar.program, "\"A\xC3\xA9\xF0\x9F\x98\x80\n]xx"));
}

TEST(Ebnf, reads_rules_that_nest_without_end) {
  const auto balanced = compiled(GrammarKind::ebnf, "root ::= \"(\" root \")\" root | \"\"");
  EXPECT_TRUE(accepts(*balanced.program, ""));
  EXPECT_TRUE(accepts(*balanced.program, "(()())()"));
  EXPECT_FALSE(accepts(*balanced.program, "(()"));
  const std::string deep = std::string(900, '(') + std::string(900, ')');
  EXPECT_TRUE(accepts(*balanced.program, deep));
  const std::string too_deep = std::string(1100, '(') + std::string(1100, ')');
  EXPECT_FALSE(accepts(*balanced.program, too_deep)) << "the limit of Configurations::kMaxDepth";
}

TEST(Ebnf, an_ambiguous_grammar_stays_small) {
  const auto grammar = compiled(GrammarKind::ebnf, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\"");
  Configurations configurations(*grammar.program);
  auto at = configurations.start();
  for (int i = 0; i < 200; ++i) {
    at = configurations.step(at, 'a');
    ASSERT_NE(at, Configurations::kDead);
    EXPECT_LE(configurations.items(at).size(), 4u);
  }
  EXPECT_TRUE(accepts(*grammar.program, "aaaxbcb"));
  EXPECT_FALSE(accepts(*grammar.program, "aaaxbc"));
}

TEST(Ebnf, reads_lark) {
  const auto grammar = compiled(GrammarKind::ebnf, R"ebnf(
// a list of assignments
start: pair ("," pair)* ["!"]
?pair: NAME "=" value   -> pair
value: /[0-9]+/ | 'none'
NAME: /[a-z][a-z0-9_]*/
)ebnf");
  for (const char* text : {"a=1", "a_1=none,b=22!"}) EXPECT_TRUE(accepts(*grammar.program, text)) << text;
  for (const char* text : {"", "a=", "a=1,", "A=1", "a=1!!"}) EXPECT_FALSE(accepts(*grammar.program, text)) << text;
}

TEST(Ebnf, says_what_is_wrong_and_in_which_line) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"root ::= a", "uses the rule 'a' and does not define it"},
      {"a ::= \"x\"", "no rule 'root'"},
      {"root ::= \"x\nroot2 ::= \"y\"", "line 1 of the grammar ends inside a literal"},
      {"root ::= \"x\"\nroot ::= \"y\"", "line 2 of the grammar defines the rule 'root' again"},
      {"root ::= root \"x\" | \"x\"", "'root' of the grammar begins with itself"},
      {"root ::= a | \"x\"\na ::= \"b\"? root", "begins with itself"},
      {"root ::= [a", "without ']'"},
      {"root ::= (\"a\"", "without ')'"},
      {"root ::= \"a\")", "too many"},
      {"root ::= \"a\"{3,1}", "wrong order"},
      {"start: \"a\"\n%ignore \" \"", "line 2 of the grammar has the directive '%ignore'"},
      {"start: \"a\"i", "flags"},
      {"start: \"a\"..\"z\"", "range"},
      {"start: /a(?=b)/", "look-ahead"},
      {"root ::= \"a\" root", "no text can match"}};
  for (const auto& [text, reason] : cases)
    EXPECT_NE(refusal(GrammarKind::ebnf, text).find(reason), std::string::npos)
        << text << ": " << refusal(GrammarKind::ebnf, text);
}

}  // namespace
}  // namespace baton::grammar
