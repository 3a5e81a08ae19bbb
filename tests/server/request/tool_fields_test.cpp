/// Tools, and the choice among them (server/request/tool_fields.h).
#include "server/request/tool_fields.h"

#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace baton {
namespace {

using Kind = parsers::ToolChoice::Kind;

constexpr std::string_view kTwo =
    R"("tools": [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters":
        {"type": "object", "properties": {"city": {"type": "string"}}}, "strict": true}}, {"function": {"name": "mcp__time.now-2"}}])";

Result<ToolFields> parse_tools(std::string_view fields) {
  const auto body = json::parse("{" + std::string(fields) + "}", "the body");
  EXPECT_TRUE(body) << fields;
  return parse_tool_fields(*body);
}

ToolFields good(std::string_view fields) {
  auto parsed = parse_tools(fields);
  EXPECT_TRUE(parsed) << fields << ": " << (parsed ? "" : parsed.error().message);
  return parsed ? std::move(*parsed) : ToolFields();
}

TEST(ToolFields, are_none_without_tools) {
  for (const char* fields : {"", R"("tools": null)", R"("tools": [])", R"("tools": [], "tool_choice": "auto")",
                             R"("tool_choice": "none", "parallel_tool_calls": true)"}) {
    const ToolFields none = good(fields);
    EXPECT_FALSE(none.tools) << fields;
    EXPECT_TRUE(none.definitions.is_null()) << fields;
    EXPECT_EQ(none.choice.kind, Kind::none) << fields;
  }
}

TEST(ToolFields, keep_definitions_for_templates_and_read_what_parsers_need) {
  const ToolFields two = good(kTwo);
  ASSERT_TRUE(two.tools);
  ASSERT_EQ(two.tools->size(), 2u);
  EXPECT_EQ((*two.tools)[0].name, "weather");
  EXPECT_TRUE((*two.tools)[0].is_strict);
  EXPECT_EQ(json::dump((*two.tools)[0].parameters), R"({"type":"object","properties":{"city":{"type":"string"}}})");
  EXPECT_EQ((*two.tools)[1].name, "mcp__time.now-2");
  EXPECT_TRUE((*two.tools)[1].parameters.is_null());
  EXPECT_FALSE((*two.tools)[1].is_strict);
  EXPECT_EQ(two.choice.kind, Kind::automatic);
  EXPECT_TRUE(two.is_parallel);
  EXPECT_EQ(json::dump(two.definitions[1]), R"({"type":"function","function":{"name":"mcp__time.now-2"}})");
  EXPECT_EQ(json::dump(two.definitions[0]),
            R"({"type":"function","function":{"name":"weather","description":"of a city","parameters":{"type":"object",)"
            R"("properties":{"city":{"type":"string"}}},"strict":true}})");
}

TEST(ToolFields, read_the_choice_in_all_its_forms) {
  const auto choice = [](std::string_view value) {
    return good(std::string(kTwo) + R"(, "tool_choice": )" + std::string(value));
  };
  EXPECT_EQ(choice("null").choice.kind, Kind::automatic);
  EXPECT_EQ(choice(R"("none")").choice.kind, Kind::none);
  EXPECT_EQ(choice(R"("auto")").choice.kind, Kind::automatic);
  EXPECT_EQ(choice(R"("required")").choice.kind, Kind::required);
  const ToolFields named = choice(R"({"type": "function", "function": {"name": "weather"}})");
  EXPECT_EQ(named.choice.kind, Kind::named);
  EXPECT_EQ(named.choice.name, "weather");
  const ToolFields allowed = choice(R"({"type": "allowed_tools", "allowed_tools": {"mode": "required",
      "tools": [{"type": "function", "function": {"name": "weather"}}]}})");
  EXPECT_EQ(allowed.choice.kind, Kind::required);
  EXPECT_EQ(allowed.allowed, (std::set<std::string>{"weather"}));
  EXPECT_EQ(allowed.tools->size(), 2u) << "the model sees all of them, so that the prompt stays the same";
  EXPECT_FALSE(good(std::string(kTwo) + R"(, "parallel_tool_calls": false)").is_parallel);
}

