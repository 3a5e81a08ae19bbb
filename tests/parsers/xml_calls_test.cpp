/// Calls in XML: values that are mended, and calls that are not ended.
#include "parsers/xml_calls.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parsers/golden_message.h"

namespace baton::parsers {
namespace {

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
