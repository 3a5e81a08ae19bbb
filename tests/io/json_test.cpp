/// Parsing, printing and typed access of io/json.h.
#include "io/json.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/json_parse.h"

namespace baton::json {
namespace {

Value parsed(std::string_view text) {
  auto value = parse(text, "the text");
  EXPECT_TRUE(value) << (value ? "" : value.error().message);
  return value ? *value : Value();
}

TEST(Json, reads_every_kind_of_value_and_prints_it_back) {
  const std::string text = R"({"z":[1,-2,1.5,18446744073709551615],"a":{"t":true,"f":false,"n":null},"s":"\u00e9\n\"x\""})";
  EXPECT_EQ(dump(parsed(text)), R"({"z":[1,-2,1.5,18446744073709551615],"a":{"t":true,"f":false,"n":null},"s":"é\n\"x\""})");
  EXPECT_EQ(dump(parsed("7")), "7");
  EXPECT_EQ(dump(parsed("[]")), "[]");
  EXPECT_EQ(dump(parsed("[[],{}]")), "[[],{}]");
  EXPECT_EQ(dump_pretty(parsed(R"({"a":1})")), "{\n  \"a\": 1\n}");
}

TEST(Json, names_the_thing_and_the_place_of_a_syntax_error) {
  const auto value = parse("{\"a\": 1,\n \"b\": }", "the request body");
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code, ErrorCode::invalid_request);
  EXPECT_TRUE(value.error().message.starts_with("the request body is not valid JSON: parse error at line 2, column 7"))
      << value.error().message;
}

TEST(Json, refuses_what_is_not_json) {
  for (const std::string_view text :
       {"", " ", "{", "[1", "[1,]", "{\"a\"}", "nul", "'a'", "1 2", "\"\xff\"", "\"\\ud800\"", "1e999", "NaN"})
    EXPECT_FALSE(parse(text, "it")) << text;
}

TEST(Json, a_zero_byte_does_not_end_the_text) {
  using namespace std::string_literals;
  for (const std::string& text : {"{\"a\": 1}\0 more"s, "\0"s, "1\0"s, "\"a\0b\""s}) {
    const auto parsed = parse(text, "the body");
    ASSERT_FALSE(parsed);
    EXPECT_NE(parsed.error().message.find("is zero"), std::string::npos);
  }
}

TEST(Json, an_error_message_stays_short_when_the_bad_token_is_long) {
  const auto value = parse("\"" + std::string(100000, 'x') + "\n\"", "it");
  ASSERT_FALSE(value);
  EXPECT_LT(value.error().message.size(), 400u);
}

TEST(Json, nesting_is_bounded) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_TRUE(parse(nested(kMaxDepth), "it"));
  const auto deeper = parse(nested(kMaxDepth + 1), "it");
  ASSERT_FALSE(deeper);
  EXPECT_EQ(deeper.error().message, "it is not valid JSON: lists and objects are nested deeper than 256");
  EXPECT_FALSE(parse(std::string(10'000'000, '['), "it"));
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(parse(objects, "it"));
}

TEST(Json, a_key_given_twice_is_an_error_where_that_is_asked_for) {
  const auto said = [](std::string_view text) {
    const auto value = parse_unambiguous(text, "it");
    return value ? std::string() : value.error().message;
  };
  EXPECT_EQ(said(R"({"a": {"b": 1}, "b": [{"a": 1}, {"a": 2}]})"), "");
  EXPECT_EQ(said(R"({"a": 1, "b": 2, "a": 3})"), "it: 'a' is given twice");
  EXPECT_EQ(said(R"({"a": [1, [{"c": {"b": 1, "b": 1}}]]})"), "it: 'a[1][0].c.b' is given twice");
  EXPECT_NE(said(R"({"a": 1)").find("it is not valid JSON"), std::string::npos);
}

TEST(Json, of_a_key_given_twice_the_last_value_wins_in_the_first_place) {
  EXPECT_EQ(dump(parsed(R"({"a":1,"b":2,"a":{"c":3},"b":4})")), R"({"a":{"c":3},"b":4})");
}

