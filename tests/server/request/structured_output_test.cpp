/// The fields that hold grammars (server/request/structured_output.h).
#include "server/request/structured_output.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using grammar::GrammarKind;
using grammar::JsonSpaces;

json::Value body_of_grammar(std::string_view text) {
  auto value = json::parse(text, "the body");
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

Result<std::optional<StructuredOutput>> parse_grammar(std::string_view body, JsonSpaces spaces = JsonSpaces::readable) {
  return parse_structured_output(body_of_grammar(body), spaces);
}

TEST(StructuredOutput, reads_each_field_that_holds_a_grammar) {
  struct Case {
    std::string_view body;
    GrammarKind kind;
    std::string_view text;
    std::string_view field;
  };
  constexpr std::string_view kSchema = R"({"type":"object","required":["b","a"]})";
  const Case cases[] = {
      {R"({"response_format": {"type": "json_object"}})", GrammarKind::json_object, "", "response_format"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "description": "d",
           "schema": {"type": "object", "required": ["b", "a"]}}}})",
       GrammarKind::json_schema, kSchema, "response_format.json_schema.schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": true, "strict": null}}})",
       GrammarKind::json_schema, "true", "response_format.json_schema.schema"},
      {R"({"response_format": {"type": "json_object", "schema": {"type": "object", "required": ["b", "a"]}}})",
       GrammarKind::json_schema, kSchema, "response_format.schema"},
      {R"({"response_format": {"type": "grammar", "grammar": "root ::= \"a\""}})", GrammarKind::ebnf, "root ::= \"a\"",
       "response_format.grammar"},
      {R"({"structured_outputs": {"json": {"type": "object", "required": ["b", "a"]}}})", GrammarKind::json_schema, kSchema,
       "structured_outputs.json"},
      {R"({"structured_outputs": {"json": "{\"type\": \"object\",\n \"required\": [\"b\", \"a\"]}", "regex": null}})",
       GrammarKind::json_schema, kSchema, "structured_outputs.json"},
      {R"({"structured_outputs": {"regex": "a+"}})", GrammarKind::regex, "a+", "structured_outputs.regex"},
      {R"({"structured_outputs": {"choice": ["a", "b"]}})", GrammarKind::choice, R"(["a","b"])", "structured_outputs.choice"},
      {R"({"structured_outputs": {"grammar": "root ::= \"a\""}})", GrammarKind::ebnf, "root ::= \"a\"",
       "structured_outputs.grammar"},
      {R"({"structured_outputs": {"json_object": true, "disable_fallback": true, "backend": "auto"}})",
       GrammarKind::json_object, "", "structured_outputs.json_object"},
      {R"({"guided_json": {"type": "object", "required": ["b", "a"]}, "guided_decoding_backend": "auto"})",
       GrammarKind::json_schema, kSchema, "guided_json"},
      {R"({"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}})", GrammarKind::structural_tag,
       R"({"type":"structural_tag","format":{"type":"any_text"}})", "response_format"},
      {R"({"structured_outputs": {"structural_tag": "{}"}})", GrammarKind::structural_tag, "{}",
       "structured_outputs.structural_tag"},
      {R"({"guided_regex": "[0-9]"})", GrammarKind::regex, "[0-9]", "guided_regex"},
      {R"({"guided_choice": ["x"]})", GrammarKind::choice, R"(["x"])", "guided_choice"},
      {R"({"guided_grammar": "start: \"a\""})", GrammarKind::ebnf, "start: \"a\"", "guided_grammar"},
      {R"({"guided_json_object": true})", GrammarKind::json_object, "", "guided_json_object"},
      {R"({"json_schema": {"type": "object", "required": ["b", "a"]}})", GrammarKind::json_schema, kSchema, "json_schema"},
      {R"({"grammar": "root ::= \"a\"", "response_format": {"type": "text"}})", GrammarKind::ebnf, "root ::= \"a\"", "grammar"},
  };
  for (const Case& one : cases) {
    const auto parsed = parse_grammar(one.body);
    ASSERT_TRUE(parsed && *parsed) << one.body << (parsed ? "" : parsed.error().message);
    EXPECT_EQ((*parsed)->source.kind, one.kind) << one.body;
    EXPECT_EQ((*parsed)->source.text, one.text) << one.body;
    EXPECT_EQ((*parsed)->source.spaces, JsonSpaces::readable) << one.body;
    EXPECT_EQ((*parsed)->field, one.field);
  }
}

TEST(StructuredOutput, answers_are_free_where_no_field_holds_a_grammar) {
  for (const std::string_view body :
       {R"({})", R"({"response_format": {"type": "text"}})", R"({"response_format": {}})", R"({"response_format": null})",
        R"({"structured_outputs": {}})", R"({"structured_outputs": {"json": null, "regex": null}})",
        R"({"guided_json": null, "grammar": ""})", R"({"guided_json_object": false})",
        R"({"guided_decoding_backend": "auto"})"}) {
    const auto parsed = parse_grammar(body);
    ASSERT_TRUE(parsed) << body << parsed.error().message;
    EXPECT_FALSE(*parsed) << body;
  }
}

