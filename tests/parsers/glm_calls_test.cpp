/// Calls of GLM: values by the kinds of the tool, and calls that are broken off.
#include "parsers/glm_calls.h"

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "parsers/golden_message.h"

namespace baton::parsers {
namespace {

TEST(GlmCalls, give_values_the_kinds_that_the_tool_allows) {
  for (const Golden& golden : std::vector<Golden>{
           {"glm45", "", false,
            "<tool_call>get_weather\n<arg_key>tags</arg_key>\n<arg_value>['a', 'b']</arg_value>\n<arg_key>exact</arg_key>\n"
            "<arg_value>True</arg_value>\n<arg_key>units</arg_key>\n<arg_value>12</arg_value>\n</tool_call>",
            "|0 get_weather@0 {\"tags\": [\"a\", \"b\"], \"exact\": true, \"units\": \"12\"}"},
           {"glm45", "", false, "<tool_call>add<arg_key>a</arg_key><arg_value>soon</arg_value></tool_call>",
            "|0 add@0 {\"a\": \"soon\"}"},
       })
    expect_golden(golden);
}

// What was complete stays a call; the rest is content.
TEST(GlmCalls, end_where_a_tag_is_none_of_theirs) {
  for (const Golden& golden : std::vector<Golden>{
           {"glm45", "", false, "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value>oops", "|0 add@0 {\"a\": 1}|oops"},
           {"glm45", "", false, "<tool_call>add<arg_key>a</arg_key>1</tool_call>", "|0 add@0 {}|1</tool_call>"},
           {"glm45", "", false, "<tool_call>add<arg_key></arg_key>", "|0 add@0 {}|</arg_key>"},
           {"glm45", "", false, "<tool_call>add<arg_key>a<b", "|0 add@0 {}|<b"},
           {"glm45", "", false, "<tool_call>add</tool_cal", "|0 add@0 {~"},
       })
    expect_golden(golden);
}

TEST(GlmCalls, that_are_cut_off_have_the_text_that_came) {
  for (const Golden& golden : std::vector<Golden>{
           {"glm45", "", false, "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Par</arg_v",
            "|0 get_weather@0 {\"city\": \"Par</arg_v~"},
           {"glm45", "", false, "<tool_call>add<arg_key>a</arg_key><arg_value>3", "|0 add@0 {\"a\": ~"},
           {"glm45", "", false, "<tool_call>get_wea", "|<tool_call>get_wea"},
       })
    expect_golden(golden);
}

}  // namespace
}  // namespace baton::parsers
