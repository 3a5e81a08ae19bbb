/// Tests of automata: products, minimisation, JSON escapes and numbers, against what they must say.
#include "grammar/automaton/dfa.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/automaton/expression.h"
#include "grammar/automaton/nfa.h"
#include "grammar/automaton/number_language.h"
#include "grammar/automaton/regex.h"

namespace baton::grammar {
namespace {

/// A budget that no test of this file exhausts.
class DfaTest : public ::testing::Test {
 protected:
  Dfa of(std::string_view regex, RegexUse use = RegexUse::whole) {
    const auto expr = parse_regex(expressions_, regex, use, meter_);
    EXPECT_TRUE(expr.has_value()) << regex;
    auto dfa = determinize(expressions_, *expr, meter_);
    EXPECT_TRUE(dfa.has_value()) << regex;
    return std::move(*dfa);
  }

  WorkBudget budget_{{.steps = std::int64_t{1} << 40, .bytes = std::int64_t{1} << 40}};
  WorkMeter meter_{budget_};
  Expressions expressions_{meter_};
};

std::vector<std::string> words(std::string_view letters, std::size_t max_length) {
  std::vector<std::string> all{""};
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].size() < max_length)
      for (const char letter : letters) all.push_back(all[i] + letter);
  return all;
}

TEST_F(DfaTest, a_minimal_automaton_has_as_few_states_as_its_language_needs) {
  EXPECT_EQ(of("a*").n_states(), 1u);
  EXPECT_EQ(of("(ab|cb)d").n_states(), 4u);
  EXPECT_EQ(of("(a|b)*abb").n_states(), 4u);
  const auto none = combine(of("a"), of("b"), DfaProduct::intersection, meter_);
  EXPECT_EQ(none->n_states(), 1u);
  EXPECT_TRUE(none->is_empty());
}

/// Which classes of states that are alike a round of comparisons leaves, until none splits any more; state -1 is dead.
std::size_t n_classes_of_reached(const Dfa& dfa) {
  std::set<std::int32_t> reached{0};
  for (std::vector<std::int32_t> work{0}; !work.empty();) {
    const std::int32_t state = work.back();
    work.pop_back();
    for (const std::int32_t target : dfa.next[static_cast<std::size_t>(state)])
      if (target != Dfa::kDead && reached.insert(target).second) work.push_back(target);
  }
  reached.insert(Dfa::kDead);
  std::map<std::int32_t, std::size_t> of;
  for (const std::int32_t state : reached) of[state] = state != Dfa::kDead && dfa.is_final[static_cast<std::size_t>(state)];
  for (std::size_t n_before = 0;;) {
    std::map<std::vector<std::size_t>, std::size_t> seen;
    std::map<std::int32_t, std::size_t> finer;
    for (const std::int32_t state : reached) {
      std::vector<std::size_t> key{of[state]};
      for (std::size_t byte = 0; byte < 256; ++byte)
        key.push_back(of[state == Dfa::kDead ? state : dfa.next[static_cast<std::size_t>(state)][byte]]);
      finer[state] = seen.emplace(std::move(key), seen.size()).first->second;
    }
    of = std::move(finer);
    if (seen.size() == n_before) return n_before - 1;  // without the dead one, to which dropped states belong
    n_before = seen.size();
  }
}

TEST_F(DfaTest, random_automata_keep_their_language_in_as_many_states_as_there_are_classes) {
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
    const int n = 1 + below(24), n_letters = 1 + below(3), n_dead = below(4);
    Dfa dfa(meter_);
    for (int state = 0; state < n; ++state) dfa.add_state(below(4) == 0);
    for (int state = 0; state < n; ++state)
      for (int letter = 0; letter < n_letters; ++letter)
        dfa.next[static_cast<std::size_t>(state)][static_cast<std::size_t>('a' + letter)] =
            below(10) < n_dead ? Dfa::kDead : below(n);
    const auto least = minimize(dfa, meter_);
    ASSERT_TRUE(least);
    const std::size_t n_classes = n_classes_of_reached(dfa);
    EXPECT_EQ(least->n_states(), dfa.is_empty() ? 1 : n_classes) << "round " << round;
    for (const std::string& word : words(std::string_view("abc").substr(0, static_cast<std::size_t>(n_letters)), 6))
      EXPECT_EQ(least->accepts(word), dfa.accepts(word)) << "round " << round << ": " << word;
    const auto again = minimize(*least, meter_);
    EXPECT_EQ(again->next, least->next) << "round " << round << ": its states are numbered as they were";
  }
}

TEST_F(DfaTest, a_long_text_costs_its_length) {
  std::vector<std::int64_t> steps;
  for (const std::size_t length : {400u, 1200u, 3600u}) {
    Dfa text(meter_);
    for (std::size_t i = 0; i <= length; ++i) text.add_state(i == length);
    for (std::size_t i = 0; i < length; ++i)
      text.next[i][static_cast<std::size_t>('a' + static_cast<int>(i % 7))] = static_cast<std::int32_t>(i + 1);
    WorkBudget budget({.steps = std::int64_t{1} << 40, .bytes = std::int64_t{1} << 40});
    WorkMeter meter(budget);
    const auto least = minimize(text, meter);
    ASSERT_TRUE(least);
    EXPECT_EQ(least->n_states(), length + 1);
    steps.push_back(budget.steps());
  }
  EXPECT_LT(steps[1], 5 * steps[0]) << "three times as long";
  EXPECT_LT(steps[2], 5 * steps[1]);
}

