/// One choice: its events become text and a finish reason (server/answer/choice.h).
#include "server/answer/choice.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "support/tool_index.h"

namespace baton {
namespace {

Event event_of(std::string_view text) {
  Event event;
  for (const char byte : text) event.tokens.push_back({static_cast<unsigned char>(byte), {}, {}});
  return event;
}
Event with_end(Event event, FinishReason reason, std::optional<TokenId> stop_id = {}) {
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
  EXPECT_FALSE(one.take(event_of("bc")));
  EXPECT_EQ(one.text(), "Abc");
  EXPECT_EQ(one.tokens().size(), 2u);
  one.clear();
  EXPECT_FALSE(one.take(event_of("d")));
  EXPECT_EQ(one.text(), "d");
  EXPECT_EQ(one.tokens().size(), 1u);
  EXPECT_EQ(one.n_tokens(), 3);
  EXPECT_FALSE(one.has_ended());
}

TEST_F(ChoiceOfAnswer, without_a_parser_is_one_piece_of_content) {
  AnswerChoice one = choice();
  EXPECT_TRUE(one.pieces().empty());
  EXPECT_EQ(one.text(), "");
  one.take(event_of("a<tool_call>"));
  one.take(event_of("b"));
  ASSERT_EQ(one.pieces().size(), 1u);
  EXPECT_EQ(one.pieces()[0], (parsers::MessagePiece{.text = "a<tool_call>b"}));
  one.clear();
  EXPECT_TRUE(one.pieces().empty());
  one.take(with_end(event_of("c"), FinishReason::stop));
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
  EXPECT_TRUE(one.take(event_of("a!b")));
  EXPECT_EQ(one.text(), "a");
  EXPECT_EQ(one.n_tokens(), 2);
  EXPECT_EQ(one.finish(), FinishReason::stop);
  EXPECT_EQ(std::get<std::string>(one.stop_reason()), "!");
  EXPECT_FALSE(one.take(with_end(event_of("c"), FinishReason::length))) << "it has ended";
  EXPECT_EQ(one.text(), "a");

  AnswerChoice last = choice();
  EXPECT_FALSE(last.take(with_end(event_of("a!"), FinishReason::length))) << "the engine knows that it has ended";
}

TEST_F(ChoiceOfAnswer, lists_the_stop_token_and_shows_its_text_only_if_asked) {
  AnswerChoice one = choice();
  one.take(with_end(event_of("a"), FinishReason::stop, kEndToken));
  EXPECT_EQ(one.text(), "a");
  EXPECT_EQ(one.tokens().back().token, kEndToken);
  EXPECT_EQ(one.n_tokens(), 2);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(one.stop_reason())) << "the model's own end has no reason";

  request_.sampling.stop_ids = {66};
  request_.include_stop = true;
  AnswerChoice asked = choice();
  asked.take(with_end(event_of("a"), FinishReason::stop, 66));
  EXPECT_EQ(asked.text(), "aB");
  EXPECT_EQ(std::get<TokenId>(asked.stop_reason()), 66);
}

TEST_F(ChoiceOfAnswer, says_in_a_word_what_cut_it_off) {
  for (const auto& [reason, word] :
       {std::pair{FinishReason::deadline, "deadline"}, std::pair{FinishReason::abort, "shutdown"}}) {
    AnswerChoice one = choice();
    one.take(with_end(event_of("a"), reason));
    EXPECT_EQ(one.finish(), FinishReason::abort);
    EXPECT_EQ(std::get<std::string>(one.stop_reason()), word);
  }
}

using parsers::MessagePiece;
using Kind = MessagePiece::Kind;

/// A choice whose text is read as Qwen's models write calls and reasoning.
class MessageOfChoice : public ChoiceOfAnswer {
 protected:
  MessageOfChoice() {
    request_.reading.format = &format_;
    request_.reading.tools = testing::index_of({{.name = "f"}});
  }
  /// The pieces of a text that comes at once and ends.
  std::vector<MessagePiece> whole(std::string_view text) const {
    AnswerChoice one = choice();
    one.take(with_end(event_of(text), FinishReason::stop, kEndToken));
    return {one.pieces().begin(), one.pieces().end()};
  }

