/// Tests of JSON schemas: which values they have, in which form, and what they refuse by name.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/automaton/json_text.h"
#include "grammar/schema/schema_arrays.h"
#include "grammar/schema/schema_compiler.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/schema_objects.h"
#include "grammar/schema/schema_shape.h"
#include "grammar/schema/schema_values.h"
#include "support/grammar_texts.h"

namespace baton::grammar {
namespace {

using testing::accepts;
using testing::compiled;
using testing::refusal;

struct SchemaCase {
  std::string schema;
  std::vector<std::string> valid;
  std::vector<std::string> invalid;
};

void expect(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& one : cases) {
    const auto grammar = compiled(GrammarKind::json_schema, one.schema);
    for (const std::string& text : one.valid) EXPECT_TRUE(accepts(*grammar.program, text)) << one.schema << "\n" << text;
    for (const std::string& text : one.invalid) EXPECT_FALSE(accepts(*grammar.program, text)) << one.schema << "\n" << text;
  }
}

TEST(JsonSchema, types_and_literals) {
  expect({{"true", {"null", "[1, {}]", "\"x\"", "-1.5e+3"}, {"", "nul", "01", "[1,]", "{\"a\"}", "\"\n\"", "\"\\ud800\""}},
          {R"({"type": "integer"})", {"0", "-12"}, {"1.5", "1e3", "01", "\"1\"", "-"}},
          {R"({"type": ["string", "null"]})", {"\"\\u00e9\\n\"", "null", "\"\\ud83d\\ude00\""}, {"1", "\"", "\"\\x\""}},
          {R"({"enum": ["a\"b", 2, 2.5, {"k": [true]}, null]})",
           {"\"a\\\"b\"", "2", "2.5", "{\"k\": [true]}", "null"},
           {"2.0", "3", "\"a\"", "{}"}},
          {R"({"type": "string", "enum": ["ab", 1, "abc"], "maxLength": 2})", {"\"ab\""}, {"1", "\"abc\""}},
          {R"({"const": -2.0})", {"-2"}, {"2", "-2.5"}}});
}

TEST(JsonSchema, strings) {
  expect({{R"({"type": "string", "minLength": 2, "maxLength": 3})",
           {"\"ab\"", "\"\\n\\u00e9\xF0\x9F\x98\x80\""},
           {"\"a\"", "\"abcd\""}},
          {R"({"type": "string", "pattern": "^[a-z]+\\.[\"\\\\]$"})", {R"("ab.\"")", R"("a.\\")"}, {"\"ab.\"", "\"ab\""}},
          {R"({"type": "string", "pattern": "b"})", {"\"abc\"", "\"b\""}, {"\"ac\""}},
          {R"({"type": "string", "pattern": "^a*$", "minLength": 1, "maxLength": 2})",
           {"\"a\"", "\"aa\""},
           {"\"\"", "\"aaa\"", "\"b\""}},
          {R"({"type": "string", "format": "date"})", {"\"2024-02-29\""}, {"\"2023-02-29\""}}});
}

TEST(JsonSchema, numbers) {
  expect(
      {{R"({"type": "integer", "minimum": 3, "maximum": 12})", {"3", "12", "9"}, {"2", "13", "-3", "3.0"}},
       {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5})", {"0.001", "1.50", "1"}, {"0", "0.0", "1.51", "2"}},
       {R"({"type": "integer", "multipleOf": 3, "minimum": 10, "maximum": 20})", {"12", "15", "18"}, {"9", "13", "21"}},
       {R"({"type": "number", "multipleOf": 0.01})", {"1.25", "3", "0.10"}, {"1.255"}},
       {R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "minimum": 1, "exclusiveMinimum": true})",
        {"2"},
        {"1"}}});
}

TEST(JsonSchema, arrays) {
  expect({{R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
           {"[1]", "[1, 2,3]", "[\n  1\n]"},
           {"[]", "[1,2,3,4]", "[\"a\"]"}},
          {R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": false, "minItems": 1})",
           {"[null]", "[null, true]"},
           {"[]", "[true]", "[null,true,1]"}},
          {R"({"type": "array", "items": [{"type": "null"}], "additionalItems": {"type": "integer"}})",
           {"[]", "[null]", "[null,1,2]"},
           {"[1]", "[null,null]"}},
          {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}}});
}