TEST(Json, reads_large_objects_in_linear_time) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += (i > 0 ? ",\"token" : "\"token") + std::to_string(i) + "\":" + std::to_string(i);
  text += "}";
  const Value value = parsed(text);  // quadratic insertion would take minutes
  ASSERT_EQ(value.size(), 200'000u);
  int expected = 0;
  for (const auto& [key, id] : value.items()) ASSERT_EQ(id.get<int>(), expected++) << key;
}

TEST(Json, reading_for_a_client_that_leaves_ends_soon) {
  constexpr int kValues = 1 << 17;
  std::string list = "[0";
  std::string lists = "[[]";
  for (int i = 1; i < kValues; ++i) list += ",0", lists += ",[]";
  for (const std::string& text : {list + "]", lists + "]"}) {
    int n_asked = 0;
    const auto read = parse_cancellable(text, "the text", [&] { return ++n_asked == 3; });
    ASSERT_FALSE(read);
    EXPECT_EQ(n_asked, 3) << "it is asked no more, and not only at the end";
    EXPECT_EQ(read.error().code, ErrorCode::unavailable);
    EXPECT_EQ(read.error().message, "the text is not read to its end: no client waits for it any more");
    const auto whole = parse_cancellable(text, "the text", [&] { return false; });
    ASSERT_TRUE(whole);
    EXPECT_EQ(*whole, parsed(text));
  }
}

TEST(Json, printing_replaces_bytes_that_are_not_utf8) {
  Value value = Value::object();
  value["a"] = std::string("x\xff") + "y";
  EXPECT_EQ(dump(value), "{\"a\":\"x\xef\xbf\xbdy\"}");
}

