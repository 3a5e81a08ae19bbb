/// Custom tools as functions with one argument (server/request/tool_fields.h).

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/request/tool_fields.h"

namespace baton {
namespace {

/// The text of arguments that come in pieces of so many bytes.
std::string text_of(std::string_view arguments, std::size_t n_bytes) {
  CustomInput input;
  std::string text;
  for (; !arguments.empty(); arguments.remove_prefix(std::min(n_bytes, arguments.size())))
    text += input.take(arguments.substr(0, n_bytes));
  return text + input.end();
}

TEST(CustomTools, are_functions_of_one_text) {
  const auto function = custom_function(parsed(R"({"name": "patch", "description": "d"})"), "tools[0].custom");
  ASSERT_TRUE(function);
  EXPECT_EQ(json::dump(*function),
            R"({"name":"patch","description":"d","parameters":{"type":"object","properties":{"input":{"type":"string"}},)"
            R"("required":["input"],"additionalProperties":false}})");
  // Chat completions have the grammar one level deeper than responses.
  for (const std::string_view format : {R"({"type": "grammar", "syntax": "regex", "definition": "a|b"})",
                                        R"({"type": "grammar", "grammar": {"syntax": "regex", "definition": "a|b"}})"}) {
    const auto bound = custom_function(parsed(R"({"name": "p", "format": )" + std::string(format) + "}"), "k");
    ASSERT_TRUE(bound) << format;
    EXPECT_EQ((*bound)["parameters"]["properties"]["input"]["pattern"], "^(?:a|b)$");
    EXPECT_EQ((*bound)["strict"], true);
  }
  const auto lark = custom_function(
      parsed(R"({"name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}})"), "k");
  ASSERT_TRUE(lark);
  EXPECT_NE((*lark)["description"].get<std::string>().find("start: \"a\""), std::string::npos);
  EXPECT_EQ((*lark)["parameters"]["properties"]["input"]["x-grammar"], "start: \"a\"");
  EXPECT_EQ((*lark)["strict"], true);
  for (const std::string_view definition : {R"(start: \"(\" start \")\" | \"a\")", R"(%declare A\nstart: A)"}) {
    const auto shown =
        custom_function(parsed(R"({"name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": ")" +
                               std::string(definition) + "\"}}"),
                        "k");
    ASSERT_TRUE(shown) << definition;
    EXPECT_NE((*shown)["description"].get<std::string>().find("this grammar"), std::string::npos) << definition;
    EXPECT_FALSE(shown->contains("strict")) << definition;
    EXPECT_FALSE((*shown)["parameters"]["properties"]["input"].contains("x-grammar")) << definition;
  }
  constexpr std::string_view kBad[][2] = {
      {R"({})", "k.name"},
      {R"({"name": "p", "format": "text"})", "k.format"},
      {R"({"name": "p", "format": {"type": "xml"}})", "k.format.type"},
      {R"({"name": "p", "format": {"type": "grammar", "syntax": "bnf", "definition": ""}})", "k.format.syntax"},
      {R"({"name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "start: (a"}})", "k.format.definition"},
      {R"({"name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "begin: \"a\""}})",
       "k.format.definition"}};
  for (const auto& [tool, param] : kBad) EXPECT_EQ(custom_function(parsed(tool), "k").error().param, param) << tool;
}

TEST(CustomTools, give_their_text_in_pieces_of_any_size) {
  constexpr std::string_view kCases[][2] = {
      {R"({"input": "a \"b\" \\ \/ \n\t"})", "a \"b\" \\ / \n\t"},
      {R"({ "input" : "\u00e9\ud83d\ude00x" } )", "é😀x"},
      {R"({"input": "\ud83d lone"})", "\xEF\xBF\xBD lone"},
      {R"({"input": "\ud83d\n\ud83d\ud83d\ude00\ude00\ud83d"})", "\xEF\xBF\xBD\n\xEF\xBF\xBD😀\xEF\xBF\xBD\xEF\xBF\xBD"},
      {R"({"input": "\ud83d\u0061)", "\xEF\xBF\xBD\x61"},
      {R"({"input": "\ud83d)", "\xEF\xBF\xBD"},
      {R"({"input": "cut)", "cut"},
      {R"({"input": ""})", ""},
      {R"({"inp)", R"({"inp)"},
      {R"({"text": "a"})", R"({"text": "a"})"},
      {R"({"input": 5})", R"({"input": 5})"},
      {"so be it", "so be it"},
      {"", ""},
  };
  for (const auto& [arguments, text] : kCases)
    for (const std::size_t n_bytes : {std::size_t{1}, std::size_t{3}, std::size_t{1000}})
      EXPECT_EQ(text_of(arguments, n_bytes), text) << arguments << " in pieces of " << n_bytes;
  EXPECT_EQ(text_of(std::string(100000, ' ') + R"({"input": "a"})", 1).size(), 100014u) << "spaces without end are no front";
}

TEST(CustomTools, have_arguments_that_give_the_text_back) {
  for (const std::string_view text : {"", "a\n\"b\"\\", "é😀", "{\"input\": 1}"})
    EXPECT_EQ(text_of(custom_arguments(json::Value(std::string(text))), 2), text);
  EXPECT_EQ(custom_arguments(parsed("[1]")), R"({"input":"[1]"})");
}

TEST(CustomTools, stand_beside_functions_in_a_request) {
  const auto fields = parse_tool_fields(parsed(R"({"tools": [{"type": "custom", "custom": {"name": "patch"}},
      {"type": "function", "function": {"name": "look"}}], "tool_choice": {"type": "custom", "custom": {"name": "patch"}}})"));
  ASSERT_TRUE(fields) << fields.error().message;
  EXPECT_EQ(fields->custom, std::set<std::string>{"patch"});
  EXPECT_EQ(fields->definitions[0]["type"], "function");
  EXPECT_EQ(fields->definitions[0]["function"]["name"], "patch");
  EXPECT_EQ(fields->choice.name, "patch");
  EXPECT_EQ(parse_tool_fields(parsed(R"({"tools": [{"type": "custom", "custom": {"name": "patch"}}], "tool_choice":
      {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "custom", "custom": {"name": "patch"}}]}}})"))
                ->allowed,
            std::set<std::string>{"patch"});
}

}  // namespace
}  // namespace baton
