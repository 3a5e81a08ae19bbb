/// vLLM's `structured_outputs` (grammar/structured_outputs.h). tests/server/request/structured_output_test.cpp has the mistakes.
#include "grammar/structured_outputs.h"

#include <gtest/gtest.h>

namespace baton::grammar {
namespace {

Result<std::optional<FieldGrammar>> read(std::string_view text) {
  return read_structured_outputs(json::parse(text, "the test").value(), JsonSpaces::readable);
}

TEST(StructuredOutputs, each_key_is_a_kind_of_grammar_and_names_its_field) {
  const std::tuple<std::string_view, GrammarKind, std::string_view> cases[] = {
      {R"({"json": {"type": "object"}})", GrammarKind::json_schema, "json"},
      {R"({"json": "{\"type\": \"object\"}"})", GrammarKind::json_schema, "json"},
      {R"({"regex": "a+"})", GrammarKind::regex, "regex"},
      {R"({"choice": ["a", "b"]})", GrammarKind::choice, "choice"},
      {R"({"grammar": "root ::= \"a\""})", GrammarKind::ebnf, "grammar"},
      {R"({"json_object": true})", GrammarKind::json_object, "json_object"},
      {R"({"structural_tag": {"type": "structural_tag"}})", GrammarKind::structural_tag, "structural_tag"},
  };
  for (const auto& [text, kind, key] : cases) {
    const auto found = read(text);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_TRUE(*found) << text;
    EXPECT_EQ((*found)->source.kind, kind);
    EXPECT_EQ((*found)->field, "structured_outputs." + std::string(key));
    EXPECT_EQ((*found)->source.spaces, JsonSpaces::readable);
  }
}

TEST(StructuredOutputs, what_vllm_sends_by_default_changes_nothing) {
  const auto found = read(R"({"regex": "a", "json": null, "disable_any_whitespace": false, "whitespace_pattern": null,
                              "disable_additional_properties": false, "disable_fallback": false})");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ((*found)->source.kind, GrammarKind::regex);
  EXPECT_EQ(read(R"({"json": {}, "disable_any_whitespace": true})").value()->source.spaces, JsonSpaces::none);
  EXPECT_FALSE(*read(R"({"json": null})"));
}

TEST(StructuredOutputs, refuses_by_name_what_has_no_effect) {
  for (const std::string key : {"disable_additional_properties", "backend", "whitespace_pattern", "xgrammar"}) {
    const std::string value = key.starts_with("disable") ? "true" : "\"x\"";
    const auto found = read(R"({"json": {}, ")" + key + "\": " + value + "}");
    ASSERT_FALSE(found) << key;
    EXPECT_EQ(found.error().param, "structured_outputs." + key);
    EXPECT_EQ(found.error().code, ErrorCode::invalid_request);
  }
  EXPECT_EQ(read(R"({"json": {}, "regex": "a"})").error().param, "structured_outputs.regex");
}

}  // namespace
}  // namespace baton::grammar
