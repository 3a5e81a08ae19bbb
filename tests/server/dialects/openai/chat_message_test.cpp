/// The JSON of messages and deltas (server/dialects/openai/frames.h).
#include "server/dialects/openai/frames.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

using parsers::MessagePiece;
using Kind = MessagePiece::Kind;

std::string message_of(const std::vector<MessagePiece>& pieces) {
  std::string out;
  write_chat_message(pieces, nullptr, out).finish();
  return out;
}
std::string delta_of(const MessagePiece& piece) {
  std::string out;
  write_chat_delta(piece, /*is_custom=*/false, out).finish();
  return out;
}

TEST(ChatMessage, joins_what_belongs_together) {
  EXPECT_EQ(message_of({{.text = "a"},
                        {Kind::call, 0, "f", "id0"},
                        {Kind::arguments, 0, "{\"a\":", {}},
                        {.text = "b\n"},
                        {Kind::call, 1, "g", "id1"},
                        {Kind::arguments, 1, "{}", {}},
                        {Kind::arguments, 0, "1}", {}}}),
            R"({"role":"assistant","content":"ab\n","refusal":null,"tool_calls":[)"
            R"({"id":"id0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},)"
            R"({"id":"id1","type":"function","function":{"name":"g","arguments":"{}"}}]})");
}

TEST(ChatMessage, of_many_calls_takes_as_many_steps_as_pieces) {
  std::vector<MessagePiece> pieces;
  std::string expected = R"({"role":"assistant","content":null,"refusal":null,"tool_calls":[)";
  constexpr int kCalls = 50'000;  // times as many pieces would not end
  for (int i = 0; i < kCalls; ++i) {
    pieces.push_back({Kind::call, i, "f", "id"});
    pieces.push_back({Kind::arguments, i, std::to_string(i), {}});
    expected += (i > 0 ? "," : "") + std::string(R"({"id":"id","type":"function","function":{"name":"f","arguments":")") +
                std::to_string(i) + "\"}}";
  }
  EXPECT_EQ(message_of(pieces), expected + "]}");
}

TEST(ChatMessage, has_null_content_only_beside_something_else) {
  EXPECT_EQ(message_of({}), R"({"role":"assistant","content":"","refusal":null})");
  EXPECT_EQ(message_of({{Kind::reasoning, 0, "r", {}}}),
            R"({"role":"assistant","content":null,"refusal":null,"reasoning_content":"r","reasoning":"r"})");
  EXPECT_EQ(message_of({{Kind::call, 0, "f", "id"}}),
            R"({"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"id","type":"function",)"
            R"("function":{"name":"f","arguments":""}}]})");
}

TEST(ChatMessage, comes_in_deltas) {
  EXPECT_EQ(delta_of({.text = "\"a\""}), R"({"content":"\"a\""})");
  EXPECT_EQ(delta_of({Kind::reasoning, 0, "r", {}}), R"({"reasoning_content":"r","reasoning":"r"})");
  EXPECT_EQ(delta_of({Kind::call, 2, "f", "id"}),
            R"({"tool_calls":[{"index":2,"id":"id","type":"function","function":{"name":"f","arguments":""}}]})");
  EXPECT_EQ(delta_of({Kind::arguments, 2, "{\"a", {}}), R"({"tool_calls":[{"index":2,"function":{"arguments":"{\"a"}}]})");
}

TEST(ChatMessage, of_long_texts_is_written_in_steps) {
  const std::string text(100'000, 'x');
  const std::vector<MessagePiece> pieces{
      {Kind::reasoning, 0, text, {}}, {.text = text}, {Kind::call, 0, "f", "id"}, {Kind::arguments, 0, text, {}}};
  std::string whole, out;
  int n_steps = 0;
  for (Resumable steps = write_chat_message(pieces, nullptr, out); steps.resume(); out.clear()) {
    whole += out;
    EXPECT_LT(out.size(), 40'000u);
    ++n_steps;
  }
  EXPECT_GT(n_steps, 20);
  EXPECT_EQ(whole + out, message_of(pieces));
  EXPECT_EQ(parsed(whole + out)["tool_calls"][0]["function"]["arguments"], text);
}

}  // namespace
}  // namespace baton