struct BadTools {
  std::string_view fields;
  std::string_view param;
  std::string_view message;  ///< empty: any
};

TEST(ToolFields, name_what_is_wrong) {
  const std::string long_name(129, 'a');
  const std::string with_long_name = R"("tools": [{"function": {"name": ")" + long_name + R"("}}])";
  const BadTools cases[] = {
      {R"("tools": {})", "tools", "'tools' must be a list of tools, not an object"},
      {R"("tools": ["weather"])", "tools[0]", "'tools[0]' must be an object, not a string"},
      {R"("tools": [{}])", "tools[0].function", "'tools[0].function' is missing"},
      {R"("tools": [{"type": "web_search_preview"}])", "tools[0].type",
       "'tools[0].type' is \"web_search_preview\"; this server supports tools of the types \"function\" and \"custom\""},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type", ""},
      {R"("tools": [{"type": "custom"}])", "tools[0].custom", ""},
      {R"("tools": [{"type": "custom", "custom": {"name": "a b"}}])", "tools[0].custom.name", ""},
      {R"("tools": [{"type": "custom", "custom": {"name": "a", "format": {"type": "xml"}}}])", "tools[0].custom.format.type",
       ""},
      {R"("tools": [{"type": "function", "function": {}}])", "tools[0].function.name", "'tools[0].function.name' is missing"},
      {R"("tools": [{"function": {"name": ""}}])", "tools[0].function.name", ""},
      {R"("tools": [{"function": {"name": "two words"}}])", "tools[0].function.name",
       "'tools[0].function.name' must have 1 to 128 letters, digits, '_', '-' and '.', not \"two words\""},
      {with_long_name, "tools[0].function.name", ""},
      {R"("tools": [{"function": {"name": 5}}])", "tools[0].function.name", ""},
      {R"("tools": [{"function": {"name": "a", "parameters": []}}])", "tools[0].function.parameters",
       "'tools[0].function.parameters' must be an object, not a list"},
      {R"("tools": [{"function": {"name": "a", "strict": "yes"}}])", "tools[0].function.strict", ""},
      {R"("tools": [{"function": {"name": "a"}}, {"function": {"name": "a"}}])", "tools[1].function.name",
       "'tools' has two functions called \"a\""},
      {R"("tool_choice": "required")", "tool_choice", "'tool_choice' is \"required\", and there are no 'tools'"},
      {R"("tool_choice": {"type": "function", "function": {"name": "a"}})", "tool_choice", ""},
      {R"("tools": [{"function": {"name": "a"}}], "tool_choice": "any")", "tool_choice", ""},
      {R"("tools": [{"function": {"name": "a"}}], "tool_choice": 1)", "tool_choice", ""},
      {R"("tools": [{"function": {"name": "a"}}], "tool_choice": {"type": "function", "function": {"name": "b"}})",
       "tool_choice.function.name", "'tool_choice.function.name' names \"b\", which is none of 'tools'"},
      {R"("tools": [{"function": {"name": "a"}}], "tool_choice": {"type": "file_search"})", "tool_choice.type", ""},
      {R"("tools": [{"function": {"name": "a"}}], "tool_choice": {"type": "allowed_tools"})", "tool_choice.allowed_tools", ""},
      {R"("tools": [{"function": {"name": "a"}}], "tool_choice": {"type": "allowed_tools", "allowed_tools":
          {"mode": "none", "tools": []}})",
       "tool_choice.allowed_tools.mode", ""},
      {R"("tools": [{"function": {"name": "a"}}], "tool_choice": {"type": "allowed_tools", "allowed_tools":
          {"mode": "auto", "tools": []}})",
       "tool_choice.allowed_tools.tools", ""},
      {R"("tools": [{"function": {"name": "a"}}], "parallel_tool_calls": "no")", "parallel_tool_calls", ""},
  };
  for (const BadTools& bad : cases) {
    const auto parsed = parse_tools(bad.fields);
    ASSERT_FALSE(parsed) << bad.fields;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_request) << bad.fields;
    EXPECT_EQ(parsed.error().param, bad.param) << bad.fields << ": " << parsed.error().message;
    if (!bad.message.empty()) {
      EXPECT_EQ(parsed.error().message, bad.message);
    }
  }
}