TEST(JsonSchema, objects) {
  expect(
      {{R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {}}, "required": ["b"], "additionalProperties": false})",
        {R"({"b": ""})", R"({"a":1,"b":"x","c":null})", "{\n  \"a\": 1,\n  \"b\": \"\"\n}"},
        {"{}", R"({"a": 1})", R"({"b": "", "a": 1})", R"({"b": "", "d": 1})", R"({"b": "",})", R"({"b": "", "b": ""})"}},
       {R"({"properties": {"ab": {"type": "integer"}}})",
        {R"({"ab": 1})", R"({"abc": "x", "a": 1})", R"({"ab": 1, "x": {}})", "3"},
        {R"({"ab": "x"})", R"({"x": 1, "ab": 2})", R"({"\u0061b": "x"})"}},
       {R"({"type": "object", "patternProperties": {"^n": {"type": "integer"}, "s$": {"minimum": 5}}, "additionalProperties": {"type": "null"}})",
        {R"({"n": 1, "s": 6, "ns": 7, "x": null})", R"({"s": "text"})"},
        {R"({"n": "x"})", R"({"ns": 3})", R"({"x": 1})"}},
       {R"({"type": "object", "minProperties": 2, "maxProperties": 3, "properties": {"a": {}, "b": {}}})",
        {R"({"a":1,"b":2})", R"({"a":1,"x":2,"y":3})", R"({"x":1,"y":2,"z":3})"},
        {R"({"a":1})", "{}", R"({"a":1,"b":2,"c":3,"d":4})"}},
       {R"({"type": "object", "required": ["z"], "properties": {"a": false}})",
        {R"({"z": 1})", R"({"z": 1, "q": 1})"},
        {R"({"a": 1, "z": 1})", "{}"}}});
}

TEST(JsonSchema, references_and_recursion) {
  expect(
      {{R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"}, "sub": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["v"], "additionalProperties": false}}})",
        {R"({"v": 1})", R"({"v": 1, "sub": [{"v": 2, "sub": []}, {"v": 3}]})"},
        {R"({"sub": []})", R"({"v": 1, "sub": [{}]})"}},
       {R"({"$id": "http://x/a/root", "$defs": {"i": {"$id": "../b", "$anchor": "n", "type": "integer"}}, "items": {"$ref": "/b#n"}, "type": "array"})",
        {"[1]"},
        {"[null]"}},
       {R"({"definitions": {"s/t~%": {"const": 1}}, "$ref": "#/definitions/s~1t~0%25"})", {"1"}, {"2"}}});
}

TEST(JsonSchema, combinations) {
  expect(
      {{R"({"allOf": [{"properties": {"a": {"minimum": 2}}, "required": ["a"]}, {"properties": {"a": {"type": "integer"}, "b": {}}, "additionalProperties": false}], "type": "object"})",
        {R"({"a": 2})", R"({"a": 3, "b": []})"},
        {R"({"a": 1})", R"({"b": 1})", R"({"a": 2, "c": 1})"}},
       {R"({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"], "anyOf": [{"properties": {"k": {"const": "x"}, "n": {"type": "integer"}}}, {"properties": {"k": {"const": "y"}}, "additionalProperties": false}]})",
        {R"({"k": "x", "n": 1})", R"({"k": "y"})", R"({"k": "x", "m": 1})"},
        {R"({"k": "y", "n": 1})", R"({"k": "z"})"}},
       {R"({"oneOf": [{"type": "object", "properties": {"t": {"const": "a"}}, "required": ["t"]}, {"type": "object", "properties": {"t": {"const": "b"}, "u": {"type": "null"}}, "required": ["t", "u"]}, {"type": "string"}]})",
        {R"({"t": "a"})", R"({"t": "b", "u": null})", "\"x\""},
        {R"({"t": "b"})", R"({"t": "c"})"}},
       {R"({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}})", {"[1, [2, []]]"}, {"[null]"}},
       {R"({"type": ["integer", "string"], "minimum": 5, "minLength": 2, "allOf": [{"type": "number"}]})",
        {"5"},
        {"\"abc\"", "4"}}});
}

