/// One choice: its events become text and a finish reason (server/answer_choice.h).
#include "server/answer_choice.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

Event says(std::string_view text) {
  Event event;
  for (const char byte : text) event.tokens.push_back({static_cast<unsigned char>(byte), {}, {}});
  return event;
}
Event ends(Event event, FinishReason reason, std::optional<TokenId> stop_id = {}) {
  event.finished = reason;
  if (stop_id) event.stop_token = TokenOutput{*stop_id, {}, {}};
  event.stats.completion_tokens = static_cast<std::int32_t>(event.tokens.size()) + (stop_id ? 1 : 0);
  return event;
}

class ChoiceOfAnswer : public ::testing::Test {
 protected:
  AnswerChoice choice() const { return {request_, prompt_, tokenizer_}; }

  const Tokenizer tokenizer_ = byte_tokenizer();
  GenerationRequest request_;
  AnswerPrompt prompt_{{65}, {}};
};

TEST_F(ChoiceOfAnswer, begins_with_the_echo_and_gives_news_once) {
  prompt_.echo = "A";
  AnswerChoice one = choice();
  EXPECT_EQ(one.text(), "A");
  EXPECT_FALSE(one.take(says("bc")));
  EXPECT_EQ(one.text(), "Abc");
  EXPECT_EQ(one.tokens().size(), 2u);
  one.clear();
  EXPECT_FALSE(one.take(says("d")));
  EXPECT_EQ(one.text(), "d");
  EXPECT_EQ(one.tokens().size(), 1u);
  EXPECT_EQ(one.n_tokens(), 3);
  EXPECT_FALSE(one.has_ended());
}

TEST_F(ChoiceOfAnswer, without_a_parser_is_one_piece_of_content) {
  AnswerChoice one = choice();
  EXPECT_TRUE(one.pieces().empty());
  EXPECT_EQ(one.text(), "");
  one.take(says("a<tool_call>"));
  one.take(says("b"));
  ASSERT_EQ(one.pieces().size(), 1u);
  EXPECT_EQ(one.pieces()[0], (parsers::MessagePiece{.text = "a<tool_call>b"}));
  one.clear();
  EXPECT_TRUE(one.pieces().empty());
  one.take(ends(says("c"), FinishReason::stop));
  EXPECT_EQ(one.text(), "c");
  EXPECT_EQ(one.finish_word(), "stop");
}

TEST_F(ChoiceOfAnswer, shares_the_scores_of_its_prompt) {
  const auto scores = std::make_shared<std::vector<TokenOutput>>(3);
  AnswerChoice one = choice(), two = choice();
  EXPECT_TRUE(one.echoed().empty());
  one.echo(scores);
  two.echo(scores);
  EXPECT_EQ(one.echoed().data(), two.echoed().data());
  EXPECT_EQ(one.echoed().size(), 3u);
  one.clear();
  EXPECT_TRUE(one.echoed().empty());
  EXPECT_EQ(two.echoed().size(), 3u);
}

TEST_F(ChoiceOfAnswer, ends_at_a_stop_string_which_the_engine_must_be_told) {
  request_.stop = {"!"};
  AnswerChoice one = choice();
  EXPECT_TRUE(one.take(says("a!b")));
  EXPECT_EQ(one.text(), "a");
  EXPECT_EQ(one.n_tokens(), 2);
  EXPECT_EQ(one.finish(), FinishReason::stop);
  EXPECT_EQ(std::get<std::string>(one.stop_reason()), "!");
  EXPECT_FALSE(one.take(ends(says("c"), FinishReason::length))) << "it has ended";
  EXPECT_EQ(one.text(), "a");

  AnswerChoice last = choice();
  EXPECT_FALSE(last.take(ends(says("a!"), FinishReason::length))) << "the engine knows that it has ended";
}

TEST_F(ChoiceOfAnswer, lists_the_stop_token_and_shows_its_text_only_if_asked) {
  AnswerChoice one = choice();
  one.take(ends(says("a"), FinishReason::stop, kEndToken));
  EXPECT_EQ(one.text(), "a");
  EXPECT_EQ(one.tokens().back().token, kEndToken);
  EXPECT_EQ(one.n_tokens(), 2);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(one.stop_reason())) << "the model's own end has no reason";

  request_.sampling.stop_ids = {66};
  request_.include_stop = true;
  AnswerChoice asked = choice();
  asked.take(ends(says("a"), FinishReason::stop, 66));
  EXPECT_EQ(asked.text(), "aB");
  EXPECT_EQ(std::get<TokenId>(asked.stop_reason()), 66);
}

TEST_F(ChoiceOfAnswer, says_in_a_word_what_cut_it_off) {
  for (const auto& [reason, word] :
       {std::pair{FinishReason::deadline, "deadline"}, std::pair{FinishReason::abort, "shutdown"}}) {
    AnswerChoice one = choice();
    one.take(ends(says("a"), reason));
    EXPECT_EQ(one.finish(), FinishReason::abort);
    EXPECT_EQ(std::get<std::string>(one.stop_reason()), word);
  }
}

}  // namespace
}  // namespace baton
