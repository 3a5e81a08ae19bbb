/// Tests of masks: against the question asked for each token alone, under limits, and of drafts.
#include "grammar/match/matcher.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/automaton/configurations.h"
#include "grammar/automaton/program.h"
#include "grammar/match/token_trie.h"
#include "support/grammar_texts.h"

namespace baton::grammar {
namespace {

using testing::compiled;

/// Every byte, and tokens that cross the borders of strings, names and numbers. Token 0 ends a text, 1 is special.
std::shared_ptr<const TokenTrie> vocabulary() {
  std::vector<std::string> bytes{"", ""};
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* token : {"{\"",      "\":",      "\": ", "\",", "\", \"",    "\"}",   "}}",       "]}",
                            "[]",       "[[",       "12",   "1,",  "0.",        "e+",    "true",     "null",
                            "tru",      "a\"",      "name", "nam", "ame\": \"", "value", "\\n",      "\\u00",
                            "\n  ",     "  ",       ", ",   "ab",  "abab",      "ab\":", "\"a\": 1", "\"]",
                            "\xC3\xA9", "\x80\x80", "((",   "))",  "aaaaaaaa",  "12",    "x}, {\""})
    bytes.emplace_back(token);
  bytes.emplace_back(std::string(300, 'a'));  // longer than what masks look at
  return std::make_shared<TokenTrie>(std::move(bytes), std::vector<TokenId>{0});
}

bool contains_token(const std::vector<std::uint32_t>& mask, TokenId token) {
  return (mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

std::vector<std::uint32_t> mask_of(Matcher& matcher, const MatcherState& state) {
  std::vector<std::uint32_t> mask(matcher.vocabulary().n_words(), ~std::uint32_t{0});
  EXPECT_TRUE(matcher.mask(state, mask).has_value());
  return mask;
}

/// The same with so many steps of work in a call; between the calls the mask of `other` is worked at.
std::vector<std::uint32_t> mask_in_parts(Matcher& matcher, const MatcherState& state, const MatcherState& other,
                                         std::int64_t n_steps, int& n_calls) {
  std::vector<std::uint32_t> mask(matcher.vocabulary().n_words(), 7);
  std::vector<std::uint32_t> unused(mask.size());
  for (int i = 0; i < 1'000'000; ++i) {
    ++n_calls;
    MatcherWork work{n_steps};
    const Result<bool> is_found = matcher.mask(state, mask, work);
    EXPECT_TRUE(is_found.has_value()) << is_found.error().message;
    if (!is_found || *is_found) return mask;
    EXPECT_TRUE(work.is_used_up());
    EXPECT_EQ(mask[0], 7u) << "it is unchanged";
    work.n_left = n_steps;
    (void)matcher.mask(other, unused, work);
  }
  ADD_FAILURE() << "the work does not end";
  return mask;
}

Accepted accept_in_parts(Matcher& matcher, MatcherState& state, TokenId token, std::int64_t n_steps) {
  AcceptProgress progress;
  for (int i = 0; i < 1'000'000; ++i) {
    MatcherWork work{n_steps};
    const Accepted accepted = matcher.accept(state, token, progress, work);
    if (accepted != Accepted::not_yet) return accepted;
  }
  return Accepted::not_yet;
}

/// Walks at random; at each place every token is in the mask exactly if it is accepted.
void expect_masks_are_exact(const Program& program, const MatcherLimits& limits, unsigned seed, std::int64_t n_steps = 0) {
  const auto tokens = vocabulary();
  Matcher matcher(std::make_shared<const Program>(program), tokens, limits);
  std::mt19937 random(seed);
  for (int walk = 0; walk < 6; ++walk) {
    MatcherState state = matcher.start();
    MatcherState before = state;
    for (int step = 0; step < 40; ++step) {
      int n_calls = 0;
      const std::vector<std::uint32_t> mask =
          n_steps == 0 ? mask_of(matcher, state) : mask_in_parts(matcher, state, before, n_steps, n_calls);
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < tokens->n_vocab(); ++token) {
        MatcherState copy = state;
        const bool is_accepted = matcher.accept(copy, token);
        ASSERT_EQ(contains_token(mask, token), is_accepted)
            << "token " << token << " '" << tokens->bytes_of(token) << "' in step " << step;
        if (is_accepted && !tokens->is_end(token)) allowed.push_back(token);
      }
      if (allowed.empty()) break;
      before = state;
      const TokenId token = allowed[random() % allowed.size()];
      ASSERT_TRUE(n_steps == 0 ? matcher.accept(state, token)
                               : accept_in_parts(matcher, state, token, n_steps) == Accepted::yes);
    }
  }
}

/// More derivations than masks are put together from.
std::string many_alternatives() {
  std::string regex = "x";
  for (int i = 0; i < 50; ++i)
    regex += "|(ab?){" + std::to_string(i) + "}[^" + std::string(1, static_cast<char>('c' + i % 20)) + "]*" + std::to_string(i);
  return regex;
}

std::vector<CompiledGrammar> many_grammars() {
  return {
      compiled(GrammarKind::json_object, ""),
      compiled(
          GrammarKind::json_schema,
          R"({"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "array", "items": {"type": "integer"}}, "a": {"type": "string", "maxLength": 5}}, "required": ["name"]})"),
      compiled(
          GrammarKind::json_schema,
          R"({"anyOf": [{"type": "string", "pattern": "^(ab)+$"}, {"type": "array", "items": {"$ref": "#"}}, {"type": "number", "maximum": 12}]})"),
      compiled(GrammarKind::json_schema, R"({"type": "string", "minLength": 300, "maxLength": 900})"),
      compiled(GrammarKind::json_schema, R"({"type": "string", "minLength": 3, "maxLength": 3})"),
      compiled(GrammarKind::json_schema, R"({"type": "string", "minLength": 1, "maxLength": 2147483648})"),
      compiled(GrammarKind::json_schema,
               R"({"type": "string", "pattern": "^((ab){7}|a)*$", "minLength": 20, "maxLength": 40})"),
      compiled(GrammarKind::json_schema, R"({"type": "string", "pattern": "^(aaa)*$", "minLength": 400, "maxLength": 402})"),
      compiled(GrammarKind::json_schema, R"({"type": "string", "format": "uri", "minLength": 6, "maxLength": 19})"),
      compiled(
          GrammarKind::json_schema,
          R"({"type": "array", "items": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "string", "pattern": "a$", "minLength": 3, "maxLength": 9}]}})"),
      compiled(
          GrammarKind::json_schema,
          R"({"type": "object", "propertyNames": {"minLength": 2, "maxLength": 5}, "additionalProperties": {"type": "integer"}})"),
      compiled(GrammarKind::json_schema,
               R"({"type": "array", "minItems": 280, "maxItems": 600, "items": {"type": "boolean"}})"),
      compiled(GrammarKind::regex, "(a|ab)(c|bcd)*[^x]{0,3}"),
      compiled(GrammarKind::regex, "a{0,1000}(ab){300,700}"),
      compiled(GrammarKind::regex, "((a|ab|\\[){3,20}x?){0,12}"),
      compiled(GrammarKind::json_schema, R"({"type": "string", "maxLength": 12})"),
      compiled(GrammarKind::json_schema,
               R"({"type": "object", "properties": {"name": {}, "names": {}, "abab": {}, "a": {"maxProperties": 1}}})"),
      compiled(GrammarKind::regex, many_alternatives()),
      compiled(GrammarKind::choice, R"(["true", "12", "name", "ab", "abab", ""])"),
      compiled(GrammarKind::ebnf, "root ::= \"(\" root \")\" root | \"a\" root \"b\" | \"a\" root \"1\" | \"\""),
      compiled(GrammarKind::ebnf, "root ::= x y\nx ::= \"a\"* z\ny ::= \"a\"? \"b\"?\nz ::= \"\" | \"1\" z"),
      compiled(GrammarKind::structural_tag,
               R"json({"format": {"type": "triggered_tags", "triggers": ["abab", "12"], "excludes": ["a\""],
        "tags": [{"begin": "abab\":", "content": {"type": "json_schema", "json_schema": {"type": "object"}}, "end": ["))", "12"]},
                 {"begin": "12", "content": {"type": "any_text"}, "end": "aab"}]}})json"),
      compiled(GrammarKind::structural_tag, R"json({"format": {"type": "tag", "begin": "((", "end": "))", "content":
        {"type": "json_schema", "style": "python", "json_schema": {"properties": {"a": {"type": "string"}, "ab": {"type": "integer"}}}}}})json"),
      compiled(GrammarKind::structural_tag, R"json({"format": {"type": "qwen_xml_parameter", "json_schema":
        {"properties": {"name": {"type": ["string", "null"]}, "a": {"type": "string", "maxLength": 9}}, "required": ["name"]}}})json")};
}

