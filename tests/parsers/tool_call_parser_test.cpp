/// Answers that something else than the model has ended, and answers where calls are demanded.
#include "parsers/tool_call_parser.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parsers/golden_message.h"

namespace baton::parsers {
namespace {

struct Cut {
  std::string_view format;
  std::string_view text;
  std::string_view shown;
};

void expect_cut(const Cut& cut, bool demands_calls) {
  for (const bool is_whole : {false, true})
    expect_golden({.tool_parser = cut.format,
                   .reasoning_parser = "",
                   .begins_in_reasoning = false,
                   .text = cut.text,
                   .shown = cut.shown,
                   .is_whole = is_whole,
                   .end = TextEnd::cut,
                   .demands_calls = demands_calls});
}

TEST(ToolCallParser, gives_out_nothing_of_a_call_that_is_cut_before_its_arguments) {
  for (const Cut& cut : std::vector<Cut>{
           {"hermes", "Sure. <tool_call>", "|Sure."},
           {"hermes", "Sure.\n<tool_call>\n{\"name\": \"get_wea", "|Sure."},
           {"hermes", "<tool_call>\n{\"name\": \"add\", \"argu", ""},
           {"hermes", "<tool_call>\n{\"arguments\": {\"a\": 1}, \"name\": \"ad", ""},
           {"hermes", "Sure. <tool_c", "|Sure."},
           {"hermes", "a < b <t", "|a < b <t"},
           {"hermes", "<tool_call>{\"name\": \"add\", \"arguments\": {}}\n</tool_", "|0 add@0 {}"},
           {"mistral", "[TOOL_CALLS]get_wea", ""},
           {"mistral", "[TOOL_CALLS]add[AR", ""},
           {"mistral", "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"na", "|0 add@0 {\"a\": 1}"},
           {"granite", "<|tool_call|>[{\"na", ""},
           {"phi4_mini_json", "A func", "|A func"},
           {"phi4_mini_json", "A functools[", "|A"},
           {"qwen3_coder", "<tool_call>\n<function=get_wea", ""},
           {"qwen3_coder", "<tool_call>\n<fun", ""},
           {"cohere_command3", "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_na", ""},
           // without a marker a name of a tool says that it is a call
           {"llama3_json", "{\"name\": \"get_wea", ""},
           {"llama3_json", "{\"name\": \"add\", \"param", ""},
           {"llama3_json", "{\"name\": \"Bob", "|{\"name\": \"Bob"},
           {"llama3_json", "{\"na", "|{\"na"},
           {"llama3_json", "{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"a", "|0 add@0 {}"},
           {"pythonic", "[get_wea", ""},
           {"pythonic", "[add(", ""},
           {"pythonic", "[add(a", ""},
           {"pythonic", "[1", "|[1"},
           {"pythonic", "[add(a=1), ad", "|0 add@0 {\"a\": 1}"},
           {"json", "[{\"name\": \"add", ""},
       })
    expect_cut(cut, /*demands_calls=*/false);
}

TEST(ToolCallParser, gives_out_arguments_that_are_cut_as_far_as_they_have_come) {
  for (const Cut& cut : std::vector<Cut>{
           {"hermes", "Sure. <tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"C:\\", "|Sure.|0 add@0 {\"a\": \"C:~"},
           {"hermes", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": [1, ", "|0 add@0 {\"a\": [1~"},
           {"hermes", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}", "|0 add@0 {\"a\": 1}"},
           {"mistral", "[TOOL_CALLS]add[ARGS]{\"a\"", "|0 add@0 {\"a\"~"},
           {"pythonic", "[add(a='x', b=[1", "|0 add@0 {\"a\": \"x\", \"b\": [~"},
           {"qwen3_coder", "<function=get_weather><parameter=city>Par</para", "|0 get_weather@0 {\"city\": \"Par</para~"},
           {"qwen3_coder", "<function=get_weather><parameter=city>Paris</parameter>\n",
            "|0 get_weather@0 {\"city\": \"Paris\"~"},
       })
    for (const bool demands_calls : {false, true})
      if (!demands_calls || !cut.text.starts_with("Sure")) expect_cut(cut, demands_calls);
}

TEST(ToolCallParser, gives_out_calls_alone_where_they_are_demanded) {
  for (const Cut& cut : std::vector<Cut>{
           {"hermes", "<tool_", ""},
           {"hermes", "<", ""},
           {"hermes", "<tool_call>\n{\"name\": \"get_wea", ""},
           {"hermes", "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>\n<to", "|0 add@0 {}"},
           {"mistral", "[TOOL_CALLS]", ""},
           {"mistral", "[TOOL_CALLS] two words[ARGS]{}", ""},
           {"llama3_json", "{\"na", ""},
           {"json", "[{", ""},
           {"pythonic", "[", ""},
           {"qwen3_coder", "<tool_call>\n<function=add>\n</function>\n</tool", "|0 add@0 {}"},
           {"hermes", "text alone", ""},
       }) {
    expect_cut(cut, /*demands_calls=*/true);
    expect_golden({.tool_parser = cut.format,
                   .reasoning_parser = "",
                   .begins_in_reasoning = false,
                   .text = cut.text,
                   .shown = cut.shown,
                   .demands_calls = true});
  }
}

}  // namespace
}  // namespace baton::parsers
