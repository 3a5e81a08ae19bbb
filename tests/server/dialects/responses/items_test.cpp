/// Items of a conversation as messages (server/dialects/responses/items.h).
#include "server/dialects/responses/items.h"

#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/byte_model.h"

namespace baton {
namespace {

ItemMessages said(std::string_view input) {
  const auto items = read_input_items(parsed(input));
  EXPECT_TRUE(items) << (items ? "" : items.error().message);
  if (!items) return {};
  auto messages = messages_of_items(*items);
  EXPECT_TRUE(messages) << input << ": " << (messages ? "" : messages.error().message);
  return messages ? std::move(*messages) : ItemMessages{};
}
json::Value messages(std::string_view input) { return said(input).messages; }

std::string refused_items(std::string_view input) {
  const auto messages =
      read_input_items(parsed(input)).and_then([](const json::Value& items) { return messages_of_items(items); });
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
  const json::Value calls = messages(R"([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}])");
  EXPECT_FALSE(calls[0].contains("content"));
  EXPECT_EQ(messages(R"([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}])").size(), 2u);
}

TEST(ResponsesItems, show_the_summary_of_reasoning_without_text) {
  const json::Value thoughts = messages(R"([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
      {"role": "assistant", "content": "a"}])");
  EXPECT_EQ(thoughts[0]["reasoning_content"], "s");
}

TEST(ResponsesItems, are_refused_by_name) {
  EXPECT_EQ(refused_items(R"([{"type": "banana", "id": "x"}])"), "input[0].type");
  EXPECT_EQ(refused_items(R"([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])"),
            "input[0].content[0].type");
  EXPECT_EQ(refused_items(R"([{"role": "robot", "content": "x"}])"), "input[0].role");
  EXPECT_EQ(refused_items(R"([{"role": "user"}])"), "input[0].content");
  EXPECT_EQ(refused_items(R"([{"type": "function_call", "name": "f", "arguments": "{}"}])"), "input[0].call_id");
  EXPECT_EQ(refused_items(R"([{"type": "function_call_output", "call_id": "c"}])"), "input[0].output");
  EXPECT_FALSE(read_input_items(1));
  EXPECT_FALSE(read_input_items(parsed("[1]")));
}

/// A call in the history, and what the model reads of it.
std::string arguments_of(std::string_view call) {
  const json::Value messages = said("[" + std::string(call) + "]").messages;
  EXPECT_EQ(messages.size(), 1u) << call;
  const json::Value& function = messages[0]["tool_calls"][0]["function"];
  return function["name"].get<std::string>() + " " + function["arguments"].get<std::string>();
}

TEST(ResponsesItems, of_calls_say_what_the_model_has_written) {
  EXPECT_EQ(arguments_of(R"({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\": \"b"})"),
            "f {\"a\": \"b")
      << "cut";
  EXPECT_EQ(arguments_of(R"({"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}})"), R"(f {"a":1})");
  EXPECT_EQ(arguments_of(R"({"type": "function_call", "call_id": "c", "name": "f"})"), "f ");
  EXPECT_EQ(arguments_of(R"({"type": "function_call", "call_id": "c", "name": "find", "namespace": "crm", "arguments": "{}"})"),
            "crm__find {}");
  EXPECT_EQ(arguments_of(R"({"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "a \"b\""})"),
            R"(patch {"input":"a \"b\""})");
  EXPECT_EQ(
      arguments_of(R"({"type": "local_shell_call", "id": "l", "call_id": "c", "status": "completed", "action": {"type": "exec",
      "command": ["ls", "-l"], "env": {}, "timeout_ms": null, "working_directory": "/tmp"}})"),
      R"(local_shell {"command":["ls","-l"],"working_directory":"/tmp"})");
  EXPECT_EQ(arguments_of(R"({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"], "timeout_ms": 5}})"),
            R"(shell {"commands":["ls"],"timeout_ms":5})");
  EXPECT_EQ(
      arguments_of(R"({"type": "apply_patch_call", "call_id": "c", "status": "completed", "operation": {"type": "delete_file",
      "path": "a"}})"),
      R"(apply_patch {"type":"delete_file","path":"a"})");
  EXPECT_EQ(
      arguments_of(R"({"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "mail"}})"),
      R"(tool_search {"query":"mail"})");
}