TEST(JsonSchema, names_of_properties) {
  const std::string listed =
      R"({"type": "object", "propertyNames": {"enum": ["x", "y", 3]}, "additionalProperties": {"type": "integer"}})";
  expect(
      {{R"({"type": "object", "propertyNames": {"type": "string", "title": "Key"}, "additionalProperties": {"type": "number"}})",
        {"{}", R"({"\u0061": 1, "b\n": 2.5})"},
        {R"({"a": ""})"}},
       {R"({"type": "object", "propertyNames": true})", {"{}", R"({"a": 1})"}, {"[]"}},
       {R"({"type": "object", "propertyNames": false})", {"{}"}, {R"({"a": 1})"}},
       {R"({"type": "object", "propertyNames": {"type": "null"}, "required": []})", {"{}"}, {R"({"a": 1})"}},
       {listed,
        {"{}", R"({"x": 1})", R"({"y": 2})", R"({"x": 1, "y": 2})"},
        {R"({"z": 1})", R"({"x": ""})", R"({"x": 1, "x": 2})"}},
       {R"({"type": "object", "propertyNames": {"anyOf": [{"const": "b"}, {"enum": ["a", "ccc"], "maxLength": 2}]}, "required": ["a"]})",
        {R"({"a": 1})", R"({"a": 1, "b": 2})"},
        {R"({"b": 1})", R"({"a": 1, "ccc": 1})", R"({"a": 1, "d": 1})"}},
       {R"({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": {"type": "boolean"}})",
        {R"({"ab": true, "c": false})", "{}"},
        {R"({"A": true})", R"({"": true})"}},
       {R"({"type": "object", "propertyNames": {"minLength": 2, "maxLength": 3}, "properties": {"a": {}, "bb": {"const": 1}}})",
        {R"({"bb": 1, "ccc": 2, "ée": 3})"},
        {R"({"a": 1})", R"({"bb": 2})", R"({"dddd": 1})"}},
       {R"({"type": "object", "propertyNames": {"format": "uuid"}, "patternProperties": {"^2": {"type": "null"}}, "additionalProperties": {"type": "string"}})",
        {R"({"2eb8aa08-aa98-11ea-b4aa-73b441d16380": null})", R"({"1eb8aa08-aa98-11ea-b4aa-73b441d16380": ""})"},
        {R"({"2eb8aa08-aa98-11ea-b4aa-73b441d16380": ""})", R"({"2": null})"}}});
}

TEST(JsonSchema, nullable_allows_null_beside_what_a_schema_says) {
  expect(
      {{R"({"type": "string", "nullable": true})", {"null", "\"a\""}, {"1"}},
       {R"({"type": "string", "nullable": false})", {"\"a\""}, {"null"}},
       {R"({"type": "string", "enum": ["a"], "nullable": true})", {"null", "\"a\""}, {"\"b\""}},
       {R"({"allOf": [{"$ref": "#/$defs/n"}], "nullable": true, "$defs": {"n": {"type": "integer"}}})",
        {"null", "3"},
        {"\"\""}},
       {R"({"allOf": [{"type": "integer", "nullable": true}, {"minimum": 3}]})", {"null", "3"}, {"2"}},
       {R"({"allOf": [{"type": "integer", "nullable": true}, {"type": "integer"}]})", {"2"}, {"null"}},
       {R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "boolean", "nullable": true}, "nullable": true}}, "additionalProperties": false})",
        {R"({"a": null})", R"({"a": [null, true]})", "{}"},
        {"null", R"({"a": [1]})"}}});
}

TEST(JsonSchema, exclusive_bounds_of_draft_4_without_its_name) {
  expect({{R"({"type": "integer", "minimum": 0, "exclusiveMinimum": true})", {"1"}, {"0", "-1"}},
          {R"({"type": "integer", "minimum": 0, "exclusiveMinimum": false})", {"0", "1"}, {"-1"}},
          {R"({"type": "number", "maximum": 1, "exclusiveMaximum": true, "minimum": 0})", {"0", "0.99"}, {"1", "1.0", "-0.1"}},
          {R"({"type": "integer", "exclusiveMaximum": false, "minimum": 3})", {"3", "400"}, {"2"}}});
}

