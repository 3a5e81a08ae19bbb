/// What encoding may cost: the budget of steps and bytes, hostile files and texts, cancellation.
#include <atomic>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

std::string repeated(std::string_view text, std::size_t n) {
  std::string result;
  for (std::size_t i = 0; i < n; ++i) result += text;
  return result;
}

Tokenizer budgeted_tokenizer(const json::Value& root) {
  auto tokenizer = Tokenizer::from_json(json::dump(root), "{}");
  EXPECT_TRUE(tokenizer) << (tokenizer ? "" : tokenizer.error().message);
  return std::move(*tokenizer);
}

json::Value with_added(TokenId id, const std::string& content) {
  return {{"id", id}, {"content", content}, {"special", true}, {"normalized", false}};
}

json::Value replace(const json::Value& pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", std::string(content)}};
}

/// Steps that encoding takes; the ids must be those without a budget.
std::int64_t steps_of(const Tokenizer& tokenizer, std::string_view text) {
  WorkBudget budget(Tokenizer::limits_for(text.size()));
  const auto ids = tokenizer.encode(text, false, budget);
  EXPECT_TRUE(ids.has_value()) << ids.error().message;
  EXPECT_EQ(*ids, tokenizer.encode(text, false));
  return budget.steps();
}

/// A budget too small for it ends an encoding, and soon.
void expect_over(const Tokenizer& tokenizer, std::string_view text, std::int64_t n_steps, std::string_view what) {
  WorkBudget budget({.steps = n_steps, .bytes = 64 << 20});
  const auto ids = tokenizer.encode(text, false, budget);
  ASSERT_FALSE(ids.has_value()) << what;
  EXPECT_EQ(ids.error().code, ErrorCode::too_large) << ids.error().message;
  EXPECT_TRUE(ids.error().message.starts_with("the tokenization of a text needs more than ")) << ids.error().message;
  EXPECT_LT(budget.steps(), 2 * n_steps + 1'000'000) << what;
}

TEST(TokenizerWork, ordinary_texts_stay_far_below_the_limits) {
  const std::string text = repeated("The mug, it's 12.50 EUR: ein Stück \u00e9t\u00e9 \u4e16\u754c!\n  return x;\n", 3000);
  const auto n_bytes = static_cast<std::int64_t>(text.size());
  EXPECT_LT(steps_of(budgeted_tokenizer(test::byte_level_tokenizer()), text), 16 * n_bytes);
  EXPECT_LT(steps_of(budgeted_tokenizer(test::byte_fallback_tokenizer()), text), 16 * n_bytes);
  EXPECT_GT(steps_of(budgeted_tokenizer(test::byte_level_tokenizer()), text), n_bytes / 16);
  // Nothing cuts this text into words.
  json::Value whole = test::byte_level_tokenizer();
  whole["pre_tokenizer"]["use_regex"] = false;
  EXPECT_LT(steps_of(budgeted_tokenizer(whole), text), 16 * n_bytes);
}

