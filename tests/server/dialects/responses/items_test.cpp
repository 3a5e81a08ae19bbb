/// Items of a conversation as messages (server/dialects/responses/items.h).
#include "server/dialects/responses/items.h"

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

json::Value messages(std::string_view input) {
  const auto items = read_input_items(parsed(input));
  EXPECT_TRUE(items) << (items ? "" : items.error().message);
  if (!items) return {};
  auto messages = messages_of_items(*items);
  EXPECT_TRUE(messages) << (messages ? "" : messages.error().message);
  return messages ? std::move(*messages) : json::Value();
}

std::string refused(std::string_view input) {
  const auto messages = read_input_items(parsed(input)).and_then(messages_of_items);
  EXPECT_FALSE(messages) << input;
  return messages ? std::string() : messages.error().param;
}

TEST(ResponsesItems, of_a_text_are_one_message_of_the_user) {
  const auto items = read_input_items("hi");
  ASSERT_TRUE(items);
  ASSERT_EQ(items->size(), 1u);
  EXPECT_TRUE((*items)[0]["id"].get<std::string>().starts_with("msg_"));
  EXPECT_EQ(json::dump(messages("\"hi\"")), R"([{"role":"user","content":"hi"}])");
}

TEST(ResponsesItems, have_a_type_and_an_id) {
  const auto items = read_input_items(parsed(
      R"([{"role": "user", "content": "a"}, {"type": "function_call", "id": "mine", "call_id": "c", "name": "f", "arguments": "{}"}])"));
  ASSERT_TRUE(items);
  EXPECT_EQ((*items)[0]["type"], "message");
  EXPECT_EQ((*items)[1]["id"], "mine");
}

TEST(ResponsesItems, of_one_turn_of_the_assistant_are_one_message) {
  EXPECT_EQ(json::dump(messages(R"([
      {"role": "developer", "content": "d"},
      {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c", "annotations": []}]},
      {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"at\":1}"},
      {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c1", "output": "seen"},
      {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "no"}]}])")),
            R"([{"role":"developer","content":"d"},)"
            R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
            R"({"role":"assistant","content":"c","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\":1}"}},)"
            R"({"id":"c2","type":"function","function":{"name":"look","arguments":"{}"}}]},)"
            R"({"role":"tool","content":"seen","tool_call_id":"c1"},{"role":"tool","content":"no","tool_call_id":"c2"}])");
}

TEST(ResponsesItems, of_calls_alone_have_no_content) {
  const json::Value said = messages(R"([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}])");
  EXPECT_FALSE(said[0].contains("content"));
  EXPECT_EQ(messages(R"([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}])").size(), 2u);
}

TEST(ResponsesItems, show_the_summary_of_reasoning_without_text) {
  const json::Value said = messages(R"([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
      {"role": "assistant", "content": "a"}])");
  EXPECT_EQ(said[0]["reasoning_content"], "s");
}

TEST(ResponsesItems, are_refused_by_name) {
  EXPECT_EQ(refused(R"([{"type": "item_reference", "id": "x"}])"), "input[0].type");
  EXPECT_EQ(refused(R"([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])"),
            "input[0].content[0].type");
  EXPECT_EQ(refused(R"([{"role": "robot", "content": "x"}])"), "input[0].role");
  EXPECT_EQ(refused(R"([{"role": "user"}])"), "input[0].content");
  EXPECT_EQ(refused(R"([{"type": "function_call", "name": "f", "arguments": "{}"}])"), "input[0].call_id");
  EXPECT_EQ(refused(R"([{"type": "function_call_output", "call_id": "c"}])"), "input[0].output");
  EXPECT_FALSE(read_input_items(1));
  EXPECT_FALSE(read_input_items(parsed("[1]")));
}

TEST(ResponsesItems, have_ids_that_tell_their_kind) {
  EXPECT_TRUE(new_item_id("reasoning").starts_with("rs_"));
  EXPECT_TRUE(new_item_id("function_call").starts_with("fc_"));
  EXPECT_NE(new_item_id("message"), new_item_id("message"));
}

}  // namespace
}  // namespace baton