TEST(Matcher, a_mask_has_exactly_the_tokens_that_are_accepted) {
  unsigned seed = 1;
  for (const CompiledGrammar& grammar : many_grammars()) expect_masks_are_exact(*grammar.program, {}, seed++);
}

TEST(Matcher, masks_stay_exact_when_everything_is_forgotten_all_the_time) {
  unsigned seed = 11;
  for (const CompiledGrammar& grammar : many_grammars())
    expect_masks_are_exact(*grammar.program, {.table_bytes = 1, .local_bytes = 1, .mask_bytes = 1}, seed++);
}

TEST(Matcher, masks_are_the_same_if_the_work_stops_after_every_step) {
  unsigned seed = 21;
  for (const CompiledGrammar& grammar : many_grammars()) {
    expect_masks_are_exact(*grammar.program, {}, seed++, 1);
    expect_masks_are_exact(*grammar.program, {.table_bytes = 1, .local_bytes = 1, .mask_bytes = 1}, seed++, 50);
  }
}

/// Each token is in the mask exactly if it is accepted, also where the last characters of a long text are near.
TEST(Matcher, masks_are_exact_near_the_bounds_of_a_long_text) {
  const auto tokens = vocabulary();
  for (const char* bounds :
       {R"("maxLength": 600)", R"("minLength": 590, "maxLength": 600)", R"("minLength": 597)",
        R"("pattern": "^(aab?)*$", "minLength": 580, "maxLength": 600)", R"("minLength": 600, "maxLength": 600)"}) {
    Matcher matcher(compiled(GrammarKind::json_schema, std::string(R"({"type": "string", )") + bounds + "}").program, tokens);
    for (const int n : {0, 300, 340, 344, 560, 580, 586, 590, 592, 594, 596, 597, 598}) {
      MatcherState state = matcher.start();
      ASSERT_TRUE(matcher.accept(state, '"' + std::string(static_cast<std::size_t>(n), 'a'))) << bounds;
      const std::vector<std::uint32_t> mask = mask_of(matcher, state);
      for (TokenId token = 0; token < tokens->n_vocab(); ++token) {
        MatcherState copy = state;
        ASSERT_EQ(contains_token(mask, token), matcher.accept(copy, token))
            << bounds << " after " << n << ": " << tokens->bytes_of(token);
      }
    }
  }
}

