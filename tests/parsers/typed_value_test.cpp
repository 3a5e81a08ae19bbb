/// Values of arguments as JSON, by the kinds that a tool allows, and written as they come.
#include "parsers/typed_value.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace baton::parsers {
namespace {

struct Typed {
  std::string_view text;
  unsigned kinds;
  std::string_view json;
};

TEST(TypedValue, has_a_kind_that_the_tool_allows) {
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

// A value that is too long to be looked at is a string, whatever the tool allows.
TEST(TypedValue, a_string_goes_out_as_it_comes_and_other_values_when_they_are_complete) {
  const auto written = [](unsigned kinds, const std::vector<std::string>& parts, bool ends) {
    std::vector<MessagePiece> pieces;
    CallWriter writer(CallWriter::Form::streamed, true);
    writer.set_output(pieces);
    EXPECT_TRUE(writer.open_call("f", ""));
    TypedValueWriter value;
    value.begin(kinds, writer);
    for (const std::string& part : parts) value.write(part, writer);
    if (ends) value.end(writer);
    std::string text;
    for (const MessagePiece& piece : pieces)
      if (piece.kind == MessagePiece::Kind::arguments) text += piece.text;
    return text;
  };
  EXPECT_EQ(written(kAllowsString, {"a\"", "b"}, false), "\"a\\\"b");
  EXPECT_EQ(written(kAllowsString, {"a"}, true), "\"a\"");
  EXPECT_EQ(written(kAllowsNumber, {"1", "2"}, false), "");
  EXPECT_EQ(written(kAllowsNumber, {"1", "2"}, true), "12");
  const std::string long_text(CallWriter::kMaxHeld + 1, '1');
  EXPECT_EQ(written(kAllowsNumber, {long_text}, true), "\"" + long_text + "\"");
}

}  // namespace
}  // namespace baton::parsers
