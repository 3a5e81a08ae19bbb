/// Tests of what compiling costs: the worst documents known, of every front end, end within their memory and are asked often
/// whether anybody still waits.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>

#include "grammar/grammar.h"

namespace {

/// What this thread has allocated, in bytes as the C library rounds them.
thread_local std::int64_t n_live_bytes = 0;
thread_local std::int64_t most_live_bytes = 0;
thread_local std::int64_t n_allocations = 0;
thread_local std::int64_t n_frees = 0;

void* counted(std::size_t size) {
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  n_live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory)) + 8;
  most_live_bytes = std::max(most_live_bytes, n_live_bytes);
  ++n_allocations;
  return memory;
}

void uncounted(void* memory) {
  if (memory == nullptr) return;
  n_live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory)) + 8;
  ++n_frees;
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { uncounted(memory); }
void operator delete[](void* memory) noexcept { uncounted(memory); }
void operator delete(void* memory, std::size_t) noexcept { uncounted(memory); }
void operator delete[](void* memory, std::size_t) noexcept { uncounted(memory); }

namespace baton::grammar {
namespace {

std::string repeated(std::string_view text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

/// `piece(i)` for each number below n, with commas between them.
template <class Piece>
std::string listed(int n, const Piece& piece) {
  std::string all;
  for (int i = 0; i < n; ++i) {
    if (i > 0) all += ",";
    all += piece(i);
  }
  return all;
}

std::string same(int n, std::string_view piece) {
  return listed(n, [&](int) { return piece; });
}

std::string properties(int n, std::string_view schema) {
  return "\"properties\":{" + listed(n, [&](int i) { return fmt::format("\"p{}\":{}", i, schema); }) + "}";
}

std::string tag_of(std::string_view format) { return fmt::format(R"({{"type":"structural_tag","format":{}}})", format); }

struct Case {
  std::string name;
  GrammarKind kind;
  std::string text;
  std::string refusal;  ///< in the message; empty: compiled
};

/// A chain of `n` schemas, each of which names the next by `link` ("{}": its number).
std::string chain(int n, std::string_view link, std::string_view dialect = "") {
  return fmt::format(R"({{{}"allOf":[{{"$ref":"#/$defs/d0"}}],"$defs":{{{},"d{}":{{"type":"null"}}}}}})", dialect,
                     listed(n, [&](int i) { return fmt::format("\"d{}\":", i) + fmt::format(fmt::runtime(link), i + 1); }), n);
}

std::vector<Case> schemas() {
  using enum GrammarKind;
  const std::string long_id = "\"$id\":\"http://a/" + std::string(200'000, 'x') + "\"";
  const std::string defs_of_250_kb = R"("$defs":{"d":{"enum":[")" + std::string(250'000, 'z') + "\"]}}";
  const auto arguments = [&](std::string_view style) {
    return tag_of(fmt::format(R"({{"type":"json_schema","style":"{}","json_schema":{{{},{}}}}})", style, defs_of_250_kb,
                              properties(1000, R"({"type":"integer"})")));
  };
  const auto tagged = [](int i) {
    return fmt::format(
        R"({{"type":"object","properties":{{"k":{{"const":"t{}"}},"a":{{"type":"string"}},"b":{{}}}},"required":["k"]}})", i);
  };
  return {
      {"oneOf of 300 tagged objects", json_schema, "{\"oneOf\":[" + listed(300, tagged) + "]}", "needs more than"},
      {"1,000 properties times 500 required ones", json_schema,
       "{" + properties(1000, R"({"type":"integer"})") + ",\"anyOf\":[" +
           listed(500, [](int i) { return fmt::format(R"({{"required":["p{}"]}})", i); }) + "]}",
       "needs more than"},
      {"oneOf of 10,000 empty schemas", json_schema, "{\"oneOf\":[" + same(10'000, "{}") + "]}", "needs more than"},
      {"8,000 properties, all required", json_schema, "{" + properties(8000, "{}") + ",\"minProperties\":8000}", "needs more"},
      {"properties times alternatives", json_schema,
       "{" + properties(8000, "{}") + ",\"anyOf\":[" +
           listed(500, [](int i) { return fmt::format("{{\"minLength\":{}}}", i); }) + "]}",
       "needs more than"},
      {"a long $id over many values", json_schema, "{" + long_id + ",\"examples\":[" + same(300'000, "0") + "]}", ""},
      {"a long $id and many references", json_schema,
       "{" + long_id + R"(,"$defs":{"a":{"type":"null"}},)" + properties(15'000, R"({"$ref":"#/$defs/a"})") + "}",
       "needs more than"},
      {"a long $id and many anchors", json_schema,
       "{" + long_id + ",\"$defs\":{" + listed(20'000, [](int i) { return fmt::format(R"("p{0}":{{"$anchor":"a{0}"}})", i); }) +
           "}}",
       "needs more than"},
      {"12,000 times allOf and $ref", json_schema, chain(12'000, R"({{"allOf":[{{"$ref":"#/$defs/d{}"}}]}})"),
       "more than 4096 schemas"},
      {"12,000 times anyOf and $ref", json_schema, chain(12'000, R"({{"anyOf":[{{"$ref":"#/$defs/d{}"}}]}})"),
       "more than 4096 schemas"},
      {"allOf of 340,000", json_schema, "{\"allOf\":[" + same(340'000, "{}") + "]}", "more than 4096 schemas"},
      {"allOf of 30,000 anyOf", json_schema, "{\"allOf\":[" + same(30'000, R"({"anyOf":[{}]})") + "]}",
       "more than 4096 schemas"},
      {"anyOf of 170,000 false", json_schema, "{\"anyOf\":[" + same(170'000, "false") + "]}", "no text can match"},
      {"an enum of equal texts", json_schema, "{\"enum\":[" + same(250'000, "\"a\"") + "]}", ""},
      {"an enum of many texts", json_schema,
       "{\"enum\":[" + listed(120'000, [](int i) { return fmt::format("\"{}\"", i); }) + "]}", "needs more than"},
      {"a long enum for each alternative", json_schema,
       "{\"enum\":[" + listed(20'000, [](int i) { return fmt::format("\"a{}\"", i); }) + "],\"anyOf\":[" +
           listed(500, [](int i) { return fmt::format("{{\"minLength\":{}}}", i); }) + "]}",
       "needs more than"},
      {"a long pattern for each property", json_schema,
       R"({"$defs":{"s":{"type":"string","pattern":")" + std::string(300'000, 'a') + "\"}},\"properties\":{" +
           listed(8000,
                  [](int i) { return fmt::format(R"("p{0}":{{"allOf":[{{"$ref":"#/$defs/s"}},{{"minLength":{0}}}]}})", i); }) +
           "}}",
       "needs"},
      {"a long unknown keyword for each property", json_schema,
       "{\"$defs\":{\"u\":{\"" + std::string(400'000, 'u') + "\":1}},\"properties\":{" +
           listed(8000,
                  [](int i) { return fmt::format(R"("p{0}":{{"allOf":[{{"$ref":"#/$defs/u"}},{{"minLength":{0}}}]}})", i); }) +
           "}}",
       "needs more than"},
      {"many unknown keywords for each property", json_schema,
       "{\"$defs\":{\"u\":{" + listed(50'000, [](int i) { return fmt::format("\"k{}\":1", i); }) + "}},\"properties\":{" +
           listed(5000,
                  [](int i) { return fmt::format(R"("p{0}":{{"allOf":[{{"$ref":"#/$defs/u"}},{{"minLength":{0}}}]}})", i); }) +
           "}}",
       "needs more than"},
      {"many patterns of names", json_schema,
       "{\"patternProperties\":{" + listed(60'000, [](int i) { return fmt::format("\"^a{}\":{{}}", i); }) + "}}",
       "more than 6 patterns"},
      {"patterns with lengths", json_schema,
       "{\"properties\":{" +
           listed(400,
                  [](int i) {
                    return fmt::format(R"("p{0}":{{"type":"string","pattern":"^[a-z]+$","maxLength":{1}}})", i, 4000 + i);
                  }) +
           "}}",
       ""},
      {"lengths whose periods have no common divisor", json_schema,
       R"({"type":"string","minLength":900000000,"pattern":"^((a{97})*|(a{101})*)$"})", "needs more than"},
      {"long periods for each property", json_schema,
       "{\"properties\":{" +
           listed(2000,
                  [](int i) {
                    return fmt::format(R"("p{0}":{{"type":"string","pattern":"^((.{{19}})*|(.{{23}})*)$","minLength":{0}}})",
                                       i);
                  }) +
           "}}",
       "needs more than"},
      {"a large pattern with lengths", json_schema,
       R"({"type":"string","minLength":2000,"maxLength":3000,"pattern":"^[a-z]{0,15000}$"})", "needs more than"},
      {"names that are listed many times", json_schema,
       "{\"allOf\":[" +
           same(60, "{\"propertyNames\":{\"enum\":[" + listed(1500, [](int i) { return fmt::format("\"n{}\"", i); }) + "]}}") +
           "]}",
       ""},
      {"unique elements of many values", json_schema,
       R"({"type":"array","uniqueItems":true,"maxItems":2000,"minItems":1900,"items":{"enum":[)" +
           listed(100'000, [](int i) { return std::to_string(i); }) + "]}}",
       "needs more than"},
      {"sets of unique elements for each property", json_schema,
       "{" + properties(600, R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2,3,4,5,6,7,8,9,10,11,12]}})") + "}",
       "needs more than"},
      {"a tuple of 8,000 unique elements", json_schema,
       R"({"type":"array","uniqueItems":true,"items":false,"prefixItems":[)" +
           listed(8000, [](int i) { return fmt::format("{{\"const\":{}}}", i); }) + "]}",
       "needs more than"},
      {"nullable alternatives", json_schema, "{\"allOf\":[" + same(3000, R"({"nullable":true,"minLength":1})") + "]}",
       "more than 512 alternatives"},
      {"many multiples", json_schema,
       "{\"properties\":{" +
           listed(3000, [](int i) { return fmt::format(R"("p{0}":{{"type":"number","multipleOf":{1}}})", i, 1999 + i); }) +
           "}}",
       "needs more than"},
      {"$defs for each argument in XML", structural_tag, arguments("qwen_xml"), ""},
      {"$defs for each argument of Python", structural_tag, arguments("python"), ""},
  };
}

std::vector<Case> texts() {
  using enum GrammarKind;
  const auto rules = [](int n, std::string_view rule) {
    std::string all;
    for (int i = 0; i < n; ++i) all += fmt::format(fmt::runtime(rule), i, i + 1);
    return all;
  };
  std::string classes;  // of which no two are equal
  for (int i = 0; i < 20'000; ++i)
    classes += fmt::format(R"([\u{:04x}-\u{:04x}a\u{:04x}-\u{:04x}])", 0x100 + i, 0x120 + i, 0x8100 + i % 0x3000, 0x8400 + i);
  return {
      {"20,000 classes", regex, classes, "needs more than"},
      {"a Unicode class 20,000 times", regex, repeated("\\p{L}", 20'000), "needs more than"},
      {"a Unicode class 150,000 times in a class", regex, "[" + repeated("\\p{L}", 150'000) + "]", "needs more than"},
      {"200 times look-ahead", regex, repeated("(?=.*a)", 200) + ".*", ""},
      {"20,000 times look-ahead", regex, repeated("(?=.*a)", 20'000) + ".*", "needs more than"},
      {"look-ahead at long texts", regex, repeated("(?!.{1500}a)", 200) + ".*", "needs more than"},
      {"look-ahead in look-ahead", regex, repeated("(?=a", 100'000) + repeated(")", 100'000), "nested too deep"},
      {"400,000 optional characters", regex, repeated("a?", 400'000), "needs more than"},
      {"400,000 equal alternatives", regex, repeated("a|", 400'000) + "a", ""},
      {"a million stars", regex, "a" + std::string(1'000'000, '*'), "nested too deep"},
      {"500,000 parentheses", regex, std::string(500'000, '(') + std::string(500'000, ')'), "nested too deep"},
      {"repetitions of repetitions", regex, "((((a{1,300}){1,300}){1,300}){1,300})", "needs more than"},
      {"repetitions of nothing", regex, "((" + std::string(300'000, '|') + "){1000}){1000}", "needs more than"},
      {"40,000 calls of rules", ebnf, "root ::= " + rules(20'000, "r{0} | ") + "\"a\"\n" + rules(20'000, "r{0} ::= \"x{0}\"\n"),
       "more than 8192 alternatives"},
      {"calls at the end of rules", ebnf,
       "root ::= " + rules(6000, "a \"{0}\" | ") + "\"b\"\na ::= " + rules(6000, "r{0} | ") + "\"c\"\n" +
           rules(6000, "r{0} ::= \"x{0}\"\n"),
       "more than 8192 alternatives"},
      {"rules that help each other in the wrong order", ebnf,
       "root ::= r0\n" + rules(20'000, "r{0} ::= \"a\" r{1}\n") + "r20000 ::= \"b\"\n", ""},
      {"400,000 parentheses of a grammar", ebnf, "root ::= " + std::string(400'000, '(') + "\"a\"" + std::string(400'000, ')'),
       "nested too deep"},
      {"900,000 stars of a grammar", ebnf, "root ::= \"a\"" + std::string(900'000, '*'), "nested too deep"},
      {"250,000 equal choices", choice, "[" + same(250'000, "\"a\"") + "]", ""},
      {"120,000 choices", choice, "[" + listed(120'000, [](int i) { return fmt::format("\"{}\"", i); }) + "]",
       "needs more than"},
  };
}

std::vector<Case> tags() {
  using enum GrammarKind;
  const std::string tag = R"({"begin":"<a>","content":{"type":"any_text"},"end":"</a>"})";
  const std::string literal = R"({"type":"const_string","value":"a"})";
  return {
      {"150,000 equal triggers", structural_tag,
       tag_of(R"({"type":"triggered_tags","triggers":[)" + same(150'000, "\"<a\"") + "],\"tags\":[" + tag + "]}"),
       "#/format/triggers has 150000 texts; at most 1024 are accepted"},
      {"150,000 equal tokens", structural_tag,
       R"({"type":"structural_tag","tokens":[)" + same(150'000, "\"<a\"") + "],\"format\":" + literal + "}",
       "#/tokens has 150000 texts; at most 1024 are accepted"},
      {"1,000 triggers with a tag each", structural_tag,
       tag_of(R"({"type":"triggered_tags","triggers":[)" + listed(1000, [](int i) { return fmt::format("\"<f={}>\"", i); }) +
              "],\"tags\":[" +
              listed(1000,
                     [](int i) {
                       return fmt::format(R"({{"begin":"<f={}>","content":{{"type":"any_text"}},"end":"</a>"}})", i);
                     }) +
              "]}"),
       "needs more than"},
      {"14,000 equal tags", structural_tag,
       tag_of(R"({"type":"triggered_tags","triggers":["<a"],"tags":[)" + same(14'000, tag) + "]}"), ""},
      {"20,000 equal alternatives", structural_tag, tag_of("{\"type\":\"or\",\"elements\":[" + same(20'000, literal) + "]}"),
       "more than 8192 alternatives"},
      {"1,000 ends of 15,000 alternatives", structural_tag,
       tag_of(R"({"type":"tag","begin":"","end":[)" + listed(1000, [](int i) { return fmt::format("\"e{}\"", i); }) +
              "],\"content\":{\"type\":\"or\",\"elements\":[" + same(15'000, literal) + "]}}"),
       "needs more than"},
      {"1 MB of text and 1,000 tokens", structural_tag,
       R"({"type":"structural_tag","tokens":[)" + listed(1000, [](int i) { return fmt::format("\"b{}\"", i); }) +
           R"(],"format":{"type":"const_string","value":")" + std::string(900'000, 'b') + "\"}}",
       "needs more than"},
  };
}

/// A quarter of the steps that a request has, so that the test ends soon; all of its memory.
const GrammarLimits kLimits{.work = {.steps = GrammarLimits().work.steps / 4, .bytes = GrammarLimits().work.bytes}};

struct Outcome {
  std::string message;  ///< of the refusal; empty: compiled
  std::int64_t most_bytes = 0;
  std::int64_t n_left_bytes = 0;
  std::int64_t most_between_questions = 0;  ///< allocations
  std::int64_t n_frees_at_end = 0;          ///< after the last question
};

Outcome outcome_of(const Case& one) {
  Outcome outcome;
  const GrammarSource source{.kind = one.kind, .text = one.text};
  const std::int64_t at_first = n_live_bytes;
  most_live_bytes = n_live_bytes;
  std::int64_t last = n_allocations;
  std::int64_t n_frees_before = n_frees;
  const auto ask = [&] {
    n_frees_before = n_frees;
    outcome.most_between_questions =
        std::max(outcome.most_between_questions, n_allocations - std::exchange(last, n_allocations));
    return false;
  };
  {
    const auto compiled = compile_grammar(source, kLimits, ask);
    if (!compiled) outcome.message = compiled.error().message;
    outcome.n_frees_at_end = n_frees - n_frees_before;
  }
  ask();
  outcome.most_bytes = most_live_bytes - at_first;
  outcome.n_left_bytes = n_live_bytes - at_first - static_cast<std::int64_t>(outcome.message.size());
  return outcome;
}

constexpr std::int64_t kMostFreesAtEnd = 800'000;

void expect_within_limits(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    ASSERT_LE(one.text.size(), std::size_t{1} << 20) << one.name;
    const Outcome outcome = outcome_of(one);
    if (one.refusal.empty())
      EXPECT_EQ(outcome.message, "") << one.name;
    else
      EXPECT_NE(outcome.message.find(one.refusal), std::string::npos) << one.name << ": '" << outcome.message << "'";
    EXPECT_LT(outcome.message.size(), 1500u) << one.name;
    EXPECT_LE(outcome.most_bytes, std::int64_t{300} << 20) << one.name;
    EXPECT_LE(outcome.n_left_bytes, 1 << 20) << one.name;
    // Reading 1 MB of JSON is not interrupted: that is up to half a million values.
    EXPECT_LE(outcome.most_between_questions, 1'300'000) << one.name;
    // Freeing is not interrupted either.
    EXPECT_LE(outcome.n_frees_at_end, kMostFreesAtEnd) << one.name;
  }
}

/// The client has left from the `last`-th question on.
void expect_cancelled(const Case& one, int last) {
  int n_questions = 0;
  const auto compiled = compile_grammar({.kind = one.kind, .text = one.text}, {}, [&] { return ++n_questions >= last; });
  if (n_questions < last) return;  // it ended before
  ASSERT_FALSE(compiled.has_value()) << one.name;
  EXPECT_EQ(compiled.error().code, ErrorCode::unavailable) << one.name << ": " << compiled.error().message;
  EXPECT_EQ(n_questions, last) << one.name << " continued";
}

TEST(CompileLimits, cancelled_work_ends_at_the_next_question) {
  for (const std::vector<Case>& cases : {schemas(), texts(), tags()})
    for (const Case& one : cases)
      for (const int last : {1, 4, 60}) expect_cancelled(one, last);
}

TEST(CompileLimits, of_schemas) { expect_within_limits(schemas()); }
TEST(CompileLimits, of_expressions_grammars_and_choices) { expect_within_limits(texts()); }
TEST(CompileLimits, of_structural_tags) { expect_within_limits(tags()); }

/// `deep(v)` around `inner`, `n` times.
std::string nested(int n, std::string_view before, std::string_view inner, std::string_view behind) {
  return repeated(before, n) + std::string(inner) + repeated(behind, n);
}

/// Documents that are as deep as a text of 600 KB allows, in every way.
std::vector<Case> deep_documents() {
  using enum GrammarKind;
  std::vector<Case> all;
  const auto add = [&](GrammarKind kind, std::string name, std::string text) {
    all.push_back({std::move(name), kind, std::move(text), ""});
  };
  for (const char* keyword : {"items", "additionalProperties", "not", "if", "contains", "propertyNames", "additionalItems"}) {
    add(json_schema, keyword, nested(80'000, fmt::format("{{\"{}\":", keyword), "{}", "}"));
    add(json_schema, keyword, nested(120, fmt::format("{{\"{}\":", keyword), "{}", "}"));
    add(json_schema, keyword, chain(12'000, fmt::format("{{{{\"{}\":{{{{\"$ref\":\"#/$defs/d{{}}\"}}}}}}}}", keyword)));
  }
  for (const char* keyword : {"allOf", "anyOf", "oneOf", "prefixItems", "items"}) {
    add(json_schema, keyword, nested(80'000, fmt::format("{{\"{}\":[", keyword), "{}", "]}"));
    add(json_schema, keyword, nested(80, fmt::format("{{\"{}\":[", keyword), "{}", "]}"));
    add(json_schema, keyword, chain(12'000, fmt::format("{{{{\"{}\":[{{{{\"$ref\":\"#/$defs/d{{}}\"}}}}]}}}}", keyword)));
  }
  for (const char* keyword : {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}) {
    add(json_schema, keyword, nested(80'000, fmt::format("{{\"{}\":{{\"a\":", keyword), "{}", "}}"));
    add(json_schema, keyword, nested(80, fmt::format("{{\"{}\":{{\"a\":", keyword), "{}", "}}"));
    add(json_schema, keyword,
        chain(12'000, fmt::format("{{{{\"{}\":{{{{\"a\":{{{{\"$ref\":\"#/$defs/d{{}}\"}}}}}}}}}}}}", keyword)));
  }
  for (const char* keyword : {"enum", "const", "default", "examples"}) {
    add(json_schema, keyword, fmt::format("{{\"{}\":{}}}", keyword, nested(200'000, "[", "", "]")));
    add(json_schema, keyword, fmt::format("{{\"{}\":{}}}", keyword, nested(250, "[", "", "]")));
  }
  add(json_schema, "$ref", chain(12'000, R"({{"$ref":"#/$defs/d{}"}})"));
  add(json_schema, "$ref of draft 7",
      chain(12'000, R"({{"$ref":"#/$defs/d{}"}})", R"("$schema":"http://json-schema.org/draft-07/schema#",)"));
  add(json_schema, "allOf of anyOf", "{\"allOf\":[" + same(4000, R"({"anyOf":[{}]})") + "]}");
  add(json_schema, "properties in a row", "{" + properties(40'000, "{}") + "}");
  add(json_schema, "prefixItems in a row", "{\"prefixItems\":[" + same(200'000, "{}") + "]}");
  add(json_schema, "a oneOf of many rules",
      "{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"prefixItems\":[" + same(50'000, "{}") + "]}]}");
  for (const char* open : {"(", "(?:", "(?P<a>", "(a|", "(a?", "([a]", "(?=", "(?!a"}) {
    add(regex, open, nested(100'000, open, "a", ")"));
    add(regex, open, nested(1000, open, "a", ")"));
  }
  for (const char* behind : {"*", "+", "?", "{1}", "{0,1}", "{2,}"}) add(regex, behind, "a" + repeated(behind, 100'000));
  for (const char* open : {"(", "(\"a\" |", "(\"a\"? "}) {
    add(ebnf, open, "root ::= " + nested(80'000, open, "\"a\"", ")"));
    add(ebnf, open, "start: " + nested(80'000, open, "\"a\"", ")"));
  }
  add(ebnf, "[", "start: " + nested(200'000, "[", "\"a\"", "]"));
  for (const char* behind : {"*", "+", "?", "{1}"}) add(ebnf, behind, "root ::= \"a\"" + repeated(behind, 150'000));
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 20'000; ++i) rules += fmt::format("r{} ::= r{} \"a\"\n", i, i + 1);
  add(ebnf, "rules", rules + "r20000 ::= \"b\"\n");
  for (const char* format :
       {R"({"type":"optional","content":)", R"({"type":"star","content":)", R"({"type":"repeat","min":1,"max":2,"content":)",
        R"({"type":"tag","begin":"a","end":"b","content":)", R"({"type":"structural_tag","format":)"}) {
    add(structural_tag, format, tag_of(nested(15'000, format, R"({"type":"any_text"})", "}")));
    add(structural_tag, format, tag_of(nested(200, format, R"({"type":"any_text"})", "}")));
  }
  for (const char* format : {R"({"type":"sequence","elements":[)", R"({"type":"or","elements":[)"})
    for (const int n : {15'000, 120}) add(structural_tag, format, tag_of(nested(n, format, R"({"type":"any_text"})", "]}")));
  add(choice, "[", nested(400'000, "[", "\"a\"", "]"));
  return all;
}

const GrammarLimits kFewSteps{.work = {.steps = GrammarLimits().work.steps / 16, .bytes = GrammarLimits().work.bytes}};

void* compile_all(void* cases) {
  for (const Case& one : *static_cast<const std::vector<Case>*>(cases)) {
    const auto compiled = compile_grammar({.kind = one.kind, .text = one.text}, kFewSteps, {});
    EXPECT_TRUE(compiled || !compiled.error().message.empty()) << one.name;
  }
  return nullptr;
}

/// Compiles on a thread with a stack of that size.
void compile_on_stack_of(std::size_t n_bytes) {
  std::vector<Case> cases = deep_documents();
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, n_bytes), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, compile_all, &cases), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(CompileLimits, deep_documents_do_not_overflow_the_stack) { compile_on_stack_of(std::size_t{1} << 20); }

}  // namespace
}  // namespace baton::grammar