/// A mask that is found once serves every count that is far from the bounds, and forced text ends a string that is
/// full.
TEST(Matcher, masks_do_not_depend_on_a_count_that_is_far_from_its_bounds) {
  Matcher matcher(
      compiled(GrammarKind::json_schema, R"({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 2083}})")
          .program,
      vocabulary());
  std::vector<std::uint32_t> mask(matcher.vocabulary().n_words());
  MatcherState state = matcher.start();
  ASSERT_TRUE(matcher.accept(state, std::string_view("[\"abc")));
  const std::vector<std::uint32_t> found = mask_of(matcher, state);
  for (int n = 3; n < 1800; ++n) {
    ASSERT_TRUE(matcher.accept(state, std::string_view("x")));
    ASSERT_TRUE(matcher.copy_known_mask(state, mask)) << n;
    ASSERT_EQ(mask, found);
  }
  for (int n = 1800; n < 2083; ++n) ASSERT_TRUE(matcher.accept(state, std::string_view("x")));
  EXPECT_FALSE(matcher.copy_known_mask(state, mask));
  EXPECT_EQ(matcher.forced_bytes(state, 8), "\"");
  EXPECT_FALSE(matcher.accept(state, std::string_view("x")));
}

/// The work of an expensive mask continues in small parts, whatever others ask of the matcher, and is forgotten with
/// its state.
TEST(Matcher, an_expensive_mask_is_made_in_bounded_parts) {
  const CompiledGrammar grammar = compiled(GrammarKind::regex, "(a|ab|b(a|b)){0,9}[ab]*a[ab]{200}");
  Matcher matcher(grammar.program, vocabulary());
  MatcherState state = matcher.start();
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(matcher.accept(state, std::string_view(i % 3 == 0 ? "b" : "a")));
  constexpr std::int64_t kSteps = 1000;
  std::vector<std::uint32_t> mask(matcher.vocabulary().n_words());
  std::int64_t most = 0;
  int n_calls = 0;
  for (bool is_found = false; !is_found; ++n_calls) {
    MatcherWork work{kSteps};
    is_found = *matcher.mask(state, mask, work);
    most = std::max(most, kSteps - work.n_left);
  }
  EXPECT_GT(n_calls, 3);
  EXPECT_LT(most, 3 * kSteps) << "one step between configurations of some hundred states beyond";
  EXPECT_EQ(mask, mask_of(matcher, state));
}

