/// From fields to constraints (server/served/grammars.h).
#include "server/served/grammars.h"

#include <cstdlib>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/match/matcher.h"
#include "server/byte_model.h"
#include "support/source_folder.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

using grammar::GrammarKind;

StructuredOutput asked(GrammarKind kind, std::string text, std::string field = "guided_json") {
  return {{kind, std::move(text), grammar::JsonSpaces::readable}, std::move(field)};
}

class GrammarsOfBytes : public ::testing::Test {
 protected:
  Result<Grammars::Constrained> constraint(const StructuredOutput& output, const std::function<bool()>& is_cancelled = {}) {
    return grammars_.constraint(output, tokenizer_, /*salt=*/"", is_cancelled);
  }
  static bool allows(Grammars::Constrained& made, std::string_view text, TokenId last) {
    grammar::MatcherState state = made.constraint.matcher->start();
    return made.constraint.matcher->accept(state, text) && made.constraint.matcher->accept(state, last);
  }

  const Tokenizer tokenizer_ = byte_tokenizer();
  Grammars grammars_{kByteModelVocab, {kEndToken}, {.max_bytes = std::size_t{8} << 20}};
};

TEST_F(GrammarsOfBytes, the_vocabulary_is_built_by_the_first_grammar) {
  EXPECT_FALSE(grammars_.has_vocabulary());
  ASSERT_TRUE(constraint(asked(GrammarKind::regex, "a+")));
  EXPECT_TRUE(grammars_.has_vocabulary());
}

TEST_F(GrammarsOfBytes, an_answer_may_end_where_it_is_complete_and_holds_no_special_token) {
  auto made = constraint(asked(GrammarKind::regex, "a+"));
  ASSERT_TRUE(made);
  EXPECT_TRUE(allows(*made, "aa", 'a'));
  EXPECT_TRUE(allows(*made, "aa", kEndToken));
  EXPECT_FALSE(allows(*made, "", kEndToken));
  for (TokenId id = 0; id < kByteModelVocab; ++id)
    EXPECT_EQ(made->constraint.matcher->vocabulary().bytes_of(id), tokenizer_.is_special(id) ? "" : tokenizer_.token_bytes(id));
  EXPECT_TRUE(tokenizer_.is_special(kEndToken));
  EXPECT_EQ(made->constraint.encode("ab<|end|>").size(), 9u) << "the text of a special token stays text";
}

TEST_F(GrammarsOfBytes, requests_of_different_salts_share_no_matcher) {
  const StructuredOutput schema = asked(GrammarKind::json_schema, R"({"enum": ["a", "b"]})");
  const auto first = grammars_.constraint(schema, tokenizer_, "name:shop", {});
  const auto other = grammars_.constraint(schema, tokenizer_, "name:bank", {});
  const auto open = grammars_.constraint(schema, tokenizer_, "", {});
  const auto again = grammars_.constraint(schema, tokenizer_, "name:shop", {});
  EXPECT_NE(first->constraint.matcher, other->constraint.matcher);
  EXPECT_NE(first->constraint.matcher, open->constraint.matcher);
  EXPECT_NE(other->constraint.matcher, open->constraint.matcher);
  EXPECT_EQ(first->constraint.matcher, again->constraint.matcher);
  EXPECT_EQ(grammars_.counts().cache.misses, 3U) << "no key is faster for what another one has asked for";
}

/// A grammar whose compilation writes more than 2 MiB.
StructuredOutput costly() {
  std::string list = "[";
  for (int i = 0; i < 8000; ++i) list += fmt::format("{}\"word number {}\"", i == 0 ? "" : ",", i);
  return asked(GrammarKind::choice, list + "]");
}