TEST(JsonSchema, null_stands_for_a_keyword_that_is_absent) {
  expect(
      {{R"({"type": "string", "format": null, "pattern": null, "enum": null, "maxLength": null, "minLength": 1, "$ref": null, "allOf": null, "anyOf": null, "nullable": null, "not": null, "if": null})",
        {"\"a\""},
        {"\"\"", "1"}},
       {R"({"type": "array", "items": null, "minItems": null, "maxItems": 1, "uniqueItems": null, "prefixItems": null})",
        {"[]", "[1]"},
        {"[1, 2]"}},
       {R"({"type": "object", "properties": null, "required": null, "additionalProperties": null, "propertyNames": null, "description": null})",
        {"{}", R"({"a": 1})"},
        {"[]"}},
       {R"({"type": "number", "minimum": null, "exclusiveMinimum": null, "multipleOf": null, "maximum": 3, "$schema": null})",
        {"3", "-2.5"},
        {"4"}},
       {R"({"const": null})", {"null"}, {"1"}},
       {R"({"enum": [null, 1]})", {"null", "1"}, {"2"}}});
}

TEST(JsonSchema, unique_elements) {
  std::string many = R"({"type": "array", "uniqueItems": true, "minItems": 2, "items": {"enum": [)";
  for (int i = 0; i < 60; ++i) many += (i == 0 ? "" : ",") + std::to_string(i);
  expect(
      {{R"({"type": "array", "uniqueItems": true, "items": {"enum": ["a", "b", 1, 1.0, null]}})",
        {"[]", R"(["a"])", R"(["b", "a"])", R"([null, 1, "b", "a"])"},
        {R"(["a", "a"])", R"([1, "b", 1])", R"(["c"])"}},
       {R"({"type": "array", "uniqueItems": true, "minItems": 2, "maxItems": 2, "items": {"type": ["boolean", "null"]}})",
        {"[true, null]", "[false,true]"},
        {"[true]", "[true, true]", "[true, false, null]"}},
       {R"({"type": "array", "uniqueItems": true, "minItems": 1, "items": {"anyOf": [{"const": "x"}, {"enum": ["yy", "zzz", "x"], "maxLength": 2}]}})",
        {R"(["yy", "x"])"},
        {"[]", R"(["zzz"])", R"(["x", "x"])"}},
       {many + "]}}", {"[0,1]", "[3, 20, 59]"}, {"[1]", "[1,1]", "[60,61]", "[2,1]"}},
       {many + R"(]}, "maxItems": 2})", {"[0,1]", "[59, 3]"}, {"[1]", "[1,1]", "[60,61]", "[3,2,1]"}},
       {R"({"type": "array", "uniqueItems": true, "maxItems": 1, "items": {"type": "string"}})",
        {"[]", R"(["a"])"},
        {R"(["a", "b"])"}},
       {R"({"type": "array", "uniqueItems": true, "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false})",
        {"[]", R"(["a", 1])"},
        {R"(["a", 1, 2])"}},
       {R"({"type": "array", "uniqueItems": true, "minItems": 3, "items": {"type": "boolean"}, "maxItems": 3, "nullable": true})",
        {"null"},
        {"[true,false]", "[true,false,true]"}},
       {R"({"type": "array", "uniqueItems": false, "items": {"type": "boolean"}})", {"[true, true]"}, {"[1]"}}});
}

