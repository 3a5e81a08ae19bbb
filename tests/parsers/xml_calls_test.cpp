/// Values of parameters in XML, by the kinds that a tool allows, and what of them is mended.
#include "parsers/xml_calls.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parsers/golden_message.h"

namespace baton::parsers {
namespace {

struct Typed {
  std::string_view text;
  unsigned kinds;
  std::string_view json;
};

TEST(XmlCalls, give_values_the_kinds_that_the_tool_allows) {
  for (const auto& [text, kinds, json] : std::vector<Typed>{
           {R"(["C:\Users", "\d+"])", kAllowsArray, R"(["C:\\Users", "\\d+"])"},
           {"[1, 2,\n]", kAllowsArray, "[1, 2\n]"},
           {"['a', 'it\\'s']", kAllowsArray, R"(["a", "it's"])"},
           {"[True, None]", kAllowsArray, "[true, null]"},
           {"('a', 'b')", kAllowsArray, R"(["a", "b"])"},
           {R"({"re": "\w",})", kAllowsObject, R"({"re": "\\w"})"},
           {"{'a': r'\\d'}", kAllowsObject, R"({"a": "\\d"})"},
           {" True ", kAllowsBoolean, "true"},
           {"None", kAllowsNull | kAllowsString, "null"},
           {"12345678901234567890", kAllowsNumber, "12345678901234567890"},
           {"['a'", kAllowsArray, R"("['a'")"},
           {"['a']", kAllowsString | kAllowsNumber, R"("['a']")"},
           {"soon", kAllowsArray, R"("soon")"},
           {"[oops]", kAllowsArray, R"("[oops]")"},
           {"\"x\"", kAllowsNumber, R"("\"x\"")"},
           {"", kAllowsNull, R"("")"},
       })
    EXPECT_EQ(typed_value(text, kinds), json) << text;
}

TEST(XmlCalls, have_their_values_mended) {
  for (const auto& [name, value, json] : std::vector<std::tuple<std::string_view, std::string_view, std::string_view>>{
           {"tags", R"(["C:\Users", "a",])", R"(["C:\\Users", "a"])"},
           {"tags", "['a', 'b']", R"(["a", "b"])"},
           {"at", "{'x': [1,],}", R"({"x": [1]})"},
           {"city", R"(C:\Users "\d+")", R"("C:\\Users \"\\d+\"")"},
       }) {
    const std::string text = fmt::format(
        "<tool_call>\n<function=get_weather>\n<parameter={}>\n{}\n</parameter>\n</function>\n</tool_call>", name, value);
    expect_golden_twice("qwen3_coder", text, fmt::format("|0 get_weather@0 {{\"{}\": {}}}", name, json));
  }
}

TEST(XmlCalls, that_the_model_has_not_ended_are_content_in_one_piece) {
  for (const std::string_view text :
       {"<tool_call><function=get_weather><parameter=city>Par", "<tool_call><function=get_weather><parameter=ci",
        "<tool_call><function=get_weather><parameter=days>3", "<tool_call><function=get_wea"}) {
    const std::string content = fmt::format("|{}", text);
    expect_golden({"qwen3_coder", "", false, text, content, true});
  }
  // A tag that the end has left out is forgiven.
  expect_golden_twice("qwen3_coder", "<tool_call><function=get_weather><parameter=days>3</parameter>\n",
                      "|0 get_weather@0 {\"days\": 3}");
  expect_golden_twice("qwen3_coder", "<tool_call><function=add>oops</function>", "|0 add@0 {}|oops</function>");
}

}  // namespace
}  // namespace baton::parsers
