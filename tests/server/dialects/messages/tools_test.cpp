/// Tools of the Anthropic dialect as functions (server/dialects/messages/dialect.h).

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/dialects/messages/dialect.h"
#include "server/dialects/messages/reading.h"

namespace baton {
namespace {

using testing::messages::with;

TEST(MessagesTools, shows_typed_tools_that_the_client_runs_and_leaves_out_the_others) {
  const MessagesRequest request = with(R"("tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
      {"type": "bash_20250124", "name": "bash"}, {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
      {"type": "memory_20250818", "name": "memory"}, {"type": "code_execution_20250825", "name": "code_execution"},
      {"type": "computer_20250124", "name": "computer", "display_width_px": 1, "display_height_px": 1},
      {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}, {"type": "mcp_toolset", "mcp_server_name": "s"},
      {"name": "look", "input_schema": {"type": "object"}, "defer_loading": true, "type": "custom"}])");
  std::vector<std::string> names;
  for (const json::Value& tool : request.chat["tools"]) names.push_back(tool["function"]["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"bash", "str_replace_based_edit_tool", "memory", "look"}));
  EXPECT_TRUE(request.chat["tools"][0]["function"]["parameters"]["properties"].contains("command"));
  EXPECT_EQ(request.tool_keys, (std::vector<std::string>{"tools[1]", "tools[2]", "tools[3]", "tools[8]"}));
  EXPECT_EQ(request.unknown_fields.size(), 5u);
  EXPECT_EQ(request.unknown_fields.front(), "tool \"web_search_20250305\"");
  EXPECT_FALSE(with(R"("tools": [{"type": "web_search_20250305", "name": "web_search"}])").chat.contains("tools"));
}

TEST(MessagesTools, translates_tools_and_choices) {
  const MessagesRequest request = with(
      R"("tools": [{"name": "look", "description": "d", "input_schema": {"type": "object"}, "strict": true}],
      "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": true})");
  EXPECT_EQ(
      json::dump(request.chat["tools"]),
      R"([{"type":"function","function":{"name":"look","description":"d","parameters":{"type":"object"},"strict":true}}])");
  EXPECT_EQ(json::dump(request.chat["tool_choice"]), R"({"type":"function","function":{"name":"look"}})");
  EXPECT_EQ(request.chat["parallel_tool_calls"], false);
  EXPECT_EQ(with(R"("tool_choice": {"type": "any"})").chat["tool_choice"], "required");
  EXPECT_EQ(with(R"("tool_choice": {"type": "auto"})").chat["tool_choice"], "auto");
  EXPECT_EQ(with(R"("tool_choice": {"type": "none"})").chat["tool_choice"], "none");
}

}  // namespace
}  // namespace baton
