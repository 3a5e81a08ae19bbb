/// Blocks of the Anthropic dialect as messages (server/dialects/messages/blocks.h).
#include "server/dialects/messages/blocks.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/dialects/messages/dialect.h"
#include "server/dialects/messages/reading.h"

namespace baton {
namespace {

using testing::messages::refusal_of_message;
using testing::messages::says;

TEST(MessagesBlocks, leaves_out_blocks_that_say_nothing_to_this_model) {
  const MessagesRequest request = says(R"([{"role": "user", "content": "q"},
    {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "hm", "signature": "s"},
      {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
      {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result", "url": "u", "title": "t"}]},
      {"type": "code_execution_tool_result", "tool_use_id": "s2", "content": {}}, {"type": "mcp_tool_use", "id": "m", "name": "n", "input": {}},
      {"type": "mcp_tool_result", "tool_use_id": "m", "content": []}, {"type": "something_new"},
      {"type": "text", "text": "found", "citations": []}, {"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference", "tool_name": "mail"},
      {"type": "image", "source": {}}, {"type": "text", "text": "seen"}, {"type": "search_result", "title": "T", "source": "S",
      "content": [{"type": "text", "text": "C"}]}]}, {"type": "tool_addition", "tool": {}}, {"type": "container_upload", "file_id": "f"}]}])");
  const json::Value& messages = request.chat["messages"];
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[1]["content"], "found");
  EXPECT_EQ(messages[1]["reasoning_content"], "hm");
  EXPECT_EQ(messages[1]["tool_calls"].size(), 1u);
  EXPECT_EQ(json::dump(messages[2]["content"]),
            R"([{"type":"text","text":"Found: mail"},{"type":"text","text":"[image omitted: this model reads text only]"},)"
            R"({"type":"text","text":"seen"},{"type":"text","text":"T\nS\nC"}])");
  EXPECT_EQ(request.unknown_fields.size(), 9u) << "each in a line of the log";
}

TEST(MessagesBlocks, begins_again_where_nothing_is_left_of_a_last_answer) {
  const MessagesRequest request = says(R"([{"role": "user", "content": "q"},
    {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}]}])");
  EXPECT_EQ(request.chat["messages"].size(), 1u);
  EXPECT_FALSE(request.chat.contains("continue_final_message"));
}

TEST(MessagesBlocks, takes_whatever_a_model_has_written_as_input) {
  for (const std::string_view input : {R"("{\"a\": ")", "[1]", "null", "5"}) {
    const MessagesRequest request = says(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": [
      {"type": "tool_use", "id": "t1", "name": "look", "input": )" +
                                         std::string(input) + R"(}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "seen"}]}])");
    EXPECT_TRUE(request.chat["messages"][1]["tool_calls"][0]["function"]["arguments"].is_string()) << input;
  }
}

TEST(MessagesBlocks, keeps_a_session_with_an_image_alive) {
  constexpr std::string_view kImage =
      R"({"role": "user", "content": [{"type": "image", "source": {}}, {"type": "text", "text": "see"}]})";
  const MessagesRequest request =
      says("[" + std::string(kImage) + R"(, {"role": "assistant", "content": "no"}, {"role": "user", "content": "so"}])");
  EXPECT_EQ(request.chat["messages"][0]["content"][0]["text"], "[image omitted: this model reads text only]");
  EXPECT_EQ(refusal_of_message(kImage).param, "messages[0].content[0].type");
  const MessagesRequest text =
      says(R"([{"role": "user", "content": [{"type": "document", "title": "T", "source": {"type": "text",
    "media_type": "text/plain", "data": "D"}}, {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "E"}]}}]}])");
  EXPECT_EQ(json::dump(text.chat["messages"][0]["content"]), R"([{"type":"text","text":"T\nD"},{"type":"text","text":"E"}])");
}

}  // namespace
}  // namespace baton