TEST(JsonSchema, parts_of_all_of_follow_each_other_where_one_is_an_any_of) {
  const std::string part = R"({"type": "object", "properties": {"%": {}}, "required": ["%"]})";
  const auto with = [&](std::string name) {
    std::string one = part;
    for (std::size_t at = one.find('%'); at != std::string::npos; at = one.find('%')) one.replace(at, 1, name);
    return one;
  };
  const std::string choice = R"({"anyOf": [)" + with("b") + "," + R"({"allOf": [)" + with("c") + "," + with("d") + "]}]}";
  expect({{R"({"allOf": [)" + with("a") + "," + choice + "," + with("e") + "]}",
           {R"({"a": 1, "b": 2, "e": 3})", R"({"a": 1, "c": 2, "d": 3, "e": 4})"},
           {R"({"a": 1, "e": 3, "b": 2})", R"({"b": 1, "a": 2, "e": 3})", R"({"a": 1, "c": 2, "e": 3})"}},
          {R"({"allOf": [)" + choice + "," + with("a") + "]}", {R"({"b": 1, "a": 2})"}, {R"({"a": 1, "b": 2})"}},
          {R"({"allOf": [)" + choice + R"(, {"oneOf": [)" + with("x") + R"(, {"type": "null"}]}]})",
           {R"({"c": 1, "d": 2, "x": 3})"},
           {R"({"x": 3, "b": 1})", "null"}}});
  // The same through $ref, with the schema's own properties in front, and where two parts have a property in common.
  const std::string defs = R"("$defs": {"choice": )" + choice + R"(, "a": )" + with("a") + "}";
  expect(
      {{R"({"allOf": [{"$ref": "#/$defs/choice"}, {"$ref": "#/$defs/a"}], )" + defs + "}",
        {R"({"b": 1, "a": 2})", R"({"c": 1, "d": 2, "a": 3})"},
        {R"({"a": 1, "b": 2})", R"({"c": 1, "a": 2, "d": 3})"}},
       {R"({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/choice"}], )" + defs + "}",
        {R"({"a": 1, "b": 2})"},
        {R"({"b": 1, "a": 2})"}},
       {R"({"anyOf": [)" + with("b") + "," + with("c") + R"(], "type": "object", "properties": {"z": {}}, "required": ["z"]})",
        {R"({"z": 1, "b": 2})", R"({"z": 1, "c": 2})"},
        {R"({"b": 2, "z": 1})"}},
       {R"({"allOf": [)" + choice + "," + with("b") + "]}",
        {R"({"b": 1})", R"({"c": 1, "d": 2, "b": 3})"},
        {R"({"c": 1, "b": 2})", R"({"c": 1, "b": 2, "d": 3})"}}});
}

TEST(JsonSchema, patterns_look_ahead_at_their_front) {
  const std::string mail =
      R"x({"type": "string", "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})x";
  expect({{mail,
           {"\"a.b@example.com\"", "\"x@y.z-w.org\""},
           {"\".a@example.com\"", "\"a..b@example.com\"", "\"a@b..com\"", "\"a@b\"", "\"a.@b.com\""}}});
}

TEST(JsonSchema, strings_of_a_grammar_whose_rules_do_not_refer_to_themselves) {
  expect({{R"({"type": "string", "x-grammar": "start: line+\nline: \"+\" /[a-z\"]*/ LF\n%import common.LF"})",
           {R"("+a\n")", R"("+\n+\"b\n")"},
           {R"("")", R"("a\n")", R"("+a")"}},
          {R"({"type": "string", "x-grammar": "root ::= \"a\" b\nb ::= [0-9]{2}", "maxLength": 3})", {"\"a12\""}, {"\"a1\""}},
          {R"({"type": "string", "x-grammar": "root ::= [ab]+", "pattern": "aa", "minLength": 3})",
           {"\"aab\"", "\"baa\""},
           {"\"aa\"", "\"aba\"", "\"aac\""}},
          {R"({"enum": ["a", "c", 1], "x-grammar": "root ::= [ab]"})", {"\"a\"", "1"}, {"\"c\""}}});
}

