/// Messages and streams of the Anthropic dialect (server/dialects/messages/answer.h).
#include "server/dialects/messages/answer.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "server/dialect_content.h"

namespace baton {
namespace {

class MessagesAnswer : public ::testing::Test {
 protected:
  /// The frames of everything since the last call.
  std::string take(bool is_last = false) {
    std::string frames = writer_.choice_frames(0, is_last);
    written_.choice().clear();
    if (is_last) frames += writer_.last_frames();
    return frames;
  }
  json::Value response() { return parsed(body_of(writer_)); }

  DialectContent written_;
  MessagesWriter writer_{written_.content, MessagesPlan{.n_marked = 32}};
};

std::vector<std::string> names(const std::vector<NamedFrame>& frames) {
  std::vector<std::string> events;
  for (const NamedFrame& frame : frames) events.push_back(frame.event);
  return events;
}

TEST_F(MessagesAnswer, is_a_message_in_one_piece) {
  written_.ends("Hi \"you\"", FinishReason::stop);
  EXPECT_EQ(
      body_of(writer_),
      R"({"id":"id-1","type":"message","role":"assistant","model":"demo","content":[{"type":"text","text":"Hi \"you\""}],)"
      R"("stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":8,"cache_creation_input_tokens":16,)"
      R"("cache_read_input_tokens":16,"output_tokens":8}})");
  EXPECT_EQ(writer_.response_bytes(), 8u);
}

TEST_F(MessagesAnswer, streams_the_same_message) {
  std::string frames;
  for (const std::string_view text : {"He", "llo"}) {
    written_.says(text);
    frames += take();
  }
  written_.ends("!", FinishReason::length);
  frames += take(/*is_last=*/true);
  const auto found = named_frames(frames);
  EXPECT_EQ(names(found), (std::vector<std::string>{"message_start", "content_block_start", "ping", "content_block_delta",
                                                    "content_block_delta", "content_block_delta", "content_block_stop",
                                                    "message_delta", "message_stop"}));
  EXPECT_EQ(json::dump(found[0].data),
            R"({"type":"message_start","message":{"id":"id-1","type":"message","role":"assistant","model":"demo","content":[],)"
            R"("stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":8,"cache_creation_input_tokens":16,)"
            R"("cache_read_input_tokens":16,"output_tokens":2}}})");
  EXPECT_EQ(json::dump(found[1].data), R"({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})");
  EXPECT_EQ(json::dump(found[3].data), R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"He"}})");
  EXPECT_EQ(json::dump(found[6].data), R"({"type":"content_block_stop","index":0})");
  EXPECT_EQ(json::dump(found[7].data),
            R"({"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"input_tokens":8,)"
            R"("cache_creation_input_tokens":16,"cache_read_input_tokens":16,"output_tokens":6}})");
}

TEST_F(MessagesAnswer, has_a_block_for_reasoning_for_text_and_for_each_call) {
  const std::string text = "<think>\nhm\n</think>\n\nLet me look." + std::string(kLookCall) + "\n" + std::string(kLookCall);
  written_.ends(text, FinishReason::stop);
  const json::Value message = response();
  const json::Value& content = message["content"];
  ASSERT_EQ(content.size(), 4u) << json::dump(message);
  EXPECT_EQ(content[0]["type"], "thinking");
  EXPECT_EQ(content[0]["thinking"].get<std::string>().find("hm") != std::string::npos, true);
  EXPECT_EQ(content[0]["signature"], "");
  EXPECT_EQ(content[1]["type"], "text");
  EXPECT_EQ(content[2]["type"], "tool_use");
  EXPECT_EQ(content[2]["name"], "look");
  EXPECT_EQ(json::dump(content[2]["input"]), R"({"at":[1,2]})");
  EXPECT_NE(content[2]["id"], content[3]["id"]);
  EXPECT_EQ(message["stop_reason"], "tool_use");
}

TEST_F(MessagesAnswer, streams_calls_and_reasoning_in_blocks) {
  const std::string text = "<think>\nhm\n</think>\n\nLet me look." + std::string(kLookCall);
  std::string frames;
  for (const char byte : text) {
    written_.says(std::string_view(&byte, 1));
    frames += take();
  }
  written_.ends("", FinishReason::stop);
  frames += take(/*is_last=*/true);
  std::vector<std::string> types;
  std::vector<std::string> texts;
  std::int32_t n_open = 0;
  for (const NamedFrame& frame : named_frames(frames)) {
    if (frame.event == "content_block_start") {
      EXPECT_EQ(frame.data["index"], types.size());
      types.push_back(frame.data["content_block"]["type"]);
      texts.emplace_back();
      ++n_open;
    } else if (frame.event == "content_block_stop") {
      EXPECT_EQ(frame.data["index"], types.size() - 1);
      --n_open;
    } else if (frame.event == "content_block_delta") {
      EXPECT_EQ(n_open, 1);
      for (const char* const member : {"thinking", "text", "partial_json"})
        if (frame.data["delta"].contains(member)) texts.back() += frame.data["delta"][member].get<std::string>();
    } else if (frame.event == "message_delta") {
      EXPECT_EQ(frame.data["delta"]["stop_reason"], "tool_use");
    }
  }
  EXPECT_EQ(n_open, 0);
  ASSERT_EQ(types, (std::vector<std::string>{"thinking", "text", "tool_use"}));
  EXPECT_NE(texts[0].find("hm"), std::string::npos);
  EXPECT_EQ(texts[1], "Let me look.");
  EXPECT_EQ(json::dump(parsed(texts[2])), R"({"at":[1,2]})");
}

