/// The scanner against the JSON parser, over texts and all their beginnings.
#include "parsers/json_scanner.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "io/json.h"

namespace baton::parsers {
namespace {

/// Whether the whole text is one value. A space after it ends a number.
bool is_value(std::string_view text) {
  JsonScanner scanner(JsonScanner::Form::exact);
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
      "\"a\nb\"",
      "[True]",
      "'a'",
      "NaN",
      "]",
      "",
  };
  for (const std::string& text : texts)
    for (std::size_t n = 0; n <= text.size(); ++n) {
      const std::string front = text.substr(0, n);
      // The scanner stops after a value; the parser looks at spaces after it too.
      if (front.ends_with(' ') || front.ends_with('\n')) continue;
      EXPECT_EQ(is_value(front), json::parse(front, "it").has_value()) << front;
    }
}

struct Mended {
  std::string_view text;
  std::string_view json;  ///< "": it cannot be mended
};

TEST(JsonScanner, mends_what_models_write) {
  for (const auto& [text, json] : std::vector<Mended>{
           // raw control characters, which JSON does not have
           {"{\n\"a\x01\": \"b\n\tc\"}", "{\n\"a\\u0001\": \"b\\n\\tc\"}"},
           // a backslash that begins no escape
           {R"("C:\Users \d+ \( \$ \ü")", R"("C:\\Users \\d+ \\( \\$ \\ü")"},
           {R"({"\w": "\ "})", R"({"\\w": "\\ "})"},
           {"\"a\\\nb\"", R"("a\\\nb")"},
           {R"("\users \u12 \u\u00e9 \u1\n")", R"("\\users \\u12 \\u\u00e9 \\u1\n")"},
           {R"(["\u123"])", R"(["\\u123"])"},
           // what begins one stays
           {R"("\\server\\d \"\/\b\f\n\r\t\u00E9")", R"("\\server\\d \"\/\b\f\n\r\t\u00E9")"},
           // halves of pairs of surrogates
           {R"("\ud83d\ude00 \ud83d \ude00 \ud83d\ud83d\ude00 \ud83d\n \uD83Dx \ud83d")",
            R"("\ud83d\ude00 \ufffd \ufffd \ufffd\ud83d\ude00 \ufffd\n \ufffdx \ufffd")"},
           {R"("\ud83d\u00e9 \ud83d\u12")", R"("\ufffd\u00e9 \ufffd\\u12")"},
           // commas
           {"[1, 2, ]", "[1, 2 ]"},
           {"{\"a\": [1,\n], \"b\": {},}", "{\"a\": [1\n], \"b\": {}}"},
           {"[1,,2]", ""},
           {"[,]", ""},
           {"{,}", ""},
           // words of Python
           {R"([True, False, None, {"a": None}])", R"([true, false, null, {"a": null}])"},
           {"True", "true"},
           {"None", "null"},
           {"Nope", ""},
           {"[Truth]", ""},
           {"nul", ""},
           {"\"open", ""},
           {"1 2", ""},
           {" -1.5e3 ", "-1.5e3"},
           {"", ""},
       }) {
    EXPECT_EQ(mended_json(text).value_or(""), json) << text;
    if (!json.empty()) {
      EXPECT_TRUE(json::parse(json, "it").has_value()) << json;
      EXPECT_EQ(mended_json(json), json) << "JSON stays as it is";
    }
  }
}

TEST(JsonScanner, writes_at_each_byte_the_begin_of_an_exact_text) {
  const std::string_view text = R"({"\d": ["\u12", "\ud83d", None, ], "C:\U": "\ud83d\ude00", })";
  JsonScanner scanner(JsonScanner::Form::mended), reader(JsonScanner::Form::exact);
  JsonScanner::Step last = JsonScanner::Step::inside;
  for (const char c : text) {
    ASSERT_NE(scanner.take(c), JsonScanner::Step::fault) << c;
    for (const char written : scanner.written()) {
      ASSERT_EQ(last, JsonScanner::Step::inside);
      last = reader.take(written);
    }
  }
  EXPECT_EQ(last, JsonScanner::Step::ends);
}

TEST(JsonScanner, refuses_what_nests_too_deep) {
  JsonScanner scanner(JsonScanner::Form::exact);
  for (std::size_t i = 0; i < JsonScanner::kMaxDepth; ++i) EXPECT_EQ(scanner.take('['), JsonScanner::Step::inside);
  EXPECT_EQ(scanner.take('['), JsonScanner::Step::fault);
}

}  // namespace
}  // namespace baton::parsers