  const parsers::MessageFormat format_ = parsers::MessageFormat::make("hermes", "qwen3", "").value();
};

constexpr std::string_view kCalling =
    "<think>\nwhy\n</think>\n\nSure.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b c\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

TEST_F(MessageOfChoice, has_reasoning_content_and_calls_with_ids) {
  const std::vector<MessagePiece> pieces = whole(kCalling);
  ASSERT_EQ(pieces.size(), 6u);
  EXPECT_EQ(pieces[0].kind, Kind::reasoning);
  EXPECT_NE(pieces[0].text.find("why"), std::string::npos);
  EXPECT_EQ(pieces[1], (MessagePiece{.text = "Sure."}));
  EXPECT_EQ(pieces[2].kind, Kind::call);
  EXPECT_EQ(pieces[2].text, "f");
  EXPECT_TRUE(pieces[2].id.starts_with("call_")) << pieces[2].id;
  EXPECT_EQ(pieces[3], (MessagePiece{Kind::arguments, 0, R"({"a": "b c"})", {}, true}));
  EXPECT_EQ(pieces[4].text, "g");
  EXPECT_EQ(pieces[4].call, 1);
  EXPECT_NE(pieces[4].id, pieces[2].id);
  EXPECT_EQ(pieces[5], (MessagePiece{Kind::arguments, 1, "{}", {}, true}));
}

TEST_F(MessageOfChoice, comes_in_the_same_pieces_token_by_token) {
  const std::vector<MessagePiece> expected = whole(kCalling);
  AnswerChoice one = choice();
  std::vector<MessagePiece> joined;
  const auto collect = [&] {
    for (const MessagePiece& piece : one.pieces()) {
      const bool continues =
          !joined.empty() && piece.kind != Kind::call && joined.back().kind == piece.kind && joined.back().call == piece.call;
      if (continues)
        joined.back().text += piece.text;
      else
        joined.push_back(piece);
    }
    one.clear();
  };
  for (const char byte : kCalling) {
    one.take(event_of(std::string_view(&byte, 1)));
    collect();
  }
  one.take(with_end({}, FinishReason::stop, kEndToken));
  collect();
  ASSERT_EQ(joined.size(), expected.size());
  for (std::size_t i = 0; i < joined.size(); ++i) {
    EXPECT_EQ(joined[i].kind, expected[i].kind);
    EXPECT_EQ(joined[i].text, expected[i].text);
  }
}

TEST_F(MessageOfChoice, ends_with_tool_calls_unless_it_was_cut_or_the_tool_was_named) {
  const auto word = [&](FinishReason reason, std::string_view text) {
    AnswerChoice one = choice();
    one.take(with_end(event_of(text), reason));
    return std::string(one.finish_word());
  };
  EXPECT_EQ(word(FinishReason::stop, kCalling), "tool_calls");
  EXPECT_EQ(word(FinishReason::stop, "Sure."), "stop");
  EXPECT_EQ(word(FinishReason::length, kCalling.substr(0, kCalling.size() - 16)), "length") << "arguments may be cut";
  request_.reading.is_named = true;
  EXPECT_EQ(word(FinishReason::stop, kCalling), "stop") << "as OpenAI says";
}

/// A word for what an answer ends with, and its calls.
struct Ended {
  std::string word;
  AnswerChoice::StopReason stop_reason;
  std::int32_t n_calls = 0;
  std::string content;
};

TEST_F(MessageOfChoice, ends_with_tool_calls_only_if_every_call_is_complete) {
  const std::string cut = R"(<tool_call>{"name": "f", "arguments": {"a": "b)";
  const std::string done = std::string(kCalling.substr(kCalling.find("<tool_call>")));
  const auto ended = [&](const std::string& text, FinishReason reason) {
    AnswerChoice one = choice();
    one.take(with_end(event_of(text), reason));
    Ended result{std::string(one.finish_word()), one.stop_reason(), one.n_calls(), {}};
    for (const MessagePiece& piece : one.pieces()) result.content += piece.kind == Kind::content ? piece.text : "";
    return result;
  };
  for (const bool is_stream : {false, true}) {
    request_.is_stream = is_stream;
    request_.stop = {};
    EXPECT_EQ(ended(done, FinishReason::stop).word, "tool_calls");
    EXPECT_EQ(ended(cut, FinishReason::length).word, "length");
    EXPECT_EQ(ended(cut, FinishReason::length).n_calls, 1) << "arguments as far as they have come";
    EXPECT_EQ(ended(done + cut, FinishReason::length).word, "length");
    // The model has ended it itself: content as a whole in one piece, begun in a stream.
    EXPECT_EQ(ended(cut, FinishReason::stop).word, "stop");
    EXPECT_EQ(ended(cut, FinishReason::stop).content, is_stream ? "" : cut);
    EXPECT_EQ(ended(done + cut, FinishReason::stop).word, is_stream ? "stop" : "tool_calls");
    for (const auto& [reason, word] :
         {std::pair{FinishReason::deadline, "deadline"}, std::pair{FinishReason::abort, "shutdown"}}) {
      EXPECT_EQ(ended(cut, reason).word, "abort");
      EXPECT_EQ(std::get<std::string>(ended(done + cut, reason).stop_reason), word);
    }
    request_.stop = {"\"b"};
    const Ended stopped = ended(cut + "\"}}</tool_call>", FinishReason::stop);
    EXPECT_EQ(stopped.word, "stop");
    EXPECT_EQ(std::get<std::string>(stopped.stop_reason), "\"b");
    EXPECT_EQ(stopped.n_calls, 1);
  }
}