TEST(StructuredOutput, a_request_or_the_server_forbids_spaces) {
  for (const std::string_view body : {R"({"structured_outputs": {"json": {}, "disable_any_whitespace": true}})",
                                      R"({"structured_outputs": {"json_object": true, "whitespace_pattern": ""}})",
                                      R"({"guided_json": {}, "guided_whitespace_pattern": ""})"})
    EXPECT_EQ(parse_grammar(body).value()->source.spaces, JsonSpaces::none) << body;
  EXPECT_EQ(parse_grammar(R"({"structured_outputs": {"json": {}, "disable_any_whitespace": false}})").value()->source.spaces,
            JsonSpaces::readable);
  for (const std::string_view body :
       {R"({"response_format": {"type": "json_object"}})", R"({"json_schema": {}})", R"({"structured_outputs": {"json": {}}})"})
    EXPECT_EQ(parse_grammar(body, JsonSpaces::none).value()->source.spaces, JsonSpaces::none) << body;
}

TEST(StructuredOutput, names_the_field_that_is_wrong) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"response_format": "json"})", "response_format"},
      {R"({"response_format": {"schema": {}}})", "response_format.type"},
      {R"({"response_format": {"type": "xml"}})", "response_format.type"},
      {R"({"response_format": {"type": "json_object", "strict": true}})", "response_format.strict"},
      {R"({"response_format": {"type": "json_schema"}})", "response_format.json_schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": []}})", "response_format.json_schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}})", "response_format.json_schema.schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"name": 1, "schema": {}}}})",
       "response_format.json_schema.name"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}})",
       "response_format.json_schema.strict"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": [], "name": "n"}}})",
       "response_format.json_schema.schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "shema": {}}}})",
       "response_format.json_schema.shema"},
      {R"({"response_format": {"type": "grammar"}})", "response_format.grammar"},
      {R"({"structured_outputs": []})", "structured_outputs"},
      {R"({"structured_outputs": {"disable_any_whitespace": true}})", "structured_outputs"},
      {R"({"structured_outputs": {"json": 5}})", "structured_outputs.json"},
      {R"({"structured_outputs": {"json": "{"}})", "structured_outputs.json"},
      {R"({"structured_outputs": {"json": "[1]"}})", "structured_outputs.json"},
      {R"({"structured_outputs": {"regex": {}}})", "structured_outputs.regex"},
      {R"({"structured_outputs": {"choice": []}})", "structured_outputs.choice"},
      {R"({"structured_outputs": {"choice": [1]}})", "structured_outputs.choice"},
      {R"({"structured_outputs": {"json_object": 1}})", "structured_outputs.json_object"},
      {R"({"structured_outputs": {"structural_tag": []}})", "structured_outputs.structural_tag"},
      {R"({"structured_outputs": {"json": {}, "whitespace_pattern": "[ ]?"}})", "structured_outputs.whitespace_pattern"},
      {R"({"structured_outputs": {"json": {}, "disable_additional_properties": true}})",
       "structured_outputs.disable_additional_properties"},
      {R"({"structured_outputs": {"json": {}, "backend": "xgrammar"}})", "structured_outputs.backend"},
      {R"({"structured_outputs": {"json": {}, "disable_any_whitespace": 1}})", "structured_outputs.disable_any_whitespace"},
      {R"({"guided_json": {}, "guided_decoding_backend": "outlines"})", "guided_decoding_backend"},
      {R"({"guided_json": {}, "guided_whitespace_pattern": " *"})", "guided_whitespace_pattern"},
      {R"({"guided_choice": "a"})", "guided_choice"},
      {R"({"grammar": {}})", "grammar"},
  };
  for (const auto& [body, field] : cases) {
    const auto parsed = parse_grammar(body);
    ASSERT_FALSE(parsed) << body;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_request) << body;
    EXPECT_EQ(parsed.error().param, field) << parsed.error().message;
    EXPECT_NE(parsed.error().message.find(field), std::string::npos) << parsed.error().message;
  }
}

TEST(StructuredOutput, only_one_grammar_may_be_given) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"structured_outputs": {"json": {}, "regex": "a"}})", "structured_outputs.regex"},
      {R"({"guided_json": {}, "guided_regex": "a"})", "guided_regex"},
      {R"({"guided_json": {}, "structured_outputs": {"regex": "a"}})", "structured_outputs.regex"},
      {R"({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}})", "response_format"},
      {R"({"json_schema": {}, "grammar": "root ::= \"a\""})", "grammar"},
  };
  for (const auto& [body, field] : cases) {
    const auto parsed = parse_grammar(body);
    ASSERT_FALSE(parsed) << body;
    EXPECT_EQ(parsed.error().param, field) << body;
    EXPECT_NE(parsed.error().message.find("only one may be given"), std::string::npos) << parsed.error().message;
  }
}

}  // namespace
}  // namespace baton