TEST(JsonSchema, refuses_by_path_and_keyword) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"properties": {"a": {"not": {"type": "null"}}}})", "#/properties/a/not is not supported"},
      {R"({"items": {"if": {}}})", "#/items/if is not supported"},
      {R"({"uniqueItems": true})", "#/uniqueItems is supported for elements that are listed"},
      {R"({"items": {"uniqueItems": true, "maxItems": 2, "items": {"type": "string"}}})", "#/items/uniqueItems is supported"},
      {R"({"uniqueItems": true, "prefixItems": [{"type": "string"}, {}], "items": false})",
       "#/uniqueItems is not supported for a tuple that may have a value twice"},
      {R"({"uniqueItems": 1})", "#/uniqueItems must be true or false"},
      {R"({"nullable": "yes"})", "#/nullable must be true or false"},
      {R"({"properties": {"n": {"exclusiveMaximum": true}}})",
       "#/properties/n/exclusiveMaximum is true, and there is no 'maximum'"},
      {R"({"propertyNames": {"anyOf": [{"minLength": 2}, {"enum": ["a"]}]}})",
       "#/propertyNames/anyOf of names that are listed"},
      {R"({"properties": {"a": {"type": "string", "x-grammar": "root ::= \"a\" root | \"b\""}}})",
       "#/properties/a/x-grammar is refused: the rule 'root' refers to itself"},
      {R"({"type": "string", "x-grammar": "start: a"})",
       "#/x-grammar is refused: the grammar uses the rule 'a' and does not define it"},
      {R"({"type": "string", "x-grammar": 1})", "#/x-grammar must be a string"},
      {R"({"propertyNames": {"anyOf": [{"minLength": 2}, {"pattern": "a"}]}})",
       "#/propertyNames/anyOf of names is supported only"},
      {R"({"propertyNames": {"not": {"const": "a"}}})", "#/propertyNames/not is not supported"},
      {R"({"contains": {}})", "#/contains"},
      {R"({"dependentRequired": {}})", "#/dependentRequired"},
      {R"({"unevaluatedProperties": false})", "#/unevaluatedProperties"},
      {R"({"$dynamicRef": "#x"})", "#/$dynamicRef"},
      {R"({"oneOf": [{"minimum": 2}, {"type": "integer"}]})", "#/oneOf has alternatives that overlap"},
      {R"({"$ref": "#/$defs/x"})", "names nothing"},
      {R"({"$ref": "http://example.com/other"})", "names nothing"},
      {R"({"$ref": "#"})", "refers to itself"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "refers to itself"},
      {R"({"$schema": "http://example.com/mine"})", "is not one of drafts"},
      {R"x({"pattern": "(?<!b)a"})x", "#/pattern is refused: the regular expression has look-behind"},
      {R"({"format": "idn-email"})", "#/format 'idn-email' is not supported"},
      {R"({"type": "text"})", "#/type is \"text\", which is not a type"},
      {R"({"minLength": -1})", "#/minLength must be an integer"},
      {R"({"properties": {"a": 1}})", "#/properties/a must be a schema"},
      {R"({"required": "a"})", "#/required must be a list"},
      {R"({"enum": [{"a": 1}], "properties": {"a": {}}})", "#/properties beside an enum"},
      {"false", "no text can match"},
      {R"({"type": "object", "propertyNames": {"minLength": 2}, "required": ["a"]})", "no text can match"},
      {R"({"properties": {"a/b": {"items": {"type": "text~"}}}})", "#/properties/a~1b/items/type"},
      {R"({"properties": {"s": {"type": "string", "pattern": "^(.{211})*$", "allOf": [{"pattern": "^(.{223})*$"}]}}})",
       "the JSON schema: #/properties/s: patterns and lengths together need an automaton"},
      {R"({"type": "object", "propertyNames": {"minLength": 2}, "required": ["a"]})", "no text can match"},
      {R"({"properties": {"a/b": {"items": {"type": "text~"}}}})", "#/properties/a~1b/items/type"},
      {R"({"properties": {"s": {"type": "string", "pattern": "^(.{211})*$", "allOf": [{"pattern": "^(.{223})*$"}]}}})",
       "the JSON schema: #/properties/s: patterns and lengths together need an automaton"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "no text can match"},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})", "no text can match"},
      {"[1]", "must be an object or a boolean"},
      {"{", "the JSON schema"}};
  for (const auto& [schema, reason] : cases)
    EXPECT_NE(refusal(GrammarKind::json_schema, schema).find(reason), std::string::npos)
        << schema << ": " << refusal(GrammarKind::json_schema, schema);
}

TEST(JsonSchema, says_which_keywords_were_not_looked_at) {
  const auto grammar =
      compiled(GrammarKind::json_schema, R"({"title": "t", "x-own": 1, "properties": {"a": {"format": "int32", "kind": 2}}})");
  EXPECT_EQ(grammar.ignored, (std::vector<std::string>{"#/properties/a/format", "#/properties/a/kind", "#/x-own"}));
}

TEST(JsonSchema, spaces_are_bounded_or_absent) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "array"}}})";
  const auto readable = compiled(GrammarKind::json_schema, schema);
  EXPECT_TRUE(accepts(*readable.program, "{\r\n\t\"a\": [\n    1, 2\n  ]\n}"));
  for (const char* text : {" {}", "{} ", "{  }", "{\n\n}", "{\"a\" : []}", "{\"a\":  []}"})
    EXPECT_FALSE(accepts(*readable.program, text)) << text;
  const auto compact = compiled(GrammarKind::json_schema, schema, JsonSpaces::none);
  EXPECT_TRUE(accepts(*compact.program, "{\"a\":[1,2]}"));
  EXPECT_FALSE(accepts(*compact.program, "{\"a\": []}"));
}