TEST(Matcher, a_text_that_is_refused_for_a_limit_is_known_as_one) {
  const auto grammar = compiled(GrammarKind::ebnf, "root ::= \"(\" root \")\" | \"a\"");
  Matcher matcher(grammar.program, vocabulary());
  MatcherState state = matcher.start();
  constexpr TokenId kOpen = 2 + '(';
  int depth = 0;
  while (depth <= Configurations::kMaxDepth && matcher.accept(state, kOpen)) {
    EXPECT_FALSE(matcher.has_overflowed());
    ++depth;
  }
  EXPECT_LE(depth, Configurations::kMaxDepth);
  EXPECT_TRUE(contains_token(mask_of(matcher, state), kOpen)) << "what stays inside of the rule is found without the stack";
  EXPECT_TRUE(matcher.has_overflowed());
}

TEST(Matcher, work_that_is_not_wanted_is_forgotten) {
  const CompiledGrammar grammar = compiled(GrammarKind::regex, "[ab]*a[ab]{40}");
  Matcher matcher(grammar.program, vocabulary(), {.table_bytes = 0, .local_bytes = 0, .mask_bytes = 0});
  std::vector<std::uint32_t> mask(matcher.vocabulary().n_words());
  const auto n_bytes_after = [&](int n) {
    for (int i = 0; i < n; ++i) {
      MatcherState state = matcher.start();
      for (int bit = 0; bit < 40; ++bit)
        EXPECT_TRUE(matcher.accept(state, std::string_view((i >> (bit % 9) & 1) != 0 ? "a" : "b")));
      MatcherWork work{1};
      EXPECT_FALSE(*matcher.mask(state, mask, work));
    }
    return matcher.n_bytes();
  };
  const std::size_t few = n_bytes_after(20);
  EXPECT_LE(n_bytes_after(400), few + (std::size_t{100} << 10)) << "it keeps some 64 KiB of what it contains_token learned";
}

TEST(Matcher, copies_continue_by_themselves) {
  Matcher matcher(compiled(GrammarKind::json_object, "").program, vocabulary(), {.table_bytes = 1});
  MatcherState state = matcher.start();
  ASSERT_TRUE(matcher.accept(state, "{\"a\": [1, "));
  MatcherState draft = state;
  ASSERT_TRUE(matcher.accept(draft, "2]}"));
  EXPECT_TRUE(matcher.must_end(draft));
  EXPECT_FALSE(matcher.accept(draft, " "));
  EXPECT_TRUE(matcher.must_end(draft)) << "a refused text changes nothing";
  EXPECT_FALSE(matcher.is_complete(state));
  state = draft;
  EXPECT_TRUE(matcher.is_complete(state));
}

