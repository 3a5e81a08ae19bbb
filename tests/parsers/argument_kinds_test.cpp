/// The kinds of arguments that schemas allow, and what finding them costs (parsers/argument_kinds.h).
#include "parsers/argument_kinds.h"

#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace baton::parsers {
namespace {

constexpr WorkLimits kMany{.steps = std::int64_t{1} << 40, .bytes = std::int64_t{1} << 40};

json::Value parsed(std::string_view text) {
  auto value = json::parse(text, "the parameters");
  EXPECT_TRUE(value) << text.substr(0, 200);
  return value ? std::move(*value) : json::Value();
}

/// The kinds of the argument x, whose schema and other members of the parameters are given.
unsigned kinds_of(std::string_view schema, std::string_view others = "") {
  WorkBudget budget(kMany);
  WorkMeter meter(budget);
  return ArgumentKinds(parsed(fmt::format(R"({{"properties": {{"x": {}}}{}{}}})", schema, others.empty() ? "" : ", ", others)),
                       meter)
      .of("x");
}

struct Work {
  std::int64_t steps = 0;
  std::int64_t bytes = 0;
};
Work work_of(const std::string& parameters) {
  const json::Value value = parsed(parameters);
  WorkBudget budget(kMany);
  {
    WorkMeter meter(budget);
    const ArgumentKinds kinds(value, meter);
    EXPECT_LE(static_cast<std::int64_t>(kinds.n_bytes()), budget.bytes());
  }
  return {budget.steps(), budget.bytes()};
}

TEST(ArgumentKinds, are_what_the_schema_says_first_by_its_type) {
  EXPECT_EQ(kinds_of(R"({"type": "integer"})"), kAllowsNumber);
  EXPECT_EQ(kinds_of(R"({"type": ["string", "null", "planet"]})"), kAllowsString | kAllowsNull);
  EXPECT_EQ(kinds_of(R"({"type": "object", "const": 1, "anyOf": [{"type": "array"}]})"), kAllowsObject);
  EXPECT_EQ(kinds_of(R"({"type": "planet", "const": true, "enum": [1]})"), kAllowsBoolean);
  EXPECT_EQ(kinds_of(R"({"enum": [1, "a", null, {}], "anyOf": [{"type": "array"}]})"),
            kAllowsNumber | kAllowsString | kAllowsNull | kAllowsObject | kAllowsArray);
  EXPECT_EQ(kinds_of(R"({"oneOf": [{"allOf": [{"const": []}]}, {"type": "boolean"}, true]})"), kAllowsArray | kAllowsBoolean);
  for (const char* const says_nothing : {"{}", "true", R"({"type": 5})", R"({"anyOf": {}, "enum": 1})", R"({"$ref": 1})"})
    EXPECT_EQ(kinds_of(says_nothing), kAllowsString) << says_nothing;
}

TEST(ArgumentKinds, follow_references) {
  EXPECT_EQ(kinds_of(R"({"$ref": "#/$defs/a"})", R"("$defs": {"a": {"type": "object"}})"), kAllowsObject);
  EXPECT_EQ(kinds_of(R"({"$ref": "#/definitions/a"})",
                     R"("definitions": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"const": 1}})"),
            kAllowsNumber);
  EXPECT_EQ(kinds_of(R"({"$ref": "#"})", R"("type": "object")"), kAllowsObject);
  EXPECT_EQ(kinds_of(R"({"$ref": "#/$defs/none"})", R"("$defs": {"a": {}})"), kAllowsString);
  EXPECT_EQ(kinds_of(R"({"$ref": "https://elsewhere/a"})"), kAllowsString);
  EXPECT_EQ(kinds_of(R"({"$ref": "#/$defs/a"})", R"("$defs": 1)"), kAllowsString);
}

TEST(ArgumentKinds, of_schemas_that_refer_to_each_other_are_those_of_all) {
  constexpr std::string_view kRing = R"("$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]},
      "b": {"anyOf": [{"$ref": "#/$defs/c"}, {"type": "array"}]}, "c": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "number"}]}})";
  for (const char* const name : {"a", "b", "c"})
    EXPECT_EQ(kinds_of(fmt::format(R"({{"$ref": "#/$defs/{}"}})", name), kRing), kAllowsNull | kAllowsArray | kAllowsNumber);
}

// Sixty references to itself: each of 16 levels had sixty branches.
TEST(ArgumentKinds, read_a_schema_once_however_often_it_is_referred_to) {
  std::string self;
  for (int i = 0; i < 60; ++i) self += R"({"$ref": "#/$defs/a"}, )";
  const std::string parameters =
      R"({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [)" + self + R"({"type": "integer"}]}}})";
  const Work work = work_of(parameters);
  EXPECT_LT(work.steps, 1000);
  EXPECT_LT(work.bytes, 20'000);
  EXPECT_EQ(kinds_of(R"({"$ref": "#/$defs/a"})", R"("$defs": {"a": {"anyOf": [)" + self + R"({"type": "integer"}]}})"),
            kAllowsNumber);
}

/// Texts of about `n_bytes`, each of the worst kind for something.
std::vector<std::string> large_parameters(std::size_t n_bytes) {
  std::vector<std::string> texts;
  const auto repeat = [&](std::string_view begin, auto item, std::string_view end) {
    std::string text(begin);
    for (std::size_t i = 0; text.size() < n_bytes; ++i) text += (i > 0 ? "," : "") + item(i);
    texts.push_back(text + std::string(end));
  };
  // arguments; arguments of one definition that has many parts; a chain of definitions; all of a ring; parts without members
  repeat(R"({"properties": {)", [](std::size_t i) { return fmt::format(R"("{}":{{"type":"null"}})", i); }, "}}");
  repeat(R"({"$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}, {"type": "array"}]}}, "properties": {)",
         [](std::size_t i) { return fmt::format(R"("{}":{{"$ref":"#/$defs/a"}})", i); }, "}}");
  repeat(R"({"properties": {"x": {"$ref": "#/$defs/0"}}, "$defs": {)",
         [](std::size_t i) { return fmt::format(R"("{}":{{"anyOf":[{{"$ref":"#/$defs/{}"}},{{"type":"null"}}]}})", i, i + 1); },
         "}}");
  repeat(R"({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [{"type": "null"},)",
         [](std::size_t) { return std::string(R"({"$ref":"#/$defs/a"})"); }, "]}}}");
  repeat(R"({"properties": {"x": {"anyOf": [)", [](std::size_t) { return std::string("{}"); }, "]}}}");
  repeat(R"({"properties": {"x": {"enum": [)", [](std::size_t) { return std::string("1"); }, "]}}}");
  repeat(R"({"properties": {"x": {)", [](std::size_t i) { return fmt::format(R"("{}":0)", i); }, "}}}");
  repeat(R"({"properties": {"x": {"$ref": "#"}}, )", [](std::size_t i) { return fmt::format(R"("{}":0)", i); }, "}");
  return texts;
}

TEST(ArgumentKinds, cost_steps_and_bytes_linear_in_the_text) {
  const auto small = large_parameters(1 << 16), large = large_parameters(1 << 20);
  for (std::size_t i = 0; i < small.size(); ++i) {
    const Work one = work_of(small[i]), sixteen = work_of(large[i]);
    EXPECT_LT(sixteen.steps, 20 * one.steps + 1000) << i;
    EXPECT_LT(sixteen.steps, 5 << 20) << i;
    EXPECT_LT(sixteen.bytes, 20 * one.bytes + 1000) << i;
    EXPECT_LT(sixteen.bytes, 32 << 20) << i;
  }
}

TEST(ArgumentKinds, end_when_no_client_waits_for_them) {
  const json::Value parameters = parsed(large_parameters(1 << 20)[2]);
  WorkBudget budget(kMany, [] { return true; });
  {
    WorkMeter meter(budget);
    const ArgumentKinds kinds(parameters, meter);
  }
  EXPECT_TRUE(budget.is_over());
  EXPECT_LT(budget.steps(), 2 * WorkBudget::kStepsBetweenChecks);
}

}  // namespace
}  // namespace baton::parsers