TEST(ResponsesItems, of_results_are_what_tools_have_said) {
  const json::Value results = messages(R"([
      {"type": "custom_tool_call_output", "call_id": "a", "output": "done"},
      {"type": "local_shell_call_output", "id": "b", "output": "{\"stdout\": \"x\"}"},
      {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "x", "stderr": ""}]},
      {"type": "apply_patch_call_output", "call_id": "d", "status": "failed", "output": "no such file"},
      {"type": "function_call_output", "call_id": "e", "output": [{"type": "input_image", "image_url": "x"},
        {"type": "input_text", "text": "shot"}]}])");
  constexpr std::string_view kTexts[] = {"done", R"({"stdout": "x"})", R"([{"stdout":"x","stderr":""}])",
                                         "failed\nno such file"};
  for (std::size_t i = 0; i < std::size(kTexts); ++i) {
    EXPECT_EQ(results[i]["role"], "tool");
    EXPECT_EQ(results[i]["content"], kTexts[i]);
    EXPECT_EQ(results[i]["tool_call_id"], std::string(1, static_cast<char>('a' + i)));
  }
  EXPECT_EQ(results[4]["content"][0]["text"], "[image omitted: this model reads text only]");
}

TEST(ResponsesItems, that_say_nothing_to_this_model_are_left_out) {
  const ItemMessages found = said(R"([
      {"role": "user", "content": "a"}, {"type": "item_reference", "id": "x"}, {"id": "y"}, {"type": "compaction", "encrypted_content": "z"},
      {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "zz"},
      {"type": "web_search_call", "id": "w", "status": "completed", "action": {}}, {"type": "compaction_trigger"},
      {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []}, {"type": "image_generation_call", "id": "i", "result": "b"},
      {"role": "assistant", "content": null}, {"role": "user", "content": "b"}])");
  EXPECT_EQ(json::dump(found.messages),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":""},{"role":"user","content":"b"}])");
  EXPECT_EQ(found.left_out, (std::vector<std::string>{"item_reference", "item_reference", "compaction", "web_search_call",
                                                      "compaction_trigger", "mcp_list_tools", "image_generation_call"}));
}

TEST(ResponsesItems, of_hosted_tools_say_what_their_texts_do) {
  EXPECT_EQ(
      json::dump(messages(
          R"([{"type": "mcp_call", "id": "m", "server_label": "s", "name": "look", "arguments": "{}", "output": "seen"},
      {"type": "code_interpreter_call", "id": "k", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}, {"type": "image"}]}])")),
      R"([{"role":"assistant","tool_calls":[{"id":"m","type":"function","function":{"name":"look","arguments":"{}"}}]},)"
      R"({"role":"tool","content":"seen","tool_call_id":"m"},)"
      R"({"role":"assistant","tool_calls":[{"id":"k","type":"function","function":{"name":"code_interpreter","arguments":"{\"code\":\"1+1\"}"}}]},)"
      R"({"role":"tool","content":"2","tool_call_id":"k"}])");
}

TEST(ResponsesItems, bring_tools_that_a_search_has_found) {
  const ItemMessages found = said(R"([{"role": "user", "content": "q"},
      {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "q"}},
      {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [{"type": "function", "name": "mail"}]},
      {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "more"}]}])");
  ASSERT_EQ(found.tools.size(), 2u);
  EXPECT_EQ(found.messages[2]["content"], "Found: mail");
  EXPECT_EQ(found.messages.size(), 3u);
}

TEST(ResponsesItems, keep_a_session_with_an_image_alive) {
  constexpr std::string_view kImage = R"({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]})";
  const json::Value kept = messages("[" + std::string(kImage) + R"(, {"role": "user", "content": "and now?"}])");
  EXPECT_EQ(kept[0]["content"], "[image omitted: this model reads text only]");
  EXPECT_EQ(refused_items("[" + std::string(kImage) + "]"), "input[0].content[0].type");
  EXPECT_EQ(refused_items(R"([{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}])"),
            "input[0].content[0].type");
}

TEST(ResponsesItems, that_are_referred_to_are_found) {
  const auto find = [](std::string_view id) {
    return id == "m2" ? parsed(R"({"id": "m2", "type": "message", "role": "user", "content": "b"})") : json::Value();
  };
  const json::Value items = with_referred_items(
      parsed(R"([{"id": "m1", "type": "message", "role": "user", "content": "a"}, {"type": "item_reference", "id": "m1"},
      {"type": "item_reference", "id": "m2"}, {"type": "item_reference", "id": "m3"}])"),
      find);
  const auto read = messages_of_items(items);
  ASSERT_TRUE(read);
  EXPECT_EQ(json::dump(read->messages), R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])");
}

TEST(ResponsesItems, have_errors_by_their_place_in_the_input) {
  const json::Value items = parsed(R"([{"id": "m1", "type": "message", "role": "user", "content": "a"},
      {"id": "m2", "type": "message", "role": "robot", "content": "b"}])");
  EXPECT_EQ(messages_of_items(items, 1).error().param, "input[0].role");
}

TEST(ResponsesItems, have_ids_that_tell_their_kind) {
  EXPECT_TRUE(new_item_id("reasoning").starts_with("rs_"));
  EXPECT_TRUE(new_item_id("function_call").starts_with("fc_"));
  EXPECT_NE(new_item_id("message"), new_item_id("message"));
}

}  // namespace
}  // namespace baton
