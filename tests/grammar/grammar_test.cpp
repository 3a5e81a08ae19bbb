/// Tests of compilation: kinds, limits and cancellation; and of the cache of what was compiled.
#include "grammar/grammar.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/grammar_cache.h"
#include "support/grammar_texts.h"

namespace baton::grammar {
namespace {

using testing::accepts;
using testing::compiled;
using testing::refusal;

std::shared_ptr<const TokenTrie> all_bytes() {
  std::vector<std::string> bytes{""};
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  return std::make_shared<TokenTrie>(std::move(bytes), std::vector<TokenId>{0});
}

TEST(Grammar, a_choice_is_one_of_its_texts) {
  const auto choice = compiled(GrammarKind::choice, R"(["yes", "yes, sir", "\u00e9"])");
  for (const char* text : {"yes", "yes, sir", "\xC3\xA9"}) EXPECT_TRUE(accepts(*choice.program, text)) << text;
  for (const char* text : {"", "ye", "yes,", "no"}) EXPECT_FALSE(accepts(*choice.program, text)) << text;
  EXPECT_NE(refusal(GrammarKind::choice, "[]").find("empty list"), std::string::npos);
  EXPECT_NE(refusal(GrammarKind::choice, "[1]").find("must be a string"), std::string::npos);
}

TEST(Grammar, limits_are_named) {
  const GrammarSource long_regex{.kind = GrammarKind::regex, .text = "(abcdefghij){1000}"};
  const auto states = compile_grammar(long_regex, {.max_states = 5000}, {});
  ASSERT_FALSE(states.has_value());
  EXPECT_EQ(states.error().code, ErrorCode::too_large);
  EXPECT_NE(states.error().message.find("more than 5000 states"), std::string::npos);
  const auto bytes = compile_grammar(long_regex, {.max_text_bytes = 10}, {});
  ASSERT_FALSE(bytes.has_value());
  EXPECT_EQ(bytes.error().code, ErrorCode::too_large);
  const auto steps = compile_grammar(long_regex, {.work = {.steps = 2000, .bytes = 1 << 20}}, {});
  ASSERT_FALSE(steps.has_value());
  EXPECT_EQ(steps.error().code, ErrorCode::too_large);
}

/// A choice of `n` texts; `distinct`: all different.
std::string choice_of(int n, bool distinct) {
  std::string list;
  for (int i = 0; i < n; ++i) list += (list.empty() ? "[\"a" : ",\"a") + (distinct ? std::to_string(i) : "") + "\"";
  return list + "]";
}

/// Rules that begin with each other, `depth` of them.
std::string nested_rules(int depth) {
  std::string text = "root ::= r0 \"x\"\n";
  for (int i = 0; i < depth; ++i) text += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"x\"\n";
  return text + "r" + std::to_string(depth) + " ::= \"a\"\n";
}

// A matcher of these has no place to start at, which ended the server.
TEST(Grammar, what_leaves_too_much_open_before_the_first_byte_is_refused) {
  EXPECT_NE(refusal(GrammarKind::choice, choice_of(10'000, true)).find("more than 8192 alternatives"), std::string::npos);
  EXPECT_TRUE(accepts(*compiled(GrammarKind::choice, choice_of(8000, true)).program, "a7999"));
  EXPECT_TRUE(accepts(*compiled(GrammarKind::choice, choice_of(10'000, false)).program, "a")) << "equal texts count once";
  EXPECT_NE(refusal(GrammarKind::ebnf, nested_rules(2000)).find("rules more than 1000 deep"), std::string::npos);
  EXPECT_TRUE(accepts(*compiled(GrammarKind::ebnf, nested_rules(500)).program, "a" + std::string(501, 'x')));
}

TEST(Grammar, compiling_ends_when_it_is_cancelled) {
  const GrammarSource endless{.kind = GrammarKind::regex, .text = "((a{1,300}){1,300}){1,300}"};
  const auto result = compile_grammar(endless, {.max_states = std::size_t{1} << 40}, [] { return true; });
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::unavailable);
}

TEST(GrammarCache, compiles_a_source_once) {
  GrammarCache cache(all_bytes(), {});
  const auto first = cache.get({.kind = GrammarKind::regex, .text = "a+"}, {});
  const auto again = cache.get({.kind = GrammarKind::regex, .text = "a+"}, {});
  const auto other = cache.get({.kind = GrammarKind::choice, .text = "[\"a+\"]"}, {});
  EXPECT_EQ(first->matcher, again->matcher);
  EXPECT_NE(first->matcher, other->matcher);
  EXPECT_EQ(cache.counts().hits, 1u);
  EXPECT_EQ(cache.counts().misses, 2u);
  EXPECT_FALSE(cache.get({.kind = GrammarKind::regex, .text = "("}, {}).has_value());
  EXPECT_EQ(cache.counts().n_entries, 2u) << "what is refused is not kept";
}

GrammarSource long_text(int i) { return {.kind = GrammarKind::regex, .text = "x{" + std::to_string(500 + i) + "}"}; }

TEST(GrammarCache, refuses_special_tokens_that_the_vocabulary_does_not_have) {
  GrammarCache cache(all_bytes(), {});
  const auto refused = cache.get({.kind = GrammarKind::structural_tag,
                                  .text = R"({"tokens": ["[CALL]"], "format": {"type": "const_string", "value": "[CALL]"}})"},
                                 {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().message, "the vocabulary has no special token '[CALL]'");
  EXPECT_EQ(cache.counts().n_entries, 0u);
}

TEST(GrammarCache, keeps_those_in_use_and_those_used_last_within_its_bytes) {
  GrammarCache cache(all_bytes(), {.max_bytes = 500'000});
  const auto held = cache.get(long_text(0), {});
  for (int i = 1; i < 40; ++i) {
    ASSERT_TRUE(cache.get(long_text(i), {}).has_value());
    ASSERT_TRUE(cache.get(long_text(40), {}).has_value());
  }
  EXPECT_LT(cache.counts().n_entries, 30u);
  EXPECT_LE(cache.counts().n_bytes, 500'000u);
  const std::uint64_t n_misses = cache.counts().misses;
  EXPECT_EQ(cache.get(long_text(0), {})->matcher, held->matcher) << "it is in use";
  EXPECT_TRUE(cache.get(long_text(40), {}).has_value());
  EXPECT_EQ(cache.counts().misses, n_misses) << "it was used all the time";
  EXPECT_TRUE(cache.get(long_text(1), {}).has_value());
  EXPECT_EQ(cache.counts().misses, n_misses + 1) << "it was used long ago";
}

TEST(GrammarCache, refuses_a_grammar_while_those_in_use_leave_it_no_room) {
  GrammarCache cache(all_bytes(), {.max_bytes = 500'000});
  std::vector<GrammarCache::Entry> used;
  Result<GrammarCache::Entry> last = cache.get(long_text(0), {});
  for (int i = 1; last.has_value() && i < 100; ++i) {
    used.push_back(*last);
    last = cache.get(long_text(i), {});
  }
  ASSERT_FALSE(last.has_value());
  EXPECT_EQ(last.error().code, ErrorCode::unavailable);
  EXPECT_NE(last.error().message.find("at most 500000 are kept"), std::string::npos) << last.error().message;
  EXPECT_TRUE(cache.get(long_text(0), {}).has_value()) << "what is there can be used again";
  used.clear();
  EXPECT_TRUE(cache.get(long_text(200), {}).has_value());
  const auto alone = cache.get(long_text(20'000), {});
  ASSERT_FALSE(alone.has_value());
  EXPECT_EQ(alone.error().code, ErrorCode::too_large) << alone.error().message;
}

TEST(GrammarCache, counts_what_matchers_learn_and_lets_them_forget_it) {
  constexpr std::size_t kMost = 200'000;
  GrammarCache cache(all_bytes(), {.max_bytes = kMost});
  const auto entry = cache.get({.kind = GrammarKind::regex, .text = "(ab|[a-z]{2}|[b-y]{3}){1,40}"}, {});
  ASSERT_TRUE(entry.has_value()) << entry.error().message;
  const std::size_t at_first = cache.counts().n_bytes;
  std::vector<std::uint32_t> mask(cache.vocabulary().n_words());
  std::size_t most = 0;
  for (int i = 0; i < 26 * 26; ++i) {
    MatcherState state = entry->matcher->start();
    for (int length = 0; length < 60; ++length) {
      ASSERT_TRUE(entry->matcher->mask(state, mask).has_value());
      if (!entry->matcher->accept(state, std::string(1, static_cast<char>('a' + (i * (length + 1)) % 26)))) break;
    }
    most = std::max(most, cache.counts().n_bytes);
  }
  EXPECT_GT(most, at_first + 10'000);
  EXPECT_LT(most, kMost + 50'000) << "one walk more than the limit";
}

TEST(GrammarCache, threads_that_ask_for_one_source_compile_it_once) {
  GrammarCache cache(all_bytes(), {});
  std::vector<std::thread> threads;
  std::atomic<int> n_right = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      const auto entry = cache.get({.kind = GrammarKind::json_schema, .text = R"({"type": "string", "maxLength": 3000})"},
                                   {.is_cancelled = [] { return false; }});
      if (entry) ++n_right;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_right, 8);
  EXPECT_EQ(cache.counts().misses, 1u);
}

}  // namespace
}  // namespace baton::grammar