TEST(Matcher, the_end_is_allowed_where_the_text_is_complete) {
  Matcher matcher(compiled(GrammarKind::regex, "ab(ab)?").program, vocabulary());
  MatcherState state = matcher.start();
  EXPECT_FALSE(contains_token(mask_of(matcher, state), 0));
  EXPECT_FALSE(matcher.accept(state, TokenId{0}));
  ASSERT_TRUE(matcher.accept(state, "ab"));
  EXPECT_TRUE(contains_token(mask_of(matcher, state), 0));
  EXPECT_TRUE(matcher.accept(state, TokenId{0}));
  EXPECT_FALSE(matcher.must_end(state));
  ASSERT_TRUE(matcher.accept(state, "ab"));
  EXPECT_TRUE(matcher.must_end(state));
  const std::vector<std::uint32_t> mask = mask_of(matcher, state);
  for (TokenId token = 1; token < matcher.vocabulary().n_vocab(); ++token) EXPECT_FALSE(contains_token(mask, token));
  EXPECT_FALSE(matcher.accept(state, TokenId{1})) << "special tokens are never allowed";
  EXPECT_FALSE(matcher.accept(state, TokenId{-1}));
}

TEST(Matcher, names_why_no_token_is_left) {
  const auto only_a = std::make_shared<TokenTrie>(std::vector<std::string>{"", "a"}, std::vector<TokenId>{0});
  Matcher matcher(compiled(GrammarKind::regex, "ab").program, only_a);
  MatcherState state = matcher.start();
  ASSERT_TRUE(matcher.accept(state, TokenId{1}));
  std::vector<std::uint32_t> mask(1);
  const auto result = matcher.mask(state, mask);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
}

TEST(Matcher, too_much_work_for_one_mask_is_an_error) {
  // After each token the set of the places where it may have begun is another one.
  std::string regex = "(?:";
  for (int i = 0; i < 60; ++i) regex += "(?:a|b)*a(?:a|b){100}|";
  std::vector<std::string> bytes{""};
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string token;
    for (int j = 0; j < 40; ++j) token += random() % 2 == 0 ? 'a' : 'b';
    bytes.push_back(token);
  }
  Matcher matcher(compiled(GrammarKind::regex, regex + "c)").program,
                  std::make_shared<TokenTrie>(std::move(bytes), std::vector<TokenId>{0}));
  std::vector<std::uint32_t> mask(matcher.vocabulary().n_words());
  MatcherState state = matcher.start();
  for (int i = 0; i < 2; ++i) {
    const auto result = matcher.mask(state, mask);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::too_large);
  }
}

