/// Tests of configurations: what finding the next one costs, and that long closures say what short ones would.
#include "grammar/automaton/configurations.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/grammar_texts.h"

namespace baton::grammar {
namespace {

using testing::accepts;
using testing::compiled;

TEST(Configurations, a_byte_costs_about_what_it_leaves_open) {
  // After each byte every later copy may continue, and each of them reaches all that follow it.
  for (const char* regex : {"(a?){5000}", "(a?){5000}x", "(a?b?){4000}", "(a?|b){4000}"}) {
    const auto grammar = compiled(GrammarKind::regex, regex);
    Configurations configurations(*grammar.program);
    Configurations::Id at = configurations.start();
    for (int i = 0; i < 3; ++i) {
      const std::int64_t before = configurations.n_steps();
      at = configurations.step(at, 'a');
      ASSERT_NE(at, Configurations::kDead) << regex;
      EXPECT_LT(configurations.n_steps() - before, 100'000) << regex;
    }
  }
}

/// 496 calls of 16 rules, each of which calls half of 400 others at its end, so that these return to 248 places each.
std::string rules_that_return_to_many_places() {
  constexpr int kGroups = 16;
  constexpr int kRules = 400;
  std::string root = "root ::=";
  for (int i = 0; i < 31 * kGroups; ++i) {
    root += fmt::format(" (g{}", i % kGroups);
    for (char c = 'a'; c < 'n'; ++c) root += fmt::format(" \"{}\"?", c);
    root += " \"y\")?";
  }
  root += "\n";
  std::minstd_rand random(7);
  std::vector<std::string> groups(kGroups);
  for (int i = 0; i < kRules; ++i) {
    std::vector<int> some(kGroups);
    std::iota(some.begin(), some.end(), 0);
    std::shuffle(some.begin(), some.end(), random);
    for (int k = 0; k < kGroups / 2; ++k)
      groups[static_cast<std::size_t>(some[static_cast<std::size_t>(k)])] += fmt::format(" | r{}", i);
    root += fmt::format("r{} ::= \"x\"\n", i);
  }
  for (int k = 0; k < kGroups; ++k) root += fmt::format("g{} ::= {}\n", k, groups[static_cast<std::size_t>(k)].substr(3));
  return root;
}

TEST(Configurations, a_byte_after_which_too_much_must_be_looked_at_is_refused) {
  const auto grammar = compiled(GrammarKind::ebnf, rules_that_return_to_many_places());
  Configurations configurations(*grammar.program);
  const Configurations::Id start = configurations.start();
  ASSERT_NE(start, Configurations::kDead);
  const std::int64_t before = configurations.n_steps();
  EXPECT_EQ(configurations.step(start, 'x'), Configurations::kDead);
  EXPECT_TRUE(configurations.has_overflowed());
  EXPECT_LT(configurations.n_steps() - before, Configurations::kMaxLookups + 10'000);
}

TEST(Configurations, a_long_closure_has_the_texts_of_its_states) {
  const auto copies = compiled(GrammarKind::regex, "(a?b?){200}c");
  std::string most;
  for (int i = 0; i < 200; ++i) most += "ab";
  EXPECT_TRUE(accepts(*copies.program, most + "c"));
  EXPECT_TRUE(accepts(*copies.program, "c"));
  EXPECT_TRUE(accepts(*copies.program, std::string(200, 'b') + "c"));
  EXPECT_TRUE(accepts(*copies.program, most.substr(1) + "c"));
  EXPECT_FALSE(accepts(*copies.program, most + "ac"));
  EXPECT_FALSE(accepts(*copies.program, std::string(201, 'b') + "c"));
  EXPECT_FALSE(accepts(*copies.program, most));
  // Loops that may pass by all their parts, and calls between them.
  std::string parts;
  for (char c = 'a'; c <= 'z'; ++c) parts += fmt::format(" ({}x*)?", c == 'q' ? "q " : fmt::format("\"{}\" ", c));
  const auto loop = compiled(GrammarKind::ebnf, "root ::= ((" + parts + ")* (" + parts +
                                                    ")* \".\"?)* \"!\"\nq ::= \"q\" | \"(\" q \")\"\nx ::= \"0\" | \"1\"\n");
  for (const char* text : {"!", "a!", "zyx!", "q!", "((q))!", "a0110b!", ".!", "q0.q1!", "zzzzz....a!"})
    EXPECT_TRUE(accepts(*loop.program, text)) << text;
  for (const char* text : {"", "a", "0!", "(q!", "a2!", "!!", "q)!"}) EXPECT_FALSE(accepts(*loop.program, text)) << text;
}

}  // namespace
}  // namespace baton::grammar
