/// Searches in windows and with few steps first: the matches of one search.
#include "text/split/expression_search.h"

#include <ctime>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "text/split/pattern.h"

namespace baton {
namespace {

std::vector<TextRange> found(std::string_view expression, std::string_view text) {
  const auto pattern = Pattern::regex(expression);
  EXPECT_TRUE(pattern.has_value()) << expression;
  return pattern->find_all(text);
}

TEST(ExpressionSearch, finds_matches_that_are_far_apart) {
  std::string text;
  std::vector<TextRange> expected;
  for (const std::size_t gap : {0, 1, 4095, 4096, 4097, 20'000}) {
    for (std::size_t i = 0; i < gap; ++i) text += i % 7 == 0 ? "\u00e9" : "x";
    expected.push_back({text.size(), text.size() + 3});
    text += "abc";
  }
  text += std::string(9000, 'x');
  EXPECT_EQ(found("ab?c", text), expected);
  EXPECT_EQ(found("(?<=x|c|\u00e9|^)abc(?!y)", text), expected);
  EXPECT_EQ(found("$", text), (std::vector<TextRange>{{text.size(), text.size()}}));
}

/// (?:a|a){0,n}b tries 2^n ways at each place before it sees that no b follows.
TEST(ExpressionSearch, places_that_need_many_steps_match_as_others_do) {
  for (const int n_letters : {3, 6, 9, 12, 15}) {
    const std::string letters(static_cast<std::size_t>(n_letters), 'a');
    std::string text;
    std::vector<TextRange> expected;
    for (int i = 0; i < 6; ++i) {
      text += std::string(static_cast<std::size_t>(1000 * i), 'x') + letters + "c";
      expected.push_back({text.size(), text.size() + letters.size() + 1});
      text += letters + "b";
    }
    EXPECT_EQ(found("(?:a|a){0," + std::to_string(n_letters) + "}b", text), expected) << n_letters;
  }
}

TEST(ExpressionSearch, an_anchor_at_the_start_of_a_search_stays_there) {
  EXPECT_EQ(found("\\Ga", "aaxa"), (std::vector<TextRange>{{0, 1}, {1, 2}}));
  EXPECT_TRUE(found("\\Gx", std::string(10'000, 'a') + "x").empty());
}

/// Each place costs a pass over the rest of the text, for a single step of PCRE2.
TEST(ExpressionSearch, what_takes_long_counts_by_its_time) {
  const Pattern pattern = Pattern::regex("(?=(?:x|a+)(?:b|c))a").value();
  const std::string text(200'000, 'a');
  WorkBudget budget({.steps = 2'000'000, .bytes = 0});
  WorkMeter meter(budget);
  const std::clock_t begin = std::clock();
  EXPECT_TRUE(pattern.find_all(text, meter).empty());
  EXPECT_TRUE(budget.is_over());
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 30);
}

TEST(ExpressionSearch, a_cancelled_search_ends) {
  const Pattern pattern = Pattern::regex("(?=(?:x|a+)(?:b|c))a").value();
  bool was_asked = false;
  WorkBudget budget({.steps = std::int64_t{1} << 40, .bytes = 0}, [&] { return std::exchange(was_asked, true); });
  WorkMeter meter(budget);
  EXPECT_TRUE(pattern.find_all(std::string(200'000, 'a'), meter).empty());
  EXPECT_EQ(budget.error("it").code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace baton