TEST(TokenizerWork, chained_replacements_count_what_they_write) {
  json::Value root = test::byte_level_tokenizer();
  json::Value steps = json::Value::array();
  for (int i = 0; i < 30; ++i) {
    steps.push_back(replace({{"String", "a"}}, std::string(50, 'a')));
    steps.push_back(replace({{"Regex", "a{50}"}}, "a"));
  }
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  const Tokenizer tokenizer = budgeted_tokenizer(root);
  WorkBudget budget({.steps = std::int64_t{1} << 40, .bytes = 64 << 20});
  const auto ids = tokenizer.encode(std::string(200'000, 'a'), false, budget);
  ASSERT_FALSE(ids.has_value());
  EXPECT_EQ(ids.error().message, "the tokenization of a text needs more than 67108864 bytes of memory");
  expect_over(tokenizer, std::string(20'000, 'a'), 1'000'000, "steps of replacements");
}

TEST(TokenizerWork, an_expression_counts_over_the_whole_text) {
  for (const char* expression : {"(?:a|a|a){0,9}[bc]", "(?:a|a){0,14}(?:b|c)"}) {
    json::Value root = test::byte_level_tokenizer();
    root["normalizer"] = replace({{"Regex", expression}}, "x");
    expect_over(budgeted_tokenizer(root), std::string(50'000, 'a'), 2'000'000, expression);
    json::Value split = test::byte_level_tokenizer();
    split["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}};
    expect_over(budgeted_tokenizer(split), std::string(50'000, 'a'), 2'000'000, expression);
  }
}

TEST(TokenizerWork, long_added_tokens_count_what_is_compared) {
  json::Value root = test::byte_level_tokenizer();
  root["added_tokens"].push_back(with_added(300, std::string(2999, 'a') + "b"));
  expect_over(budgeted_tokenizer(root), std::string(1'000'000, 'a'), 5'000'000, "a token that is almost there at each place");
  // Thousands of lengths.
  json::Value lengths = test::byte_level_tokenizer();
  for (int i = 1; i <= 2000; ++i)
    lengths["added_tokens"].push_back(with_added(300 + i, std::string(static_cast<std::size_t>(i), 'a') + "b"));
  const Tokenizer tokenizer = budgeted_tokenizer(lengths);
  expect_over(tokenizer, std::string(1'000'000, 'a'), 5'000'000, "tokens of many lengths");
  WorkBudget budget({.steps = 5'000'000, .bytes = 64 << 20});
  const auto head = tokenizer.encode_head(repeated("ab" + std::string(1999, 'a'), 3000), budget);
  ASSERT_FALSE(head.has_value());
  EXPECT_EQ(head.error().code, ErrorCode::too_large) << head.error().message;
}

TEST(TokenizerWork, tokens_that_strip_spaces_pass_over_them_once) {
  for (const bool strips_left : {false, true}) {
    json::Value root = test::byte_level_tokenizer();
    json::Value space = with_added(300, " ");
    space["lstrip"] = strips_left;
    space["rstrip"] = true;
    root["added_tokens"].push_back(space);
    constexpr std::size_t kSpaces = 200'000;
    const Tokenizer tokenizer = budgeted_tokenizer(root);
    EXPECT_LT(steps_of(tokenizer, std::string(kSpaces, ' ')), static_cast<std::int64_t>(20 * kSpaces));
    EXPECT_EQ(tokenizer.encode("the    the", false).front(), tokenizer.encode("the", false).front());
  }
}

TEST(TokenizerWork, each_model_counts_the_pieces_that_it_tries) {
  json::Value unigram;
  unigram["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", json::Value::array()}};
  unigram["model"]["vocab"].push_back({"<unk>", 0});
  unigram["model"]["vocab"].push_back({"a", -1});
  unigram["model"]["vocab"].push_back({std::string(1000, 'a') + "b", -1});
  expect_over(budgeted_tokenizer(unigram), std::string(200'000, 'a'), 5'000'000, "Unigram");
  json::Value bpe = test::byte_level_tokenizer();
  bpe["pre_tokenizer"] = nullptr;
  bpe["model"]["ignore_merges"] = true;
  expect_over(budgeted_tokenizer(bpe), std::string(200'000, 't'), 100'000, "BPE");
}

TEST(TokenizerWork, a_long_word_counts_each_look_for_a_merge) {
  json::Value root = test::byte_level_tokenizer();
  root["pre_tokenizer"]["use_regex"] = false;
  root["model"]["ignore_merges"] = true;  // the word is not cut
  EXPECT_GE(steps_of(budgeted_tokenizer(root), std::string(200'000, '!')), 400'000)
      << "a character, and its merge with the next one";
}

TEST(TokenizerWork, a_cancelled_encoding_ends_and_leaves_nothing_behind) {
  const std::string text = repeated("the mug is the mug. ", 20'000);
  const Ids expected = budgeted_tokenizer(test::byte_level_tokenizer()).encode(text, false);
  for (const int n_threads : {1, 2}) {
    Tokenizer tokenizer = budgeted_tokenizer(test::byte_level_tokenizer());
    tokenizer.use_threads(n_threads, 1000);
    for (const int n_checks : {0, 1, 2, 5}) {
      std::atomic<int> n_asked = 0;
      WorkBudget budget(Tokenizer::limits_for(text.size()), [&] { return ++n_asked > n_checks; });
      const auto ids = tokenizer.encode(text, false, budget);
      ASSERT_FALSE(ids.has_value());
      EXPECT_EQ(ids.error().code, ErrorCode::unavailable) << ids.error().message;
      EXPECT_LE(budget.steps(), (n_checks + 3) * WorkBudget::kStepsBetweenChecks);
      EXPECT_EQ(tokenizer.encode(text, false), expected) << "what a cancelled call has seen must be whole";
    }
  }
}

}  // namespace
}  // namespace baton
