/// Answers in harmony, whose reasoning may follow content, in every dialect, streamed and in one piece.
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "server/dialect_content.h"
#include "server/dialects/messages/answer.h"
#include "server/dialects/openai/frames.h"
#include "server/dialects/responses/answer.h"

namespace baton {
namespace {

constexpr std::string_view kAnswer =
    "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
    "<|start|>assistant<|channel|>analysis<|message|>Two.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>{\"at\": [1]}";

class HarmonyDialects : public ::testing::Test {
 protected:
  /// The frames of the answer, byte by byte.
  std::string streamed(AnswerWriter& writer) {
    std::string frames;
    for (const char byte : kAnswer) {
      written_.says(std::string_view(&byte, 1));
      frames += writer.choice_frames(0, /*is_last=*/false);
      written_.choice().clear();
    }
    written_.ends("", FinishReason::stop);
    frames += writer.choice_frames(0, /*is_last=*/true);
    return frames + writer.last_frames();
  }

  DialectContent written_{"openai", "openai_gptoss"};
};

std::vector<std::string> types_of(const json::Value& parts) {
  std::vector<std::string> types;
  for (const json::Value& part : parts) types.push_back(part["type"]);
  return types;
}

TEST_F(HarmonyDialects, a_chat_has_joined_content_and_reasoning_and_calls) {
  written_.ends(kAnswer, FinishReason::stop);
  OpenaiWriter writer(written_.content, written_.tokenizer);
  const json::Value choice = parsed(body_of(writer))["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "I look.");
  EXPECT_EQ(choice["message"]["reasoning"], "One.\n\nTwo.");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"], parsed(R"({"name":"look","arguments":"{\"at\": [1]}"})"));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST_F(HarmonyDialects, a_chat_streams_the_same) {
  written_.content.request.is_stream = true;
  written_.begin_again();
  OpenaiWriter writer(written_.content, written_.tokenizer);
  const std::string frames = streamed(writer);
  std::string content, reasoning, arguments;
  for (std::size_t at = 0; (at = frames.find("data: {", at)) != std::string::npos; at += 6) {
    const json::Value frame = parsed(std::string_view(frames).substr(at + 6, frames.find("\n\n", at) - at - 6));
    if (frame["choices"].empty()) continue;
    const json::Value& delta = frame["choices"][0]["delta"];
    content += delta.value("content", "");
    reasoning += delta.value("reasoning", "");
    if (delta.contains("tool_calls")) arguments += delta["tool_calls"][0]["function"].value("arguments", "");
  }
  EXPECT_EQ(content, "I look.");
  EXPECT_EQ(reasoning, "One.\n\nTwo.");
  EXPECT_EQ(arguments, R"({"at": [1]})");
}

TEST_F(HarmonyDialects, messages_have_a_block_for_each_piece_in_its_place) {
  const std::vector<std::string> types{"thinking", "text", "thinking", "tool_use"};
  written_.ends(kAnswer, FinishReason::stop);
  MessagesWriter whole(written_.content, MessagesPlan{});
  const json::Value message = parsed(body_of(whole));
  EXPECT_EQ(types_of(message["content"]), types);
  EXPECT_EQ(message["content"][3]["input"], parsed(R"({"at":[1]})"));
  EXPECT_EQ(message["stop_reason"], "tool_use");
  written_.content.request.is_stream = true;
  written_.begin_again();
  MessagesWriter writer(written_.content, MessagesPlan{});
  json::Value blocks = json::Value::array();
  for (const NamedFrame& frame : named_frames(streamed(writer)))
    if (frame.event == "content_block_start") blocks.push_back(frame.data["content_block"]);
  EXPECT_EQ(types_of(blocks), types);
}

TEST_F(HarmonyDialects, responses_have_an_item_for_each_piece_in_its_place) {
  const std::vector<std::string> types{"reasoning", "message", "reasoning", "function_call"};
  const auto plan = [] { return ResponsePlan{parsed(R"({"tools": []})")}; };
  written_.ends(kAnswer, FinishReason::stop);
  ResponsesWriter whole(written_.content, written_.tokenizer, plan());
  const json::Value response = parsed(body_of(whole));
  EXPECT_EQ(types_of(response["output"]), types);
  EXPECT_EQ(response["output"][3]["arguments"], R"({"at": [1]})");
  written_.content.request.is_stream = true;
  written_.begin_again();
  ResponsesWriter writer(written_.content, written_.tokenizer, plan());
  json::Value items = json::Value::array();
  for (const NamedFrame& frame : named_frames(streamed(writer)))
    if (frame.event == "response.output_item.done") items.push_back(frame.data["item"]);
  EXPECT_EQ(types_of(items), types);
}

}  // namespace
}  // namespace baton