TEST(JsonSchema, any_object) {
  const auto grammar = compiled(GrammarKind::json_object, "");
  EXPECT_TRUE(accepts(*grammar.program, "{\"a\": [{}, -0.5e-3, \"\\u00e9\"]}"));
  for (const char* text : {"[]", "1", "{\"a\":}", "{a: 1}"}) EXPECT_FALSE(accepts(*grammar.program, text)) << text;
}

TEST(SchemaCompiler, writes_several_parts_of_one_document) {
  UnlimitedWork work;
  const auto document = SchemaDocument::parse(
      R"({"properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/properties/a"}}, "$defs": {"n": {"type": "null"}}})",
      work.meter());
  ASSERT_TRUE(document.has_value()) << document.error().message;
  Expressions expressions(work.meter());
  JsonText text(expressions, JsonSpaces::none, work.meter());
  std::vector<std::string> ignored;
  SchemaCompiler compiler(*document, text, ignored, work.meter());
  const json::Value& parts = *json::find(document->root(), "properties");
  std::vector<ExprId> all{expressions.bytes("x=")};
  for (const char* name : {"a", "b"}) all.push_back(*compiler.rule_of({json::find(parts, name)}));
  ASSERT_TRUE(compiler.finish().has_value());
  const RuleId root = expressions.add_rule("root");
  expressions.define(root, expressions.sequence(std::move(all)));
  const auto program = Program::build(expressions, root, 1000, work.meter());
  ASSERT_TRUE(program.has_value()) << program.error().message;
  EXPECT_TRUE(accepts(*program, "x=nullnull"));
  EXPECT_FALSE(accepts(*program, "x=null1"));
}

TEST(SchemaDocument, cuts_long_paths) {
  UnlimitedWork work;
  const std::string name(5000, 'k');
  std::string schema = "{\"not\": {}}";
  for (int i = 0; i < 40; ++i) schema = "{\"properties\": {\"" + name + "\": " + schema + "}}";
  const std::string message = refusal(GrammarKind::json_schema, schema);
  EXPECT_NE(message.find("not is not supported"), std::string::npos) << message;
  EXPECT_LT(message.size(), kMaxPathBytes + 200);
}

TEST(SchemaDocument, resolves_addresses) {
  const std::vector<std::array<std::string, 3>> cases{{"http://a/b/c/d;p?q", "g", "http://a/b/c/g"},
                                                      {"http://a/b/c/d;p?q", "../../g", "http://a/g"},
                                                      {"http://a/b/c/d;p?q", "../../../g", "http://a/g"},
                                                      {"http://a/b/c/d;p?q", "//g", "http://g"},
                                                      {"http://a/b/c/d;p?q", "?y", "http://a/b/c/d;p?y"},
                                                      {"http://a/b/c/d;p?q", "#s", "http://a/b/c/d;p?q#s"},
                                                      {"http://a/b/c/d;p?q", "", "http://a/b/c/d;p?q"},
                                                      {"http://a/b/c/d;p?q", "./g/.", "http://a/b/c/g/"},
                                                      {"http://a", "g", "http://a/g"},
                                                      {"urn:uuid:x", "#/a", "urn:uuid:x#/a"},
                                                      {"", "x#y", "x#y"}};
  for (const auto& [base, reference, expected] : cases) EXPECT_EQ(resolve_uri(base, reference), expected) << reference;
}

TEST(JsonText, writes_decimals_without_exponent) {
  for (const auto& [text, expected] : {std::pair("1e3", "1000"),
                                       {"1.5e-3", "0.0015"},
                                       {"-2.0", "-2"},
                                       {"-0.0", "0"},
                                       {"1e-8", "0.00000001"},
                                       {"12", "12"},
                                       {"123.456e1", "1234.56"},
                                       {"18446744073709551615", "18446744073709551615"}})
    EXPECT_EQ(plain_decimal(*json::parse(text, "a number")), expected) << text;
}

}  // namespace
}  // namespace baton::grammar
