/// Answers of each format: the calls, and that no cut of the text changes them.
#include "parsers/message_parser.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "parsers/golden_message.h"
#include "parsers/message_format.h"

namespace baton::parsers {
namespace {

TEST(MessageParser, reads_the_calls_of_hermes_and_qwen) {
  for (const Golden& golden : std::vector<Golden>{
           {"hermes", "", false, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
            "|0 get_weather@0 {\"city\": \"Paris\"}"},
           {"hermes", "", false,
            "Let me look.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2, {\"c\": "
            "null}]}}\n</tool_call>\n"
            "<tool_call>\n{\"arguments\": {}, \"name\": \"other\"}\n</tool_call>",
            "|Let me look.|0 add@0 {\"a\": 1, \"b\": [2, {\"c\": null}]}|1 other@1 {}"},
           // arguments as a string, absent, null; other keys; an end without its marker; an id
           {"hermes", "", false, R"(<tool_call>{"name":"add","arguments":"{\"a\": 1}"}</tool_call>)", R"(|0 add@0 {"a": 1})"},
           {"hermes", "", false, R"(<tool_call>{"name":"add","arguments":""}</tool_call>)", "|0 add@0 {}"},
           {"hermes", "", false, R"(<tool_call>{"type":"function","name":"add"}</tool_call> done)", "|0 add@0 {}| done"},
           {"hermes", "", false, R"(<tool_call>{"id":"c1","name":"add","arguments":null}</tool_call>)", "|0 add#c1@0 {}"},
           {"hermes", "", false, R"(<tool_call>{"name":"add","parameters":{"a":1},"x":1.5e3})", R"(|0 add@0 {"a":1})"},
           // a raw line end in a string, which JSON does not have
           {"hermes", "", false, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":\"x\ny\"}}</tool_call>",
            R"(|0 add@0 {"a":"x\ny"})"},
       })
    expect_golden(golden);
}

TEST(MessageParser, returns_as_content_what_is_not_a_call) {
  for (const Golden& golden : std::vector<Golden>{
           {"hermes", "", false, "a < b and <tool_cal", "|a < b and <tool_cal"},
           {"hermes", "", false, "<tool_call>not json</tool_call>", "|<tool_call>not json</tool_call>"},
           {"hermes", "", false, "<tool_call>{\"name\": \"add\"", "|<tool_call>{\"name\": \"add\""},
           {"hermes", "", false, "<tool_call>{\"arguments\": {}}</tool_call>", "|<tool_call>{\"arguments\": {}}</tool_call>"},
           {"hermes", "", false, "<tool_call>{\"name\": 1}", "|<tool_call>{\"name\": 1}"},
           {"hermes", "", false, "<tool_call>{\"name\": \"add\", \"arguments\": [1]}",
            "|<tool_call>{\"name\": \"add\", \"arguments\": [1]}"},
           {"hermes", "", false, "<tool_call><tool_call>{\"name\":\"add\"}</tool_call>", "|<tool_call>|0 add@0 {}"},
           // the fault is after the begin of the arguments: what was sent of them stays
           {"hermes", "", false, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\": oops}}", "|0 add@0 {\"a\": ~|oops}}"},
           {"hermes", "", false, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\": 1", "|0 add@0 {\"a\": 1~"},
           {"hermes", "", false, " \n", "| \n"},
           {"hermes", "", false, "text \n ", "|text \n "},
           {"granite", "", false, "<|tool_call|>[]", "|<|tool_call|>[]"},
           {"mistral", "", false, "[TOOL_CALLS] two words[ARGS]{}", "|[TOOL_CALLS] two words[ARGS]{}"},
           {"json", "", false, "{\"name\": \"Bob\", \"age\": 3}", "|{\"name\": \"Bob\", \"age\": 3}"},
           {"json", "", false, "[1, 2]", "|[1, 2]"},
           {"pythonic", "", false, "[1, 2]", "|[1, 2]"},
           {"pythonic", "", false, "[unknown(a=1)]", "|[unknown(a=1)]"},
           {"pythonic", "", false, "[add(1, 2)]", "|[add(1, 2)]"},
           {"llama3_json", "", false, "<|python_tag|>print(1)", "|<|python_tag|>print(1)"},
           {"qwen3_coder", "", false, "<tool_call>\n<function=>", "|<tool_call>\n<function=>"},
       })
    expect_golden(golden);
}

TEST(MessageParser, reads_qwen3_coders_xml_and_gives_values_their_types) {
  for (const Golden& golden : std::vector<Golden>{
           {"qwen3_coder", "", false,
            "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew "
            "\"York\"\n\n</parameter>\n<parameter=days>\n3\n"
            "</parameter>\n<parameter=exact>\nTrue\n</parameter>\n</function>\n</tool_call>",
            "|I look.|0 get_weather@0 {\"city\": \"New \\\"York\\\"\\n\", \"days\": 3, \"exact\": true}"},
           {"qwen3_xml", "", false,
            "<tool_call><function=get_weather><parameter=at>{\"x\": [1]}</parameter><parameter=tags>null</parameter>"
            "<parameter=units>null</parameter><parameter=days>soon</parameter></function></tool_call>"
            "\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
            "|0 get_weather@0 {\"at\": {\"x\": [1]}, \"tags\": null, \"units\": null, \"days\": \"soon\"}|1 now@1 {}"},
           // tags that models leave out
           {"qwen3_coder", "", false,
            "<function=get_weather>\n<parameter=city>\nRome\n<parameter=days>\n1\n</function>\n</tool_call>",
            "|0 get_weather@0 {\"city\": \"Rome\", \"days\": 1}"},
           {"qwen3_coder", "", false,
            "<tool_call><function=get_weather><parameter=city>a </b> <parameter=x></parameter></tool_call>",
            "|0 get_weather@0 {\"city\": \"a </b> <parameter=x>\"}"},
           {"qwen3_coder", "", false, "<tool_call><function=a></function><function=b></function></tool_call>",
            "|0 a@0 {}|1 b@1 {}"},
           {"qwen3_coder", "", false, "<tool_call><function=add>oops</function>", "|0 add@0 {}|oops</function>"},
           {"qwen3_coder", "", false, "<tool_call><function=add><parameter=c>cut off</par", "|0 add@0 {\"c\": \"cut off</par~"},
       })
    expect_golden(golden);
}

TEST(MessageParser, reads_seed_oss_reasoning_and_xml_in_tags_of_its_own) {
  for (const Golden& golden : std::vector<Golden>{
           {"seed_oss", "seed_oss", false,
            "<seed:think>I look.<seed:cot_budget_reflect>10 of 20</seed:cot_budget_reflect></seed:think>\n<seed:tool_call>\n"
            "<function=get_weather>\n<parameter=city>New York</parameter>\n<parameter=days>3</parameter>\n</function>\n"
            "</seed:tool_call>",
            "|think I look.<seed:cot_budget_reflect>10 of 20</seed:cot_budget_reflect>|0 get_weather@0 {\"city\": \"New "
            "York\", "
            "\"days\": 3}"},
           {"seed_oss", "", false,
            "<seed:tool_call><function=a></function></seed:tool_call>\n<seed:tool_call><function=b></seed:tool_call>",
            "|0 a@0 {}|1 b@1 {}"},
           {"seed_oss", "", false, "<tool_call>x</tool_call>", "|<tool_call>x</tool_call>"},
           {"seed_oss", "", false, "<seed:tool_call><function=a></function></tool_call>", "|0 a@0 {}|</tool_call>"},
       })
    expect_golden(golden);
}

TEST(MessageParser, reads_glms_keys_and_values_with_and_without_line_ends) {
  for (const Golden& golden : std::vector<Golden>{
           {"glm45", "qwen3", false,
            "\n<think>I look.</think>\nA moment.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>New "
            "York</arg_value>\n"
            "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
            "|think I look.|A moment.|0 get_weather@0 {\"city\": \"New York\", \"days\": 3}"},
           {"glm47", "", false,
            "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a <b> "
            "\"c\"\n</arg_value><arg_key>at</arg_key><arg_value>{\"x\": "
            "1}</arg_value></tool_call><tool_call>get_user_info</tool_call>",
            "|0 get_weather@0 {\"city\": \"a <b> \\\"c\\\"\\n\", \"at\": {\"x\": 1}}|1 get_user_info@1 {}"},
           {"glm45", "", false, "<tool_call>get_user_info\n</tool_call> done", "|0 get_user_info@0 {}| done"},
           // a closing tag that is left out at the end, and values that are cut off
           {"glm45", "", false, "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n", "|0 add@0 {\"a\": 1}"},
           // what is not a call
           {"glm45", "", false, "<tool_call>{\"name\": \"add\"}</tool_call>", "|<tool_call>{\"name\": \"add\"}</tool_call>"},
           {"glm45", "", false, "<tool_call>two words\n</tool_call>", "|<tool_call>two words\n</tool_call>"},
           {"glm45", "", false, "<tool_call>\n</tool_call>", "|<tool_call>\n</tool_call>"},
       })
    expect_golden(golden);
}

TEST(MessageParser, reads_llamas_json_and_generic_json) {
  for (const Golden& golden : std::vector<Golden>{
           {"llama3_json", "", false, R"({"name": "get_weather", "parameters": {"city": "San Francisco, CA"}})",
            R"(|0 get_weather@0 {"city": "San Francisco, CA"})"},
           {"llama3_json", "", false,
            R"(<|python_tag|>{"type": "function", "name": "brave", "parameters": {"q": 1}}; {"name": "add", "parameters": {}})",
            R"(|0 brave@0 {"q": 1}|1 add@1 {})"},
           {"llama3_json", "", false, R"({"name": "add", "parameters": {}}; and more)", "|0 add@0 {}|; and more"},
           {"llama3_json", "", false, R"(It is {"name": "add", "parameters": {}})",
            R"(|It is {"name": "add", "parameters": {}})"},
           {"json", "", false,
            " [{\"name\": \"add\", \"arguments\": {\"a\": -0.5}},\n{\"name\": \"add\", \"parameters\": {}}]\n",
            R"(|0 add@0 {"a": -0.5}|1 add@1 {})"},
           {"json", "", false, "{\"name\": \"add\"}\n{\"name\": \"add\"}", "|0 add@0 {}|1 add@1 {}"},
           {"phi4_mini_json", "", false, R"(functools[{"name": "add", "arguments": {"a": 1}}])", R"(|0 add@0 {"a": 1})"},
       })
    expect_golden(golden);
}

TEST(MessageParser, reads_lists_of_mistral_and_granite) {
  for (const Golden& golden : std::vector<Golden>{
           {"mistral", "", false,
            R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris, FR"}, "id": "VvvODy9mT"}])",
            R"(|0 get_weather@0 {"city": "Paris, FR"})"},
           {"mistral", "", false, R"([TOOL_CALLS][{"id": "VvvODy9mT", "name": "add", "arguments": {}}, {"name": "b"}])",
            "|0 add#VvvODy9mT@0 {}|1 b@1 {}"},
           {"mistral", "", false, R"(Sure.[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{"a": [2]})",
            R"(|Sure.|0 add@0 {"a": 1}|1 add#abcdefghi@1 {"a": [2]})"},
           {"mistral", "", false, R"([TOOL_CALLS]add{"a": 1})", R"(|0 add@0 {"a": 1})"},
           {"granite", "", false, R"(<|tool_call|>[{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {}}])",
            R"(|0 add@0 {"a": 1}|1 add@1 {})"},
           {"cohere_command3", "cohere_command3", false,
            "<|START_THINKING|>I will add.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
            "\"add\", "
            "\"parameters\": {\"a\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"add\", \"parameters\": "
            "{}}\n]<|END_ACTION|>",
            "|think I will add.|0 add@0 {\"a\": 1}|1 add@1 {}"},
           {"granite", "", false, "<tool_call> [\n{\"arguments\": {\"a\": 1}, \"name\": \"add\"}\n]", R"(|0 add@0 {"a": 1})"},
       })
    expect_golden(golden);
}

TEST(MessageParser, reads_pythonic_calls_as_json) {
  for (const Golden& golden : std::vector<Golden>{
           {"pythonic", "", false, R"([get_weather(city="San Francisco", days=3), add(a=.5, b=-1e3)])",
            R"(|0 get_weather@0 {"city": "San Francisco", "days": 3}|1 add@1 {"a": 0.5, "b": -1e3})"},
           {"pythonic", "", false, "[add()]", "|0 add@0 {}"},
           {"llama4_pythonic", "", false, R"(<|python_start|>[f(a = True, b=None,)]<|python_end|>)",
            R"(|0 f@0 {"a": true, "b": null})"},
           {"lfm2", "", false, R"(<|tool_call_start|>[f(a = True, b=None), add()]<|tool_call_end|>Checking.)",
            R"(|0 f@0 {"a": true, "b": null}|1 add@1 {}|Checking.)"},
           {"lfm2", "", false, "[add()]", "|[add()]"},
           {"pythonic", "", false, R"([add(a=[1, (2, 3), {}], b={'x': {"y": []}, 'z': "it's"})])",
            R"(|0 add@0 {"a": [1, [2, 3], {}], "b": {"x": {"y": []}, "z": "it's"}})"},
           {"pythonic", "", false, "[add(a='\\'\\x41\\u00e9\\U0001F600\\d\\n', b=\"\"\"say \"hi\"\nnow\"\"\", c='')]",
            "|0 add@0 {\"a\": \"'A\\u00e9\\ud83d\\ude00\\\\d\\n\", \"b\": \"say \\\"hi\\\"\\nnow\", \"c\": \"\"}"},
           {"pythonic", "", false, "[add(a=1 2)]", "|0 add@0 {\"a\": 1~|2)]"},
           {"pythonic", "", false, "[add(a=one)]", "|0 add@0 {\"a\": ~|one)]"},
           {"pythonic", "", false, "[add(a=1, b{", "|0 add@0 {\"a\": 1~|b{"},
           {"pythonic", "", false, "[add(a={1: 2})]", "|0 add@0 {\"a\": {~|1: 2})]"},
       })
    expect_golden(golden);
}

TEST(MessageParser, reads_the_answers_that_the_models_documentation_shows) {
  for (
      const Golden& golden : std::vector<Golden>{
          // Meta's prompt formats of Llama 3.2 and 3.3; its built-in tools are code, which is content here
          {"pythonic", "", false, "[get_user_info(user_id=7890, special='black')]",
           R"(|0 get_user_info@0 {"user_id": 7890, "special": "black"})"},
          {"pythonic", "", false,
           "[get_weather(city='San Francisco', metric='celsius'), get_weather(city='Seattle', metric='celsius')]",
           R"(|0 get_weather@0 {"city": "San Francisco", "metric": "celsius"}|1 get_weather@1 {"city": "Seattle", "metric": "celsius"})"},
          {"llama3_json", "", false, R"(<|python_tag|>brave_search.call(query="current weather in Menlo Park"))",
           R"(|<|python_tag|>brave_search.call(query="current weather in Menlo Park"))"},
          // Qwen's function calling guide
          {"hermes", "", false,
           "<tool_call>\n{\"name\": \"get_current_temperature\", \"arguments\": {\"location\": \"San Francisco, CA, USA\"}}\n"
           "</tool_call>\n<tool_call>\n{\"name\": \"get_temperature_date\", \"arguments\": {\"location\": \"San Francisco, CA, "
           "USA\", \"date\": \"2024-10-01\"}}\n</tool_call>",
           R"(|0 get_current_temperature@0 {"location": "San Francisco, CA, USA"})"
           R"(|1 get_temperature_date@1 {"location": "San Francisco, CA, USA", "date": "2024-10-01"})"},
          // the example in the template of Qwen3-Coder
          {"qwen3_coder", "", false,
           "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
           "<parameter=example_parameter_2>\nvalue_2\n</parameter>\n</function>\n</tool_call>",
           R"(|0 example_function_name@0 {"example_parameter_1": "value_1", "example_parameter_2": "value_2"})"},
      })
    expect_golden(golden);
}

TEST(MessageParser, a_zero_byte_ends_no_json) {
  using namespace std::string_view_literals;
  expect_golden({"hermes", "", false, "<tool_call>{\"name\":\"add\",\"arguments\":\"{}\0\"}"sv,
                 "|<tool_call>{\"name\":\"add\",\"arguments\":\"{}\0\"}"sv});
  expect_golden({"qwen3_coder", "", false, "<function=get_weather><parameter=days>3\0</parameter></function>"sv,
                 R"(|0 get_weather@0 {"days": "3\u0000"})"});
}

TEST(MessageParser, splits_reasoning_from_the_answer) {
  for (const Golden& golden : std::vector<Golden>{
           {"", "qwen3", false, "<think>\nWell, \n1 < 2.\n</think>\n\nYes.", "|think Well, \n1 < 2.|Yes."},
           {"", "qwen3", true, "Well.\n</think>\n\nYes </think>.", "|think Well.|Yes </think>."},
           {"", "qwen3", true, "<think>\nWell.</thinking></think>Yes.", "|think Well.</thinking>|Yes."},
           {"", "qwen3", false, "<think>\n\n</think>\n\nYes.", "|Yes."},
           {"", "qwen3", false, "Yes, <think> is a tag.", "|Yes, <think> is a tag."},
           {"", "qwen3", false, " <thing>", "| <thing>"},
           {"", "qwen3", true, "cut off</th", "|think cut off</th"},
           {"", "deepseek_r1", true, "Hm.\n</think>\nYes.", "|think Hm.|Yes."},
           {"", "mistral", false, "[THINK]Hm.[/THINK]Yes.", "|think Hm.|Yes."},
           {"", "granite", false, "Here is my thought process:\nHm.\n\nHere is my response:\n\nYes.", "|think Hm.|Yes."},
           {"", "granite", false, "<think>Hm.</think><response>Yes </res.</response>\n", "|think Hm.|Yes </res."},
           {"", "cohere_command3", false, "<|START_RESPONSE|>Yes <|END.<|END_RESPONSE|>", "|Yes <|END."},
           {"", "cohere_command3", false, "<|START_ACTION|>", "|<|START_ACTION|>"},
           {"hermes", "qwen3", false,
            "<think>I use <tool_call>.</think>\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
            "|think I use <tool_call>.|0 add@0 {\"a\": 1}"},
           {"json", "qwen3", false, "<think>Hm.</think>\n{\"name\": \"add\"}", "|think Hm.|0 add@0 {}"},
       })
    expect_golden(golden);
}

TEST(MessageParser, returns_at_once_what_is_certain) {
  const auto parser = MessageFormat::make("hermes", "", "")->parser({.tools = tools()});
  std::vector<MessagePiece> pieces;
  parser->take("Hi <tool", pieces);
  EXPECT_EQ(shown(pieces), "|Hi");
  parser->take("_call>{\"name\": \"add\", \"arguments\": ", pieces);
  EXPECT_EQ(shown(pieces), "|Hi");
  parser->take("{\"a\"", pieces);
  EXPECT_EQ(shown(pieces), "|Hi|0 add@0 {\"a\"~");
  parser->take(": \"x", pieces);
  EXPECT_EQ(shown(pieces), "|Hi|0 add@0 {\"a\"~@0 : \"x~");
}

TEST(MessageParser, without_tools_a_call_is_content) {
  const auto format = MessageFormat::make("hermes", "qwen3", "");
  EXPECT_EQ(shown(testing::parsed(format->parser({}), {"<think>a</think><tool_call>{\"name\":\"add\"}</tool_call>"})),
            "|think a|<tool_call>{\"name\":\"add\"}</tool_call>");
}

TEST(MessageParser, bounds_depth_and_held_text) {
  for (const std::string_view name : MessageFormat::tool_parsers()) {
    const auto format = MessageFormat::make(name, "", "");
    for (const std::string& begin :
         {std::string("<tool_call>{\"name\":\"add\",\"arguments\":"), std::string("[TOOL_CALLS]add[ARGS]"),
          std::string("{\"name\":\"add\",\"arguments\":"), std::string("[add(a=")}) {
      const std::string deep = begin + (begin.starts_with("[add") ? "" : "{\"a\":") + std::string(100'000, '[');
      std::size_t n_bytes = 0;
      for (const MessagePiece& piece : testing::parsed(format->parser({.tools = tools()}), {deep}))
        n_bytes += piece.text.size();
      EXPECT_GT(n_bytes, 99'000u) << name;
    }
  }
  // Arguments before the name are held, up to a limit; then they are content.
  const std::string text = "<tool_call>{\"arguments\": {\"a\": \"" + std::string(2'000'000, 'x');
  const auto parser = MessageFormat::make("hermes", "", "")->parser({.tools = tools()});
  std::vector<MessagePiece> pieces;
  parser->take(text, pieces);
  ASSERT_EQ(testing::merged(pieces).size(), 1u);
  EXPECT_EQ(testing::merged(pieces)[0].text, text);
}

}  // namespace
}  // namespace baton::parsers
