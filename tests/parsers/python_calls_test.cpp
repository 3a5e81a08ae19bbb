/// Python's literals as models write them, and what of them is mended.
#include "parsers/python_calls.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/json.h"
#include "parsers/golden_message.h"

namespace baton::parsers {
namespace {

using Texts = std::vector<std::pair<std::string_view, std::string_view>>;

TEST(PythonCalls, join_neighbouring_strings) {
  for (const auto& [written, meant] : Texts{
           {R"('a' "b")", R"("ab")"},
           {"(\n  'a'\n  'b'\n)", R"(["ab"])"},
           {R"('a''b')", R"("ab")"},
           {R"(['a' 'b', 'c'])", R"(["ab", "c"])"},
           {R"({'a' 'b': 'c' 'd', 'e': 1})", R"({"ab": "cd", "e": 1})"},
           {R"("""a"""'b')", R"("ab")"},
           {R"('' 'b' '')", R"("b")"},
           {R"('a' r'\d' "\n")", R"("a\\d\n")"},
       }) {
    const std::string text = fmt::format("[add(x={}, y=1)]", written),
                      shown = fmt::format("|0 add@0 {{\"x\": {}, \"y\": 1}}", meant);
    expect_golden_twice("pythonic", text, shown);
  }
}

TEST(PythonCalls, read_prefixes_of_strings) {
  for (const auto& [written, meant] : Texts{
           {R"(r'C:\Users\d')", R"("C:\\Users\\d")"},
           {R"(R"\"")", R"("\\\"")"},
           {R"(r'''\u12 '\n' ''')", R"("\\u12 '\\n' ")"},
           {R"(f'{x} \n')", R"("{x} \n")"},
           {R"(b'a')", R"("a")"},
           {R"(rb'\x')", R"("\\x")"},
           {R"({r'\d': u'b'})", R"({"\\d": "b"})"},
       }) {
    const std::string text = fmt::format("[add(x={})]", written), shown = fmt::format("|0 add@0 {{\"x\": {}}}", meant);
    expect_golden_twice("pythonic", text, shown);
  }
}

TEST(PythonCalls, leave_a_backslash_that_begins_no_escape) {
  for (const auto& [written, meant] : Texts{
           {R"('C:\Users')", R"("C:\\Users")"},
           {R"('\users \x \xg \x4 \u12 \U0001F6')", R"("\\users \\x \\xg \\x4 \\u12 \\U0001F6")"},
           {R"('\d+\.\w')", R"("\\d+\\.\\w")"},
           {R"('\x4\n\x41\u00e9')", R"("\\x4\nA\u00e9")"},
           {R"('\ud83d\x')", R"("\ufffd\\x")"},
           {R"('\N{DASH}')", R"("\\N{DASH}")"},
       }) {
    const std::string text = fmt::format("[add(x={})]", written), shown = fmt::format("|0 add@0 {{\"x\": {}}}", meant);
    expect_golden_twice("pythonic", text, shown);
    EXPECT_TRUE(json::parse(meant, "it")) << meant;
  }
}

TEST(PythonCalls, forgive_commas_in_front_of_closing_brackets) {
  expect_golden_twice("pythonic", "[add(a=[1, 2,], b={'x': 1,},),]", R"(|0 add@0 {"a": [1, 2], "b": {"x": 1}})");
  expect_golden_twice("pythonic", "<|python_start|>[add(a=(1,)),  ]<|python_end|>", R"(|0 add@0 {"a": [1]})");
  expect_golden_twice("pythonic", "[add(), add(), ]", "|0 add@0 {}|1 add@1 {}");
  expect_golden_twice("pythonic", "[]", "|[]");
  expect_golden_twice("pythonic", "[,]", "|[,]");
}

TEST(PythonCalls, that_cannot_be_mended_are_content_as_a_whole_in_one_piece) {
  for (const std::string_view text : {"[add(a=1 2)]", "[add(a=one)]", "[add(a=1, b{", "[add(a={1: 2})]", "[add(a='x' frog)]",
                                      "[add(a={rx: 1})]", "[add(a='open)]", "[add(a='x'", "[add(a=[1, 'x' "}) {
    const std::string content = fmt::format("|{}", text);
    expect_golden({"pythonic", "", false, text, content, true});
  }
  expect_golden({"pythonic", "", false, "[add(a='x' frog)]", R"(|0 add@0 {"a": "x~|frog)])"});
  expect_golden({"pythonic", "", false, "[add(a=1), add(b=one)]", "|0 add@0 {\"a\": 1}|, add(b=one)]", true});
}

TEST(PythonCalls, give_xml_its_lists) {
  for (const auto& [text, json] : Texts{{"['a', \"b\"]", R"(["a", "b"])"},
                                        {" (1, 2)\n", "[1, 2]"},
                                        {"{'a': [None, 'C:\\Users']}", R"({"a": [null, "C:\\Users"]})"},
                                        {"[]", "[]"},
                                        {"'a'", ""},
                                        {"['a'", ""},
                                        {"['a'] b", ""},
                                        {"", ""}})
    EXPECT_EQ(json_of_python(text).value_or(""), json) << text;
}

}  // namespace
}  // namespace baton::parsers