TEST(Grammars, compilations_take_their_memory_from_a_budget) {
  const Tokenizer tokenizer = byte_tokenizer();
  Budget budget(/*limit=*/std::int64_t{512} << 20, /*small=*/std::int64_t{1} << 20);
  Grammars grammars(kByteModelVocab, {kEndToken}, {}, &budget);
  BudgetShare others = budget.share();
  ASSERT_TRUE(others.grow((std::int64_t{512} << 20) / 4 * 3));
  const auto refused = grammars.constraint(costly(), tokenizer, "", {});
  ASSERT_FALSE(refused) << "what is left is for small ones";
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable) << refused.error().message;
  EXPECT_TRUE(grammars.constraint(asked(GrammarKind::regex, "a+"), tokenizer, "", {}));
  EXPECT_EQ(budget.used(), others.size()) << "what a compilation took goes back at its end";
  others.release();
  std::int64_t most = 0;
  const auto made = grammars.constraint(costly(), tokenizer, "", [&] {
    most = std::max(most, budget.used());
    return false;
  });
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_GT(most, std::int64_t{2} << 20);
  EXPECT_EQ(budget.used(), 0);
}

TEST(Grammars, that_could_never_find_their_memory_are_too_large) {
  const Tokenizer tokenizer = byte_tokenizer();
  Budget budget(/*limit=*/std::int64_t{2} << 20, /*small=*/1);
  Grammars grammars(kByteModelVocab, {kEndToken}, {}, &budget);
  const auto refused = grammars.constraint(costly(), tokenizer, "", {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request) << refused.error().message;
  EXPECT_NE(refused.error().message.find("bytes of memory"), std::string::npos) << refused.error().message;
}

TEST_F(GrammarsOfBytes, equal_sources_share_a_matcher_and_are_counted) {
  const auto schema = [](std::string field) {
    return asked(GrammarKind::json_schema, R"({"type":"string","frobnicate":1})", std::move(field));
  };
  const auto first = constraint(schema("guided_json"));
  const auto again = constraint(schema("json_schema"));
  ASSERT_TRUE(first && again);
  EXPECT_EQ(first->constraint.matcher, again->constraint.matcher);
  EXPECT_EQ(first->ignored.size(), 1u);
  EXPECT_TRUE(again->ignored.empty()) << "only the first time";
  const GrammarCounts counts = grammars_.counts();
  EXPECT_EQ(counts.requests[static_cast<std::size_t>(GrammarKind::json_schema)], 2);
  EXPECT_EQ(counts.requests[static_cast<std::size_t>(GrammarKind::regex)], 0);
  EXPECT_EQ(counts.cache.hits, 1u);
  EXPECT_EQ(counts.cache.misses, 1u);
  EXPECT_EQ(counts.cache.n_entries, 1u);
  EXPECT_GT(counts.cache.n_bytes, 0u);
  EXPECT_EQ(counts.cache_limit_bytes, std::size_t{8} << 20);
  std::int64_t n_compiled = 0;
  for (const std::int64_t n : counts.compile_seconds.counts) n_compiled += n;
  EXPECT_EQ(n_compiled, 1);
}

TEST_F(GrammarsOfBytes, an_error_names_the_field_and_the_place_in_it) {
  const std::pair<StructuredOutput, std::string_view> cases[] = {
      {asked(GrammarKind::json_schema, R"({"properties":{"a":{"not":{}}}})", "response_format.json_schema.schema"),
       "#/properties/a"},
      {asked(GrammarKind::json_schema, R"({"type":"sting"})"), "type"},
      {asked(GrammarKind::regex, "(a", "guided_regex"), "byte 2"},
      {asked(GrammarKind::ebnf, "root ::= a", "grammar"), "a"},
      {asked(GrammarKind::json_schema, R"({"type":"object","required":["a"],"properties":{"a":false}})"), "no text"},
  };
  for (const auto& [output, place] : cases) {
    const auto refused = constraint(output);
    ASSERT_FALSE(refused) << output.source.text;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(refused.error().param, output.field);
    EXPECT_TRUE(refused.error().message.starts_with("'" + output.field + "': ")) << refused.error().message;
    EXPECT_NE(refused.error().message.find(place), std::string::npos) << refused.error().message;
  }
  EXPECT_EQ(grammars_.counts().refused, 5);
  EXPECT_EQ(grammars_.counts().cache.n_entries, 0u);
}

TEST_F(GrammarsOfBytes, what_is_too_large_is_refused_and_what_no_client_waits_for_ends) {
  const StructuredOutput large = asked(GrammarKind::regex, "((a{1,300}){1,300}){1,300}", "guided_regex");
  const auto refused = constraint(large);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
  EXPECT_NE(refused.error().message.find("more than"), std::string::npos) << refused.error().message;
  const auto ended = constraint(large, [] { return true; });
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::unavailable) << ended.error().message;
  EXPECT_EQ(grammars_.counts().refused, 1) << "what was cancelled was not refused";
}

