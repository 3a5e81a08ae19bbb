/// Grammars whose rules do not refer to themselves, as automata.
#include "grammar/ebnf/regular_grammar.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace baton::grammar {
namespace {

TEST(RegularGrammar, has_the_texts_of_its_rules) {
  WorkBudget budget({.steps = 1 << 24, .bytes = 1 << 24});
  WorkMeter meter(budget);
  const auto dfa = regular_grammar("start: pair (\",\" pair)*\npair: NAME \"=\" NAME -> p\nNAME: /[a-z]+/", meter);
  ASSERT_TRUE(dfa) << dfa.error().message;
  for (const std::string_view text : {"a=b", "a=b,cd=e"}) EXPECT_TRUE(dfa->accepts(text)) << text;
  for (const std::string_view text : {"", "a=", "a=b,", "a=b cd=e"}) EXPECT_FALSE(dfa->accepts(text)) << text;
}

TEST(RegularGrammar, refuses_rules_that_refer_to_themselves) {
  WorkBudget budget({.steps = 1 << 24, .bytes = 1 << 24});
  WorkMeter meter(budget);
  constexpr std::string_view kCases[][2] = {{"root ::= \"a\" root | \"b\"", "the rule 'root' refers to itself"},
                                            {"start: a\na: \"(\" b \")\"\nb: a | \"x\"", "the rule 'a' refers to itself"},
                                            {"start: a", "uses the rule 'a' and does not define it"}};
  for (const auto& [text, reason] : kCases) {
    const auto dfa = regular_grammar(text, meter);
    ASSERT_FALSE(dfa) << text;
    EXPECT_NE(dfa.error().message.find(reason), std::string::npos) << dfa.error().message;
  }
}

TEST(RegularGrammar, is_found_by_a_look) {
  EXPECT_EQ(is_regular_grammar("start: \"a\"").value(), true);
  EXPECT_EQ(is_regular_grammar("start: \"a\" start | \"b\"").value(), false);
  EXPECT_EQ(is_regular_grammar("%declare A\nstart: A").value(), false) << "what is not supported is not known to be one";
  const auto none = is_regular_grammar("start: (\"a\"");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::invalid_request);
}

TEST(RegularGrammar, that_is_too_large_is_not_looked_at_for_long) {
  std::string text = "start: r0\n";
  for (int i = 0; i < 40; ++i)
    text += "r" + std::to_string(i) + ": r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  text += "r40: \"a\"\n";
  EXPECT_EQ(is_regular_grammar(text).value(), true) << "each rule is looked at once";
  WorkBudget budget({.steps = 1 << 24, .bytes = 1 << 24});
  WorkMeter meter(budget);
  const auto dfa = regular_grammar(text, meter);
  ASSERT_FALSE(dfa) << "2^40 letters";
  EXPECT_EQ(dfa.error().code, ErrorCode::too_large) << dfa.error().message;
  EXPECT_FALSE(is_regular_grammar("start: " + std::string(1 << 22, 'a')).value_or(false));
}

}  // namespace
}  // namespace baton::grammar