TEST(Matcher, drafts_what_must_follow) {
  Matcher matcher(
      compiled(
          GrammarKind::json_schema,
          R"({"type": "object", "properties": {"name": {"const": "value"}}, "required": ["name"], "additionalProperties": false})",
          JsonSpaces::none)
          .program,
      vocabulary());
  const auto longest_first = [&](std::string_view text) {
    std::vector<TokenId> ids;
    while (!text.empty()) {
      TokenId best = 0;
      for (TokenId id = 2; id < matcher.vocabulary().n_vocab(); ++id)
        if (text.starts_with(matcher.vocabulary().bytes_of(id)) &&
            matcher.vocabulary().bytes_of(id).size() > matcher.vocabulary().bytes_of(best).size())
          best = id;
      ids.push_back(best);
      text.remove_prefix(matcher.vocabulary().bytes_of(best).size());
    }
    return ids;
  };
  MatcherWork work;
  MatcherState state = matcher.start();
  EXPECT_EQ(matcher.forced_bytes(state, 100), R"({"name":"value"})");
  EXPECT_EQ(matcher.forced_bytes(state, 3), R"({"n)");
  std::vector<TokenId> drafts = matcher.forced_tokens(state, 100, longest_first, work);
  EXPECT_EQ(drafts, longest_first(R"({"name":"value"})")) << "the text ends, so the last token is certain";
  for (const TokenId token : drafts) ASSERT_TRUE(matcher.accept(state, token));
  EXPECT_TRUE(matcher.must_end(state));
  EXPECT_TRUE(matcher.forced_tokens(state, 100, longest_first, work).empty());
  state = matcher.start();
  EXPECT_EQ(matcher.forced_tokens(state, 2, longest_first, work).size(), 2u);
  MatcherWork little{5};
  EXPECT_LT(matcher.forced_tokens(state, 100, longest_first, little).size(), drafts.size()) << "as far as the work goes";
  EXPECT_TRUE(little.is_used_up());
  EXPECT_TRUE(matcher.forced_tokens(state, 100, longest_first, little).empty());
  EXPECT_TRUE(matcher
                  .forced_tokens(
                      state, 8,
                      [](std::string_view) {
                        return std::vector<TokenId>{2, 3};
                      },
                      work)
                  .empty());

  Matcher open(compiled(GrammarKind::regex, "name(a|b)").program, vocabulary());
  EXPECT_TRUE(open.forced_tokens(open.start(), 8, longest_first, work).empty()) << "a longer token might begin with 'name'";
}

TEST(Matcher, threads_share_it) {
  Matcher matcher(compiled(GrammarKind::json_object, "").program, vocabulary(), {.table_bytes = 1 << 12});
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([&matcher, seed] {
      std::mt19937 random(seed);
      for (int walk = 0; walk < 5; ++walk) {
        MatcherState state = matcher.start();
        for (int step = 0; step < 30 && !matcher.must_end(state); ++step) {
          const std::vector<std::uint32_t> mask = mask_of(matcher, state);
          std::vector<TokenId> allowed;
          for (TokenId token = 2; token < matcher.vocabulary().n_vocab(); ++token)
            if (contains_token(mask, token)) allowed.push_back(token);
          ASSERT_FALSE(allowed.empty());
          ASSERT_TRUE(matcher.accept(state, allowed[random() % allowed.size()]));
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenTrie, holds_every_token_once_in_the_order_of_a_walk) {
  const auto trie = vocabulary();
  const auto nodes = trie->nodes();
  EXPECT_EQ(nodes[0].end, nodes.size());
  std::vector<TokenId> found;
  std::string path;
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    path.resize(nodes[i].depth - std::size_t{1});
    path.push_back(static_cast<char>(nodes[i].byte));
    for (const TokenId token : trie->tokens_of(nodes[i])) {
      EXPECT_EQ(trie->bytes_of(token), path);
      found.push_back(token);
    }
    ASSERT_GT(nodes[i].end, i);
  }
  std::sort(found.begin(), found.end());
  std::vector<TokenId> expected;
  for (TokenId token = 0; token < trie->n_vocab(); ++token)
    if (!trie->bytes_of(token).empty()) expected.push_back(token);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(trie->bytes_of(trie->n_vocab() - 1), "") << "the token of 300 bytes";
}

TEST(Program, copies_of_a_repetition_are_like_the_one_farthest_from_its_bound) {
  const auto grammar = compiled(GrammarKind::regex, "(ab){0,5000}");
  std::size_t n_alone = 0;
  std::size_t n_equal = 0;
  for (StateId state = 0; state < static_cast<StateId>(grammar.program->n_states()); ++state) {
    const Program::Twin twin = grammar.program->twin(state);
    EXPECT_LE(twin.n_bytes, kMaxTokenBytes);
    if (twin.state == state)
      ++n_alone;
    else if (twin.n_bytes == kMaxTokenBytes)
      ++n_equal;
  }
  EXPECT_LT(n_alone, 50u);
  EXPECT_GT(n_equal, 4000u * 3);
}

}  // namespace
}  // namespace baton::grammar
