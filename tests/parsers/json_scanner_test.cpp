/// The scanner against the JSON parser, over texts and all their beginnings.
#include "parsers/json_scanner.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "io/json.h"

namespace baton::parsers {
namespace {

/// Whether the whole text is one value. A space behind it ends a number.
bool is_value(std::string_view text) {
  JsonScanner scanner;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const JsonScanner::Step step = scanner.take(text[i]);
    if (step == JsonScanner::Step::ends) return i + 1 == text.size();
    if (step != JsonScanner::Step::inside) return false;
  }
  return scanner.take(' ') == JsonScanner::Step::ended_before;
}

TEST(JsonScanner, agrees_with_the_parser) {
  const std::vector<std::string> texts{
      R"({"a": [1, -2.5e+10, {"b": null}], "c\"\\\/\b\u00e9": true, "": false})",
      R"([[], {}, [{}], "x", 0, -0, 10, 0.5, 1e5, 1E-5, 12.25e2])",
      " \n\t\"text \xC3\xA9\"",
      "-0.0e0",
      "true",
      "null",
      "nul",
      "tru e",
      "01",
      "-",
      "1.",
      ".5",
      "1e",
      "1e+",
      "+1",
      "[1,]",
      "[,1]",
      "[1 2]",
      "{\"a\"}",
      "{\"a\":}",
      "{\"a\":1,}",
      "{,}",
      "{a:1}",
      "{\"a\" 1}",
      "[}",
      "{]",
      "\"\\x\"",
      "\"\\u12g4\"",
      "'a'",
      "NaN",
      "]",
      "",
  };
  for (const std::string& text : texts)
    for (std::size_t n = 0; n <= text.size(); ++n) {
      const std::string front = text.substr(0, n);
      // The scanner stops behind a value; the parser looks at spaces behind it too.
      if (front.ends_with(' ') || front.ends_with('\n')) continue;
      EXPECT_EQ(is_value(front), json::parse(front, "it").has_value()) << front;
    }
}

TEST(JsonScanner, escapes_control_characters_in_strings_alone) {
  JsonScanner scanner;
  std::string written;
  for (const char c : std::string_view("{\n\"a\x01\": \"b\n\tc\"}")) {
    ASSERT_NE(scanner.take(c), JsonScanner::Step::fault);
    written += scanner.escaped(c);
  }
  EXPECT_EQ(written, "{\n\"a\\u0001\": \"b\\n\\tc\"}");
}

TEST(JsonScanner, refuses_what_nests_too_deep) {
  JsonScanner scanner;
  for (std::size_t i = 0; i < JsonScanner::kMaxDepth; ++i) EXPECT_EQ(scanner.take('['), JsonScanner::Step::inside);
  EXPECT_EQ(scanner.take('['), JsonScanner::Step::fault);
}

}  // namespace
}  // namespace baton::parsers