TEST(ToolFields, are_bounded_in_number_and_bytes) {
  const auto with_tools = [](std::size_t n_tools, std::size_t n_bytes) {
    json::Value body;
    body["tools"] = json::Value::array();
    for (std::size_t i = 0; i < n_tools; ++i) {
      json::Value& function = body["tools"].emplace_back()["function"];
      function["name"] = "f" + std::to_string(i);
      if (n_bytes > 0) function["description"] = std::string(n_bytes, 'a');
    }
    return parse_tool_fields(body);
  };
  EXPECT_TRUE(with_tools(kMaxTools, 0));
  EXPECT_EQ(with_tools(kMaxTools + 1, 0).error().message, "'tools' has 1025 tools; this server accepts 1024");
  EXPECT_TRUE(with_tools(1, kMaxToolBytes - 100));
  EXPECT_EQ(with_tools(1, kMaxToolBytes).error().param, "tools");
}

TEST(ToolFields, get_a_type_in_front_whatever_else_they_have) {
  const ToolFields one = good(R"("tools": [{"x": 1, "type": null, "function": {"name": "f"}, "y": [2]}])");
  EXPECT_EQ(json::dump(one.definitions), R"([{"type":"function","x":1,"function":{"name":"f"},"y":[2]}])");
  const ToolFields typed = good(R"("tools": [{"x": 1, "type": "function", "function": {"name": "f"}}])");
  EXPECT_EQ(json::dump(typed.definitions), R"([{"x":1,"type":"function","function":{"name":"f"}}])");
  // A member more is one step more, so this ends.
  std::string many = R"("tools": [{"function": {"name": "f"})";
  for (int i = 0; i < 70'000; ++i) many += ",\"m" + std::to_string(i) + "\":0";
  EXPECT_EQ(good(many + "}]").definitions[0].size(), 70'002u);
}

TEST(ToolFields, allow_as_many_names_as_there_may_be_tools) {
  const auto allow = [](std::size_t n) {
    std::string names;
    for (std::size_t i = 0; i < n; ++i) names += std::string(i > 0 ? "," : "") + R"({"function": {"name": "weather"}})";
    return parse_tools(std::string(kTwo) +
                       R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [)" + names +
                       "]}}");
  };
  ASSERT_TRUE(allow(kMaxTools));
  EXPECT_EQ(allow(kMaxTools)->allowed, (std::set<std::string>{"weather"}));
  const auto refused = allow(kMaxTools + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "tool_choice.allowed_tools.tools");
  EXPECT_EQ(refused.error().message, "'tool_choice.allowed_tools.tools' has 1025 tools; this server accepts 1024");
}

TEST(ToolFields, are_refused_without_a_conversation) {
  const auto refused = [](std::string_view fields) {
    const auto body = json::parse("{" + std::string(fields) + "}", "the body");
    const auto done = refuse_tool_fields(*body, "/talk");
    return done ? std::string() : done.error().message;
  };
  EXPECT_EQ(refused(R"("tools": [{}])"), "'tools' needs a conversation: use /talk");
  EXPECT_EQ(refused(R"("tool_choice": "required")"), "'tool_choice' needs a conversation with 'tools': use /talk");
  EXPECT_EQ(refused(R"("tools": [], "tool_choice": "auto", "parallel_tool_calls": false)"), "");
}

}  // namespace
}  // namespace baton