TEST(Json, gives_fields_as_the_type_asked_for) {
  const Value object =
      parsed(R"({"b":true,"i":-3,"u":18446744073709551615,"f":2.5,"w":16.0,"s":"x","l":[1,2],"n":null,"o":{"k":1}})");
  EXPECT_EQ(get<bool>(object, "b").value(), true);
  EXPECT_EQ(get<int>(object, "i").value(), -3);
  EXPECT_EQ(get<std::uint64_t>(object, "u").value(), 18446744073709551615u);
  EXPECT_EQ(get<double>(object, "f").value(), 2.5);
  EXPECT_EQ(get<float>(object, "i").value(), -3.0f);
  EXPECT_EQ(get<int>(object, "w").value(), 16);
  EXPECT_EQ(get<std::string>(object, "s").value(), "x");
  EXPECT_EQ(get<std::vector<std::int64_t>>(object, "l").value(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(get<Value>(object, "o").value(), parsed(R"({"k":1})"));
  EXPECT_EQ(get_optional<int>(object, "i").value(), -3);
  EXPECT_EQ(get_optional<int>(object, "n").value(), std::nullopt);
  EXPECT_EQ(get_optional<int>(object, "absent").value(), std::nullopt);
}

TEST(Json, says_which_field_is_missing_or_of_the_wrong_type) {
  const Value object = parsed(R"({"s":"x","f":2.5,"big":3000000000,"neg":-1,"huge":1e300,"l":[1,"a"],"n":null})");
  const auto message = [](const auto& result) { return result ? std::string("no error") : result.error().message; };
  EXPECT_EQ(message(get<int>(object, "absent")), "'absent' is missing");
  EXPECT_EQ(message(get<int>(object, "s")), "'s' must be an integer, not a string");
  EXPECT_EQ(message(get<int>(object, "f")), "'f' must be an integer, not 2.5");
  EXPECT_EQ(message(get<int>(object, "big")), "'big' must be from -2147483648 to 2147483647, not 3000000000");
  EXPECT_EQ(message(get<std::uint64_t>(object, "neg")), "'neg' must be from 0 to 9223372036854775807, not -1");
  EXPECT_EQ(message(get<bool>(object, "s")), "'s' must be true or false, not a string");
  EXPECT_EQ(message(get<std::string>(object, "f")), "'f' must be a string, not a number");
  EXPECT_EQ(message(get<std::string>(object, "n")), "'n' must be a string, not null");
  EXPECT_EQ(message(get<std::vector<int>>(object, "l")), "'l[1]' must be an integer, not a string");
  EXPECT_EQ(message(get_optional<double>(object, "s")), "'s' must be a number, not a string");
  EXPECT_FALSE(get<float>(object, "huge"));
  EXPECT_FALSE(get<int>(parsed("[1]"), "a"));
  EXPECT_EQ(get<int>(object, "s").error().param, "s");
}

TEST(Json, reads_the_numbers_that_only_python_writes) {
  const auto read =
      parse_of_python(R"({"a":NaN,"b":[Infinity, -Infinity,-1],"NaN":"Infinity \" NaN","c":{"d":"\\","e":NaN}})", "x");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(std::isnan(find(*read, "a")->get<double>()));
  EXPECT_EQ(find(*read, "b")->at(0).get<double>(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(find(*read, "b")->at(1).get<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(find(*read, "b")->at(2).get<int>(), -1);
  EXPECT_EQ(find(*read, "NaN")->get<std::string>(), "Infinity \" NaN");
  EXPECT_TRUE(std::isnan(find(*find(*read, "c"), "e")->get<double>()));
  EXPECT_FALSE(get<double>(*read, "a"));
  for (const char* wrong : {"NaN", "[Infinity]", "-Infinity"}) EXPECT_FALSE(parse(wrong, "x")) << wrong;
  for (const char* wrong : {"nan", "[Infinit]", "+Infinity", "\"NaN", "\"\\", "[NaN", "xNaN", "NaN1"})
    EXPECT_FALSE(parse_of_python(wrong, "x")) << wrong;
}

TEST(Json, reads_files) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "json_test.json";
  std::ofstream(path) << R"({"a": 1})";
  EXPECT_EQ(dump(parse_file(path).value()), R"({"a":1})");
  std::ofstream(path) << "{";
  EXPECT_EQ(parse_file(path).error().code, ErrorCode::invalid_data);
  EXPECT_NE(parse_file(path).error().message.find("json_test.json is not valid JSON"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_EQ(parse_file(path).error().code, ErrorCode::not_found);
}

TEST(Json, keeps_the_digits_of_integers_of_any_length) {
  constexpr std::string_view kText =
      R"({"a":[9223372036854775808,-9223372036854775809,123456789012345678901234567890],"b":{"c":18446744073709551616},"d":1.5})";
  const auto exact = parse_exact(kText, "the text");
  ASSERT_TRUE(exact);
  EXPECT_EQ(dump(*exact), kText);
  EXPECT_EQ(digits_of((*exact)["a"][2]), "123456789012345678901234567890");
  EXPECT_EQ(digits_of((*exact)["d"]), "");
  EXPECT_EQ(describe_type((*exact)["a"][2]), "an integer");
  EXPECT_FALSE(convert<std::int64_t>((*exact)["a"][2], "a")) << "it fits no integer of the program";
  EXPECT_EQ(convert<double>((*exact)["b"]["c"], "c").value(), 18446744073709551616.0);
  EXPECT_TRUE(parse(kText, "the text").value()["b"]["c"].is_number_float()) << "other readers get a number";
}

TEST(Json, reads_half_of_a_surrogate_pair_as_the_replacement_character_where_a_client_sent_it) {
  constexpr std::string_view kCases[][2] = {
      {R"("a\ud83d")", "a\xEF\xBF\xBD"},
      {R"("\uDE00b")", "\xEF\xBF\xBD\x62"},
      {R"("\ud83d\ude00 \uD83D\uDE00")", "😀 😀"},
      {R"("\ud83d\ud83d\ude00\ude00\ud83d\n")", "\xEF\xBF\xBD😀\xEF\xBF\xBD\xEF\xBF\xBD\n"},
      {R"("\\ud83d \\\ud83d\u0041")", "\\ud83d \\\xEF\xBF\xBD\x41"},
  };
  for (const auto& [text, value] : kCases) EXPECT_EQ(parse_exact(text, "the text").value(), value) << text;
  EXPECT_EQ(parse_exact(R"({"\udc00":["\ud83d"],"n":18446744073709551616})", "the text").value()["n"].is_binary(), true);
  for (const std::string_view text :
       {R"("\ud83d)", R"("\ud83")", R"("\ud83d\u12")", R"("\ud83d\x")", R"(\ud83d)", R"("\ud83d" x)"})
    EXPECT_FALSE(parse_exact(text, "the text")) << text;
  EXPECT_FALSE(parse(R"("\ud83d")", "the text")) << "files are whole";
}

}  // namespace
}  // namespace baton::json
