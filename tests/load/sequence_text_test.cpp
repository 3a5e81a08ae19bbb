/// Events to text: how a sequence ends, and what belongs to its text (load/sequence_text.h).
#include "load/sequence_text.h"

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"

namespace baton {
namespace {

constexpr TokenId kEnd = 260;   ///< <|end|>, special
constexpr TokenId kTool = 261;  ///< "tool"

const Tokenizer& tokenizer() {
  static const Tokenizer made = Tokenizer::from_json(json::dump(test::byte_level_tokenizer()), "").value();
  return made;
}

Event event_of(std::string_view text, std::optional<FinishReason> finished = {}, std::optional<TokenId> stop_token = {}) {
  const auto output = [](TokenId id) {
    TokenOutput token;
    token.token = id;
    return token;
  };
  Event event;
  for (const TokenId id : tokenizer().encode(text, false)) event.tokens.push_back(output(id));
  event.finished = finished;
  if (stop_token) event.stop_token = output(*stop_token);
  return event;
}

SequenceText make(const SequenceTextOptions& options) { return {tokenizer(), options, {}}; }

TEST(SequenceText, holds_back_what_may_become_a_stop_string_until_the_end) {
  SequenceText text = make({.stop = {"stop"}});
  EXPECT_EQ(text.take(event_of("a st")).text, "a ");
  const SequenceText::News last = text.take(event_of("ay", FinishReason::length));
  EXPECT_EQ(last.text, "stay");
  EXPECT_EQ(last.finished, FinishReason::length);
  EXPECT_EQ(last.stop, std::nullopt);
  EXPECT_FALSE(last.is_ahead_of_engine);
  EXPECT_TRUE(text.has_ended());
}

TEST(SequenceText, ends_at_a_stop_string_before_the_engine_does) {
  for (const bool include_stop : {false, true}) {
    SequenceText text = make({.stop = {"xy"}, .include_stop = include_stop});
    const SequenceText::News news = text.take(event_of("axyb"));
    EXPECT_EQ(news.text, include_stop ? "axy" : "a");
    EXPECT_EQ(news.tokens.size(), 3u) << "none after the stop string";
    EXPECT_EQ(news.finished, FinishReason::stop);
    EXPECT_EQ(news.stop, "xy");
    EXPECT_TRUE(news.is_ahead_of_engine);
    const SequenceText::News after = text.take(event_of("c", FinishReason::length));
    EXPECT_TRUE(after.text.empty() && after.tokens.empty() && !after.finished) << "nothing follows the end";
  }
}

TEST(SequenceText, a_stop_string_in_the_last_event_is_not_ahead_of_the_engine) {
  SequenceText text = make({.stop = {"xy"}});
  const SequenceText::News news = text.take(event_of("axy", FinishReason::length));
  EXPECT_EQ(news.finished, FinishReason::stop);
  EXPECT_FALSE(news.is_ahead_of_engine);
}

TEST(SequenceText, a_stop_token_counts_and_is_text_where_stops_are_included) {
  for (const bool include_stop : {false, true}) {
    SequenceText text = make({.include_stop = include_stop});
    const SequenceText::News news = text.take(event_of("a", FinishReason::stop, kTool));
    EXPECT_EQ(news.text, include_stop ? "atool" : "a");
    EXPECT_EQ(news.tokens.back().token, kTool);
    EXPECT_EQ(news.finished, FinishReason::stop);
  }
  EXPECT_EQ(make({.include_stop = true}).take(event_of("a", FinishReason::stop, kEnd)).text, "a")
      << "special tokens are skipped";
  EXPECT_EQ(make({.include_stop = true, .skip_special_tokens = false}).take(event_of("a", FinishReason::stop, kEnd)).text,
            "a<|end|>");
}

TEST(SequenceText, without_text_only_tokens_come) {
  SequenceText text = make({.stop = {"a"}, .detokenize = false});
  const SequenceText::News news = text.take(event_of("aa", FinishReason::length));
  EXPECT_EQ(news.text, "");
  EXPECT_EQ(news.tokens.size(), 2u);
  EXPECT_EQ(news.finished, FinishReason::length);
}

}  // namespace
}  // namespace baton
