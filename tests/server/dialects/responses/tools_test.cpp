/// Tools of the Responses dialect, and their calls (server/dialects/responses/tools.h).
#include "server/dialects/responses/tools.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/dialects/responses/dialect.h"
#include "server/dialects/responses/reading.h"

namespace baton {
namespace {

using testing::responses::refused;
using testing::responses::with;

TEST(ResponsesTools, leaves_out_tools_that_only_a_hosted_server_runs) {
  constexpr std::string_view kHosted =
      R"([{"type": "function", "name": "shell", "parameters": {"type": "object"}}, {"type": "web_search", "external_web_access": false},
      {"type": "image_generation"}, {"type": "file_search", "vector_store_ids": []}, {"type": "code_interpreter"}, {"type": "mcp"},
      {"type": "computer_use_preview"}, {"type": "tool_search"}, {"type": "something_new"},
      {"type": "shell", "environment": {"type": "container_auto"}}])";
  const ResponsesRequest request = with(R"("tools": )" + std::string(kHosted));
  EXPECT_EQ(request.chat["tools"].size(), 1u);
  EXPECT_EQ(request.unknown_fields.size(), 9u);
  EXPECT_EQ(request.unknown_fields.front(), "tool \"web_search\"") << "a line of the log says so";
  EXPECT_EQ(refused(R"("tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"})"), "tool_choice.type");
  EXPECT_EQ(refused(R"("tools": [{"type": "web_search"}], "tool_choice": "required")"), "tool_choice");
  EXPECT_FALSE(with(R"("tools": [{"type": "web_search"}], "tool_choice": "auto")").chat.contains("tools"));
  const ResponsesRequest allowed =
      with(R"("tools": [{"type": "web_search"}], "tool_choice": {"type": "allowed_tools", "mode": "auto",
      "tools": [{"type": "web_search"}]})");
  EXPECT_EQ(allowed.chat["tool_choice"], "none");
}

TEST(ResponsesTools, shows_tools_that_the_client_runs_as_functions) {
  const ResponsesRequest request = with(R"("tools": [
      {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [
        {"type": "function", "name": "find", "description": "Finds one.", "parameters": {"type": "object"}},
        {"type": "custom", "name": "note"}]},
      {"type": "custom", "name": "patch", "description": "d", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
      {"type": "local_shell"}, {"type": "shell"}, {"type": "apply_patch"},
      {"type": "tool_search", "execution": "client", "parameters": {"type": "object", "properties": {"goal": {"type": "string"}}}}],
      "tool_choice": {"type": "function", "name": "find"})");
  std::vector<std::string> names;
  for (const json::Value& tool : request.chat["tools"]) names.push_back(tool["function"]["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"crm__find", "crm__note", "patch", "local_shell", "shell", "apply_patch",
                                             "tool_search"}));
  EXPECT_EQ(request.chat["tools"][0]["function"]["description"], "Customers.\n\nFinds one.");
  EXPECT_EQ(
      json::dump(request.chat["tools"][2]["function"]),
      R"x({"name":"patch","strict":true,"description":"d","parameters":{"type":"object","properties":{"input":{"type":"string",)x"
      R"x("pattern":"^(?:a+)$"}},"required":["input"],"additionalProperties":false}})x");
  EXPECT_EQ(request.chat["tool_choice"]["function"]["name"], "crm__find");
  EXPECT_EQ(request.tools.keys[1], "tools[0].tools[1]");
  EXPECT_EQ(with(R"("tools": [{"type": "local_shell"}], "tool_choice": {"type": "local_shell"})")
                .chat["tool_choice"]["function"]["name"],
            "local_shell");
  EXPECT_EQ(with(R"("tools": [{"type": "custom", "name": "p"}], "tool_choice": {"type": "custom", "name": "p"})")
                .chat["tool_choice"]["function"]["name"],
            "p");
  EXPECT_EQ(refused(R"("tools": [{"type": "namespace", "name": "n"}])"), "tools[0].tools");
  EXPECT_EQ(refused(R"("tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}])"),
            "tools[0].tools[0].name");
  EXPECT_EQ(refused(R"("tools": [{"type": "custom", "name": "p", "format": {"type": "xml"}}])"), "tools[0].format.type");
}

TEST(ResponsesTools, takes_tools_that_the_conversation_has_brought) {
  const auto request = read_responses_request(parsed(R"({"tools": [{"type": "function", "name": "mail"}], "input": [
      {"type": "tool_search_output", "call_id": "c", "tools": [{"type": "function", "name": "mail"}, {"type": "function", "name": "more"}]},
      {"role": "user", "content": "go on"}]})"),
                                              json::Value::array());
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->chat["tools"].size(), 2u) << "one that is there already is not added";
}

TEST(ResponsesTools, of_a_namespace_have_names_of_both) {
  EXPECT_EQ(shown_tool_name("", "find"), "find");
  EXPECT_EQ(shown_tool_name("crm", "find"), "crm__find");
  EXPECT_EQ(shown_tool_name("mcp__crm__", "find"), "mcp__crm__find");
  EXPECT_EQ(shown_tool_name("crm.", "find"), "crm.find");
}

TEST(ResponsesTools, have_calls_without_arguments_where_these_are_cut) {
  const ResponseTool shell{ResponseTool::Kind::shell, "shell"}, custom{ResponseTool::Kind::custom, "patch"};
  json::Value item = new_call_item(&shell, "shell", "c");
  complete_call_item(&shell, R"({"commands": ["rm)", item);
  EXPECT_EQ(json::dump(item["action"]["commands"]), "[]") << "half a command is not run";
  item = new_call_item(&custom, "patch", "c");
  complete_call_item(&custom, R"({"input": "half a te)", item);
  EXPECT_EQ(item["input"], "half a te");
  item = new_call_item(nullptr, "f", "c");
  complete_call_item(nullptr, R"({"a": )", item);
  EXPECT_EQ(item["arguments"], R"({"a": )");
}

}  // namespace
}  // namespace baton