TEST_F(DfaTest, products_accept_what_both_or_only_the_first_accept) {
  const std::vector<std::string> regexes{"(ab|ba)*", "a*b?a", "[ab]{2,3}", "(a|bb)+", "b*"};
  for (const std::string& a : regexes)
    for (const std::string& b : regexes) {
      const Dfa first = of(a);
      const Dfa second = of(b);
      const auto both = combine(first, second, DfaProduct::intersection, meter_);
      const auto rest = combine(first, second, DfaProduct::difference, meter_);
      for (const std::string& word : words("ab", 6)) {
        EXPECT_EQ(both->accepts(word), first.accepts(word) && second.accepts(word)) << a << " and " << b << ": " << word;
        EXPECT_EQ(rest->accepts(word), first.accepts(word) && !second.accepts(word)) << a << " not " << b << ": " << word;
      }
    }
}

TEST_F(DfaTest, escapes_quotes_backslashes_and_controls_in_the_shortest_way) {
  const auto escaped = json_escaped(of("[\\s\\S]{3}"), meter_);
  for (const char* text :
       {"abc", "a\\\"b", "\\\\\\\\\\\\", "\\n\\t\\b", "\\u0000\\u001f\\u001F", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"})
    EXPECT_TRUE(escaped->accepts(text)) << text;
  for (const char* text : {"ab", "a\"b", "a\nb", "\\u000a__", "\\u0041__", "\\/ab", "ab\\", "\xC3\xA9_"})
    EXPECT_FALSE(escaped->accepts(text)) << text;
}

TEST_F(DfaTest, numbers_within_bounds_are_all_that_compare_so) {
  const std::vector<std::string> bounds{"0", "-0.5", "1", "-1", "7", "10", "99", "100.25", "-100", "0.05", "-12.34", "1234.5"};
  std::vector<std::string> texts{"0",  "-1",   "1",       "00",       "01",    "-",    "1.",
                                 ".5", "1.50", "100.250", "100.2501", "0.050", "9.99", "-99.99"};
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    std::string text = random() % 2 == 0 ? "-" : "";
    text += std::to_string(random() % (random() % 3 == 0 ? 2000 : 15));
    if (random() % 2 == 0) text += "." + std::to_string(random() % 400);
    texts.push_back(text);
  }
  const Dfa well_formed = of("-?(0|[1-9][0-9]*)(\\.[0-9]+)?");
  for (const std::string& bound : bounds)
    for (const bool is_lower : {true, false})
      for (const bool is_exclusive : {true, false}) {
        NumberLanguage language;
        (is_lower ? language.at_least : language.at_most) = {{bound, is_exclusive}};
        const auto dfa = number_automaton(language, meter_);
        const double limit = std::atof(bound.c_str());
        for (const std::string& text : texts) {
          const double value = std::atof(text.c_str());
          if (text.starts_with("-") && value == 0) continue;  // a negative zero may be left out
          const bool holds =
              is_lower ? (is_exclusive ? value > limit : value >= limit) : (is_exclusive ? value < limit : value <= limit);
          EXPECT_EQ(dfa->accepts(text), well_formed.accepts(text) && holds)
              << text << (is_lower ? " over " : " under ") << bound << (is_exclusive ? " exclusive" : "");
        }
      }
}

TEST_F(DfaTest, multiples_are_those_without_remainder) {
  for (const auto& [multiple, hundredths] :
       {std::pair("2", 200), {"7", 700}, {"1.5", 150}, {"0.25", 25}, {"0.01", 1}, {"10", 1000}}) {
    const auto dfa = number_automaton({.is_integer = false, .at_least = {}, .at_most = {}, .multiples_of = {multiple}}, meter_);
    for (int value = 0; value < 5000; value += 5) {
      const std::string text =
          std::to_string(value / 100) + "." + std::to_string(value % 100 / 10) + std::to_string(value % 10);
      EXPECT_EQ(dfa->accepts(text), value % hundredths == 0) << text << " of " << multiple;
      if (value % 100 == 0) {
        EXPECT_EQ(dfa->accepts(std::to_string(value / 100)), value % hundredths == 0) << value << " of " << multiple;
      }
    }
  }
  const auto refused =
      number_automaton({.is_integer = false, .at_least = {}, .at_most = {}, .multiples_of = {"0.123456789"}}, meter_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
}

TEST_F(DfaTest, too_many_states_are_refused) {
  const auto blown_up =
      determinize(expressions_, *parse_regex(expressions_, "(a|b)*a(a|b){20}", RegexUse::whole, meter_), meter_);
  ASSERT_FALSE(blown_up.has_value());
  EXPECT_EQ(blown_up.error().code, ErrorCode::too_large);
}

TEST_F(DfaTest, a_spent_budget_ends_the_work) {
  WorkBudget small({.steps = 1000, .bytes = 1000});
  WorkMeter meter(small);
  const auto expr = parse_regex(expressions_, "(a|b)*a(a|b){12}", RegexUse::whole, meter_);
  const auto dfa = determinize(expressions_, *expr, meter);
  ASSERT_FALSE(dfa.has_value());
  EXPECT_EQ(dfa.error().code, ErrorCode::too_large);
}

TEST(Expressions, a_rule_that_only_calls_itself_has_no_text) {
  UnlimitedWork work;
  Expressions e(work.meter());
  const RuleId endless = e.add_rule("endless");
  const RuleId list = e.add_rule("list");
  e.define(endless, e.sequence({e.bytes("a"), e.rule(endless)}));
  e.define(list, e.choice({e.bytes("x"), e.sequence({e.bytes("a"), e.rule(list)})}));
  EXPECT_EQ(*e.productive_rules(), (std::vector<bool>{false, true}));
}

}  // namespace
}  // namespace baton::grammar