TEST_F(MessageOfChoice, shows_no_markup_where_it_was_cut_inside_of_a_name) {
  for (const bool is_stream : {false, true})
    for (const bool demands_calls : {false, true}) {
      request_.is_stream = is_stream;
      request_.reading.demands_calls = demands_calls;
      AnswerChoice one = choice();
      one.take(with_end(event_of("<tool_call>\n{\"name\": \"f"), FinishReason::length));
      EXPECT_TRUE(one.pieces().empty());
      EXPECT_EQ(one.finish_word(), "length");
    }
  request_.stop = {"name"};
  AnswerChoice stopped = choice();
  stopped.take(event_of("<tool_call>\n{\"name\": \"f"));
  EXPECT_TRUE(stopped.pieces().empty());
  EXPECT_EQ(std::get<std::string>(stopped.stop_reason()), "name");
}

TEST_F(MessageOfChoice, counts_a_call_at_the_end_of_open_reasoning_as_a_call) {
  AnswerChoice one = choice();
  one.take(
      with_end(event_of("<think>\nwhy\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"), FinishReason::stop));
  EXPECT_EQ(one.finish_word(), "tool_calls");
  ASSERT_EQ(one.pieces().size(), 3u);
  EXPECT_EQ(one.pieces()[0], (MessagePiece{.kind = Kind::reasoning, .text = "why"}));
  EXPECT_LT(one.n_reasoning_tokens(), 20);
}

TEST_F(MessageOfChoice, ends_before_a_second_call_where_one_is_allowed) {
  request_.reading.is_parallel = false;
  AnswerChoice one = choice();
  EXPECT_TRUE(one.take(event_of(kCalling))) << "the engine must be told";
  EXPECT_EQ(one.n_calls(), 1);
  EXPECT_EQ(one.finish_word(), "tool_calls");
  EXPECT_EQ(one.pieces().back(), (MessagePiece{Kind::arguments, 0, R"({"a": "b c"})", {}, true}));
  EXPECT_FALSE(one.take(event_of("more")));
  for (const bool is_stream : {false, true}) {
    request_.is_stream = is_stream;
    AnswerChoice begun = choice();
    EXPECT_TRUE(begun.take(event_of(kCalling.substr(0, kCalling.size() - 15)))) << "as soon as the second one begins";
    EXPECT_EQ(begun.finish_word(), "tool_calls");
  }
}

TEST_F(MessageOfChoice, counts_reasoning_tokens_and_hides_reasoning_if_asked) {
  AnswerChoice one = choice();
  one.take(with_end(event_of("<think>\nwhy\n</think>\n\nSure."), FinishReason::stop));
  EXPECT_GE(one.n_reasoning_tokens(), 3);
  EXPECT_LE(one.n_reasoning_tokens(), 23) << "Sure. is none";
  request_.reading.shows_reasoning = false;
  AnswerChoice hidden = choice();
  hidden.take(with_end(event_of("<think>\nwhy\n</think>\n\nSure."), FinishReason::stop));
  ASSERT_EQ(hidden.pieces().size(), 1u);
  EXPECT_EQ(hidden.pieces()[0].text, "Sure.");
  EXPECT_EQ(hidden.n_reasoning_tokens(), one.n_reasoning_tokens());
  request_.reading.begins_in_reasoning = true;
  AnswerChoice cut = choice();
  cut.take(with_end(event_of("why not"), FinishReason::length));
  EXPECT_EQ(cut.n_reasoning_tokens(), 7);
  EXPECT_TRUE(cut.pieces().empty());
}

TEST_F(MessageOfChoice, has_content_alone_without_tools) {
  request_.reading.tools = nullptr;
  const std::vector<MessagePiece> pieces = whole("a<tool_call>{\"name\": \"f\"}</tool_call>");
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].text, "a<tool_call>{\"name\": \"f\"}</tool_call>");
}

TEST_F(MessageOfChoice, ends_at_a_stop_string_wherever_it_stands) {
  request_.stop = {"b c"};
  AnswerChoice one = choice();
  EXPECT_TRUE(one.take(event_of(kCalling)));
  EXPECT_EQ(std::get<std::string>(one.stop_reason()), "b c");
  EXPECT_EQ(one.pieces().back(), (MessagePiece{Kind::arguments, 0, R"({"a": ")", {}}));
  EXPECT_EQ(one.finish_word(), "stop");
}

}  // namespace
}  // namespace baton