TEST_F(MessagesAnswer, has_the_arguments_of_calls_as_the_model_wrote_them) {
  written_.ends("<tool_call>{\"name\": \"look\", \"arguments\": {\"b\": 9223372036854775808, \"a\": \"C:\\d\", }}</tool_call>",
                FinishReason::stop);
  std::string body = body_of(writer_);
  EXPECT_NE(body.find(R"("input":{"b": 9223372036854775808, "a": "C:\\d" })"), std::string::npos) << body;
  EXPECT_EQ(parsed(body)["stop_reason"], "tool_use");
}

TEST_F(MessagesAnswer, has_no_input_for_arguments_that_were_cut) {
  const std::string cut = R"(<tool_call>{"name": "look", "arguments": {"at": [1)";
  written_.ends(std::string(kLookCall) + cut, FinishReason::length);
  const json::Value message = response();
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  ASSERT_EQ(message["content"].size(), 2u);
  EXPECT_EQ(message["content"][0]["type"], "tool_use");
  EXPECT_EQ(json::dump(message["content"][1]), R"({"type":"text","text":"look({\"at\": [1"})");
}

TEST_F(MessagesAnswer, of_a_stop_text_inside_of_arguments_names_it) {
  written_.content.request.stop = {"at"};
  written_.begin_again();
  written_.says(kLookCall);
  const json::Value message = response();
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], "at");
  EXPECT_EQ(json::dump(message["content"]), R"([{"type":"text","text":"look({\""}])");
}

TEST_F(MessagesAnswer, of_a_stream_with_a_broken_call_is_not_a_tool_use) {
  written_.content.request.is_stream = true;
  written_.begin_again();
  written_.ends(R"(<tool_call>{"name": "look", "arguments": {"at": oops}}</tool_call>)", FinishReason::stop);
  const auto frames = named_frames(take(/*is_last=*/true));
  const auto delta = std::ranges::find(frames, "message_delta", &NamedFrame::event);
  ASSERT_NE(delta, frames.end());
  EXPECT_EQ(delta->data["delta"]["stop_reason"], "end_turn");
}

TEST_F(MessagesAnswer, says_which_stop_sequence_ended_it) {
  written_.choice().end(FinishReason::stop, "END");
  const json::Value message = response();
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], "END");
  EXPECT_EQ(message["content"].size(), 0u);
}

TEST_F(MessagesAnswer, of_a_deadline_can_be_continued) {
  written_.ends("a", FinishReason::deadline);
  EXPECT_EQ(response()["stop_reason"], "pause_turn");
}

TEST_F(MessagesAnswer, ends_a_stream_with_an_error) {
  written_.says("a");
  take();
  const auto frames = named_frames(writer_.error_frames(500, "no", {}));
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(json::dump(frames[0].data), R"({"type":"error","error":{"type":"api_error","message":"no"}})");
  EXPECT_EQ(writer_.error(503, "no", {}).status, 503);
}

TEST_F(MessagesAnswer, of_a_server_that_shuts_down_ends_its_stream_with_an_error) {
  written_.ends("a", FinishReason::abort);
  const auto frames = named_frames(take(/*is_last=*/true));
  EXPECT_EQ(frames.back().data["error"]["type"], "overloaded_error");
}

TEST(MessagesContextManagement, says_that_nothing_was_taken_out) {
  for (const bool is_asked : {false, true}) {
    DialectContent written;
    MessagesWriter writer(written.content, MessagesPlan{.has_context_management = is_asked});
    written.ends("Hi", FinishReason::stop);
    const auto frames = named_frames(writer.choice_frames(0, true) + writer.last_frames());
    const json::Value whole = parsed(body_of(writer));
    const json::Value& streamed = frames[frames.size() - 2].data;
    EXPECT_EQ(whole.contains("context_management"), is_asked);
    EXPECT_EQ(streamed.contains("context_management"), is_asked);
    if (!is_asked) continue;
    EXPECT_EQ(json::dump(whole["context_management"]), R"({"applied_edits":[]})");
    EXPECT_EQ(json::dump(streamed["context_management"]), R"({"applied_edits":[]})");
  }
}

}  // namespace
}  // namespace baton
