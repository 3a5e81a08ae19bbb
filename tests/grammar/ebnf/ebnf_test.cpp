/// Tests of grammars in GBNF and Lark.
#include "grammar/ebnf/ebnf.h"

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

/// The grammar of patches that a coding agent gives its tool.
constexpr std::string_view kPatch = R"ebnf(
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF
%import common.LF
)ebnf";

TEST(Ebnf, reads_the_grammar_of_patches) {
  const auto grammar = compiled(GrammarKind::ebnf, kPatch);
  for (const char* text : {"*** Begin Patch\n*** Add File: a.py\n+x = 1\n+\n*** End Patch",
                           "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@ def f\n-a\n+b\n c\n*** End Patch\n",
                           "*** Begin Patch\n*** Delete File: a\n*** Delete File: b\n*** End Patch"})
    EXPECT_TRUE(accepts(*grammar.program, text)) << text;
  for (const char* text : {"*** Begin Patch\n*** End Patch", "*** Begin Patch\n*** Add File: \n+x\n*** End Patch",
                           "*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "*** Begin Patch\n*** Delete File: a\n"})
    EXPECT_FALSE(accepts(*grammar.program, text)) << text;
}

TEST(Ebnf, reads_what_else_lark_has) {
  struct Case {
    std::string_view grammar;
    std::vector<std::string_view> texts;
    std::vector<std::string_view> others;
  };
  const std::vector<Case> cases{
      {"start: \"a\"i 'bC1'i \"d\"", {"abC1d", "ABc1d"}, {"abC1D", "a"}},
      {"start: \"a\"..\"f\" 'x'..'z'", {"ax", "fz"}, {"gx", "a"}},
      {"start: \"é\"..\"ü\"", {"é", "ö"}, {"a", "\xC3"}},
      {"start: A~2 \"b\" ~ 1..3\nA: /[0-9]/", {"12b", "12bbb"}, {"1b", "12", "12bbbb"}},
      {"start: \"\\ud83d\\ude00\" [\"\\u00e9\"]", {"😀", "😀é"}, {"\xEF\xBF\xBD", "é"}},
      {"\xEF\xBB\xBFstart.2: \"a\"",
       {"a"},
       {"\xEF\xBB\xBF"
        "a"}},
      {"A.2: \"a\"\nstart: A", {"a"}, {""}},
      {"start: B | A\nA.2: \"if\"\nB.1: /[a-z]+/", {"if", "of"}, {"IF"}},
      {"%import common (INT, CNAME)\n%import common.SIGNED_NUMBER -> NUM\nstart: CNAME \"=\" (INT | NUM)",
       {"a_1=12", "_x=-1.5e3", "b=.5"},
       {"1a=2", "a=", "a=+"}},
      {"start: ESCAPED_STRING WS C_COMMENT\n%import common.ESCAPED_STRING\n%import common.WS\n%import common.C_COMMENT",
       {"\"a \\\" b\"\n /* * / */", "\"\" /**/"},
       {"\"a\\\" /**/", "\"\" /* */ */"}},
      {"start: item (\",\" item)*\nitem: NAME\nNAME: /[a-z]+/\n%import common.WS\n%ignore WS\n%ignore /#[^\\n]*/",
       {"a,b", " a , b ", "\n a #x,y\n , b", "a"},
       {"a b", "a,", ""}},
      {"WORD: \"a\" \"b\"\nstart: WORD+\n%ignore \" \"", {"ab", "ab ab", "abab ", "  ab"}, {"a b", " "}}};
  for (const Case& one : cases) {
    const auto grammar = compiled(GrammarKind::ebnf, std::string(one.grammar));
    for (const std::string_view text : one.texts) EXPECT_TRUE(accepts(*grammar.program, text)) << one.grammar << ": " << text;
    for (const std::string_view text : one.others) EXPECT_FALSE(accepts(*grammar.program, text)) << one.grammar << ": " << text;
  }
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
      {"start: \"a\"\n%declare B", "line 2 of the grammar has the directive '%declare'"},
      {"start: A\n%import common.A", "imports 'A', which 'common' does not have"},
      {"start: A\n%import other.A", "from another module than 'common'"},
      {"start: \"a\"\n%import common.WS\n%import common.WS", "line 3 of the grammar defines the rule 'WS' again"},
      {"start: \"a\"\nx: \"(\" x \")\" | \"\"\n%ignore x",
       "what the grammar's %ignore names: the rule 'what %ignore names' refers to itself"},
      {"start: /a/i", "flags"},
      {"start: \"ab\"..\"z\"", "no single characters"},
      {"start: \"z\"..\"a\"", "whose end is before its begin"},
      {"start: \"a\"~x", "begins no repetition"},
      {"start: \"a\"~3..1", "wrong order"},
      {"start: list{A}\nA: \"a\"", "a template"},
      {"_sep{x, s}: x (s x)*\nstart: \"a\"", "line 1 of the grammar has a template"},
      {"start: \"\\ud83d\"", "has half of a surrogate pair"},
      {"root ::= \"\\ude00\\ud83d\"", "has half of a surrogate pair"},
      {"root ::= [\\U0000d83d]", "has half of a surrogate pair"},
      {"start: \"a\"\nlist{x}: x", "a template"},
      {"start: /a(?=b)/", "look-ahead"},
      {"root ::= \"a\" root", "no text can match"}};
  for (const auto& [text, reason] : cases)
    EXPECT_NE(refusal(GrammarKind::ebnf, text).find(reason), std::string::npos)
        << text << ": " << refusal(GrammarKind::ebnf, text);
}

}  // namespace
}  // namespace baton::grammar
