/// Calls of DeepSeek and Kimi: heads, arguments, tags that are missing, and calls that are broken off.
#include "parsers/section_calls.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "parsers/call_writer.h"
#include "parsers/golden_message.h"

namespace baton::parsers {
namespace {

/// `text` with DeepSeek's tags in place of short ones.
std::string deepseek(std::string_view text) {
  std::string out(text);
  for (const auto& [name, tag] :
       {std::pair("[calls]", "<\uFF5Ctool\u2581calls\u2581begin\uFF5C>"),
        std::pair("[/calls]", "<\uFF5Ctool\u2581calls\u2581end\uFF5C>"),
        std::pair("[call]", "<\uFF5Ctool\u2581call\u2581begin\uFF5C>"),
        std::pair("[/call]", "<\uFF5Ctool\u2581call\u2581end\uFF5C>"), std::pair("[sep]", "<\uFF5Ctool\u2581sep\uFF5C>")})
    for (std::size_t at = out.find(name); at != std::string::npos; at = out.find(name))
      out.replace(at, std::string_view(name).size(), tag);
  return out;
}

struct SectionCase {
  std::string_view text;
  std::string_view shown;
  TextEnd end = TextEnd::natural;
  bool is_whole = false;
};

void expect_deepseek(std::string_view parser, std::string_view reasoning, const std::vector<SectionCase>& cases) {
  for (const SectionCase& one : cases) {
    const std::string text = deepseek(one.text), result = deepseek(one.shown);
    expect_golden({parser, reasoning, false, text, result, one.is_whole, one.end});
  }
}

TEST(SectionCalls, of_deepseek_v3_name_the_function_in_a_line_of_its_own) {
  expect_deepseek(
      "deepseek_v3", "",
      {
          {"[calls][call]function[sep]get_weather\n```json\n{\"city\": \"Paris\"}\n```[/call][/calls]",
           "|0 get_weather@0 {\"city\": \"Paris\"}"},
          {"I look.\n\n[calls][call]function[sep]add\n```json\n{\n  \"a\": 1\n}\n```[/call]\n[call]function[sep]add\n```json\n"
           "{\"a\": \"```\"}\n```[/call][/calls]",
           "|I look.|0 add@0 {\n  \"a\": 1\n}|1 add@1 {\"a\": \"```\"}"},
          // no fence, no language, no arguments, and a tool of the name of the type
          {"[calls][call]function[sep]add\n{\"a\": 1}[/call][/calls]", "|0 add@0 {\"a\": 1}"},
          {"[calls][call]function[sep]add```\n{\"a\": 1}\n```\n[/call][/calls]", "|0 add@0 {\"a\": 1}"},
          {"[calls][call]function[sep]add[/call][/calls]", "|0 add@0 {}"},
          {"[calls][call]function[sep]function\n```json\n{}\n```[/call][/calls]", "|0 function@0 {}"},
      });
}

TEST(SectionCalls, of_deepseek_v31_name_the_function_first) {
  expect_deepseek(
      "deepseek_v31", "deepseek_v3",
      {
          {"<think>So.</think>[calls][call]get_weather[sep]{\"city\": \"Paris\"}[/call][call]add[sep]{\"a\": [1, {}], "
           "\"b\": \"</x>\"}[/call][/calls]",
           "|think So.|0 get_weather@0 {\"city\": \"Paris\"}|1 add@1 {\"a\": [1, {}], \"b\": \"</x>\"}"},
          // as the template shows arguments that came as a string
          {"[calls][call]add[sep]\"{\\\"a\\\": 1}\"[/call][/calls]", "|0 add@0 {\"a\": 1}"},
          {"[calls][call]add[sep][/call][/calls]", "|0 add@0 {}"},
          {"[calls][call] add [sep] {\"a\": 1,} [/call] [/calls] done", "|0 add@0 {\"a\": 1}| done"},
          // the other form, which the model may have learnt as well
          {"[calls][call]function[sep]add\n```json\n{\"a\": 1}\n```[/call][/calls]", "|0 add@0 {\"a\": 1}"},
          // calls in reasoning that is never closed
          {"<think>So.[calls][call]add[sep]{}[/call][/calls]", "|think So.|0 add@0 {}"},
      });
}

TEST(SectionCalls, of_kimi_have_the_id_that_the_model_wrote) {
  for (const Golden& golden : std::vector<Golden>{
           {"kimi_k2", "kimi_k2", false,
            "<think>So.</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
            "<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>functions.add:1"
            "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
            "|think So.|I look.|0 get_weather#functions.get_weather:0@0 {\"city\": \"Paris\"}|1 add#functions.add:1@1 {}"},
           // the other spelling of the section, spaces, a name alone, with a number, with colons and dots
           {"kimi_k2", "", false,
            "<|tool_call_section_begin|>\n<|tool_call_begin|> add <|tool_call_argument_begin|> {} <|tool_call_end|>\n"
            "<|tool_call_begin|>add:12<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>functions.a.b:c:0"
            "<|tool_call_argument_begin|><|tool_call_end|><|tool_call_section_end|>",
            "|0 add@0 {}|1 add#add:12@1 {}|2 a.b:c#functions.a.b:c:0@2 {}"},
           {"kimi_k2", "", false, "<|tool_call_begin|>f:x<|tool_call_argument_begin|>{}<|tool_call_end|>", "|0 f:x@0 {}"},
           {"kimi_k2", "", false, "<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}",
            "|<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}"},
           // Kimi opens its reasoning or does not, and calls may end it
           {"kimi_k2", "kimi_k2", true, "So.</think>Yes.", "|think So.|Yes."},
           {"kimi_k2", "kimi_k2", true,
            "So.<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
            "<|tool_calls_section_end|>",
            "|think So.|0 add#functions.add:0@0 {}"},
       })
    expect_golden(golden);
}

TEST(SectionCalls, may_lack_every_tag_but_their_first) {
  expect_deepseek("deepseek_v31", "",
                  {
                      {"[call]add[sep]{}[/call]", "|0 add@0 {}"},
                      {"[call]add[sep]{}[/call]\n\n", "|0 add@0 {}"},
                      {"[call]add[sep]{}[/call] done", "|0 add@0 {}| done"},
                      {"[calls][call]add[sep]{}[call]add[sep]{\"a\": 1}[/calls]", "|0 add@0 {}|1 add@1 {\"a\": 1}"},
                      {"[calls][call]add[sep]{}", "|0 add@0 {}"},
                      {"[calls][call]add[sep]{}\n```", "|0 add@0 {}"},
                      {"[calls][call]add[sep]{}[/calls]", "|0 add@0 {}"},
                  });
}

TEST(SectionCalls, end_where_something_else_stands) {
  expect_deepseek("deepseek_v31", "",
                  {
                      {"[calls][/calls]", "|[calls][/calls]"},
                      {"[calls]text", "|[calls]text"},
                      {"[calls][call]two words[sep]{}", "|[calls][call]two words[sep]{}"},
                      {"[calls][call][sep]{}", "|[calls][call][sep]{}"},
                      {"[calls][call]add[/call]", "|[calls][call]add[/call]"},
                      {"[calls][call]add[sep][1][/call]", "|[calls][call]add[sep][1][/call]"},
                      {"[calls][call]add[sep]\"text\"[/call]", "|[calls][call]add[sep]\"text\"[/call]"},
                      {"[calls][call]add[sep]get_weather\n{}[/call]", "|[calls][call]add[sep]get_weather\n{}[/call]"},
                      {"[calls][call]add[sep]`````````````````{}", "|[calls][call]add[sep]`````````````````{}"},
                      {"[calls][call]add[sep]```<x>{}", "|[calls][call]add[sep]```<x>{}"},
                      {"[calls][call]add[sep]{\"a\": oops}[/call][/calls]", "|0 add@0 {\"a\": ~|oops}[/call][/calls]"},
                      {"[calls][call]add[sep]{}[/call]oops[call]add[sep]{}[/call][/calls]", "|0 add@0 {}|oops|1 add@1 {}"},
                      {"[calls][call]add[sep]{}<\uFF5Ctool\u2581call\u2581e", "|0 add@0 {}|<\uFF5Ctool\u2581call\u2581e"},
                  });
  const std::string long_name = "<|tool_call_begin|>" + std::string(257, 'n') + "<|tool_call_argument_begin|>{}";
  expect_golden({"kimi_k2", "", false, long_name, "|" + long_name});
}

/// What comes of a string is known at its end; it is kept as long as other text that may be a call.
TEST(SectionCalls, in_strings_are_given_up_when_they_are_too_long) {
  const auto format = MessageFormat::make("deepseek_v31", "", "");
  ASSERT_TRUE(format) << format.error().message;
  auto parser = format->parser({.tools = tools()});
  std::vector<MessagePiece> pieces;
  parser->take(deepseek("[calls][call]add[sep]\"{"), pieces);
  EXPECT_TRUE(pieces.empty());
  parser->take(std::string(CallWriter::kMaxHeld / 2, ' '), pieces);
  EXPECT_TRUE(pieces.empty());
  parser->take(std::string(CallWriter::kMaxHeld, 'x'), pieces);
  ASSERT_FALSE(pieces.empty());
  for (const MessagePiece& piece : testing::merged(pieces)) EXPECT_EQ(piece.kind, MessagePiece::Kind::content);
  EXPECT_GT(testing::merged(pieces)[0].text.size(), CallWriter::kMaxHeld);
}

TEST(SectionCalls, that_are_cut_off_have_the_text_that_came) {
  expect_deepseek("deepseek_v31", "",
                  {
                      {"[calls][call]add[sep]{\"a\": \"x", "|0 add@0 {\"a\": \"x~", TextEnd::cut},
                      {"[calls][call]add[sep]{\"a\": 1}<\uFF5Ctool\u2581call\u2581e", "|0 add@0 {\"a\": 1}", TextEnd::cut},
                      {"Hm. [calls][call]ad", "|Hm.", TextEnd::cut},
                      {"[calls][call]add[sep]{\"a\": \"x", "|[calls][call]add[sep]{\"a\": \"x", TextEnd::natural, true},
                      {"[calls][call]add[sep]{}[/call][/calls]", "|0 add@0 {}", TextEnd::natural, true},
                  });
}

}  // namespace
}  // namespace baton::parsers