/// A tokenizer that puts a space in front of a text, as Llama 2's.
TEST(Grammars, demanded_text_is_drafted_where_the_tokenizer_adds_a_space) {
  const auto tokenizer = Tokenizer::load(test::source_folder() / "tests/goldens/tokenizers/llama2");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  ModelSpec spec = testing::tiny_spec();
  spec.n_vocab = tokenizer->n_vocab();
  spec.eos_token_ids = {2};
  Grammars grammars(spec.n_vocab, {2}, {});
  constexpr std::string_view kText = "the cat the cat the cat the cat";
  const StructuredOutput choice{{GrammarKind::choice, fmt::format(R"(["x {}"])", kText)}, "guided_choice"};
  const std::vector<TokenId> ids = tokenizer->encode_plain_behind(std::string("x ") + std::string(kText));
  std::vector<TokenBias> biases;
  for (const TokenId id : std::set<TokenId>(ids.begin(), ids.end())) biases.push_back({id, 50});
  const auto run = [&](bool has_drafts) {
    const auto engine = testing::make_tiny_engine({.batch_invariant = true}, 200, spec);
    Request request = testing::greedy(testing::random_prompt(1, 9), 80);
    request.sampling.ignore_eos = false;
    request.constraint = grammars.constraint(choice, *tokenizer, "", {})->constraint;
    request.sampling.logit_bias = biases;
    if (!has_drafts) request.constraint.encode = {};
    const auto tokens = testing::run_requests(*engine, {request})[0].tokens;
    EXPECT_EQ(engine->metrics().spec_decode_num_accepted_tokens.value() > 0, has_drafts);
    return tokens;
  };
  const std::vector<TokenId> tokens = run(true);
  EXPECT_EQ(tokens, run(false));
  std::string text;
  for (const TokenId id : tokens) text += tokenizer->token_bytes(id);
  EXPECT_EQ(text, "x " + std::string(kText));
}

TEST(Grammars, a_call_of_mistral_begins_with_the_token_of_its_vocabulary) {
  const char* data = std::getenv("BATON_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  const auto tokenizer =
      Tokenizer::load_file(std::filesystem::path(data) / "tokenizers/mistral/mistral_instruct_tokenizer_240323.model.v3");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const TokenId marker = tokenizer->id_of("[TOOL_CALLS]").value();
  ASSERT_TRUE(tokenizer->is_special(marker));
  const std::vector<std::string> special{"[TOOL_CALLS]"};
  const std::vector<parsers::Tool> tools{{.name = "f"}};
  const auto source =
      parsers::MessageFormat::make("mistral", "", "")
          ->grammar({.tools = tools, .choice = {.kind = parsers::ToolChoice::Kind::required}, .special_tokens = special});
  Grammars grammars(tokenizer->n_vocab(), {tokenizer->eos().value()}, {});
  const auto made = grammars.constraint({**source, "tools"}, *tokenizer, "", {});
  ASSERT_TRUE(made) << made.error().message;
  grammar::Matcher& matcher = *made->constraint.matcher;
  grammar::MatcherState state = matcher.start();
  std::vector<std::uint32_t> mask(matcher.vocabulary().n_words());
  ASSERT_TRUE(matcher.mask(state, mask));
  for (TokenId id = 0; id < tokenizer->n_vocab(); ++id)
    EXPECT_EQ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0, id == marker) << id;
  for (const TokenId id : tokenizer->encode_plain_behind("[TOOL_CALLS]")) EXPECT_FALSE(matcher.accept(state, id)) << id;
  ASSERT_TRUE(matcher.accept(state, marker));
  for (const TokenId id : tokenizer->encode_plain_behind(R"([{"name": "f", "arguments": {"x": 1}}])"))
    EXPECT_TRUE(matcher.accept(state, id)) << tokenizer->token_text(id);
  EXPECT_TRUE(matcher.is_complete(state));
}

}  // namespace
}  // namespace baton
