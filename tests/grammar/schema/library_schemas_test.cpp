/// Schemas as common libraries write them: fifty types of fields each of pydantic, zod and OpenAPI 3.0, in models with required
/// fields, optional fields and fields that may be null.
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/schema/schema_compiler.h"
#include "support/grammar_texts.h"

namespace baton::grammar {
namespace {

using testing::accepts;
using testing::compiled;
using testing::refusal;

struct FieldType {
  std::string_view schema;
  std::string_view valid;
  std::string_view invalid;
};

constexpr std::string_view kUuid = R"("2eb8aa08-aa98-11ea-b4aa-73b441d16380")";

/// `model_json_schema()` of pydantic 2.
const std::vector<FieldType> kPydantic{
    {R"({"type": "string"})", R"("a")", "1"},
    {R"({"type": "integer"})", "-3", "1.5"},
    {R"({"type": "number"})", "2.5e3", R"("1")"},
    {R"({"type": "boolean"})", "true", "0"},
    {R"({"type": "null"})", "null", "0"},
    {R"({})", R"({"a": [1]})", "nul"},
    {R"({"type": "string", "minLength": 3, "maxLength": 50})", R"("abc")", R"("ab")"},
    {R"({"type": "string", "maxLength": 1000000})", R"("abc")", "1"},
    {R"({"type": "string", "maxLength": 2147483648})", R"("abc")", "1"},
    {R"({"type": "string", "pattern": "^\\d{3}-\\d{4}$"})", R"("123-4567")", R"("1234567")"},
    {R"({"type": "string", "pattern": "^[A-Z]+$", "minLength": 1, "maxLength": 2000})", R"("AB")", R"("aB")"},
    {R"({"type": "integer", "exclusiveMinimum": 0})", "1", "0"},
    {R"({"type": "integer", "minimum": 0, "maximum": 65535})", "65535", "65536"},
    {R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})", "0.5", "1"},
    {R"({"type": "integer", "multipleOf": 5})", "15", "16"},
    {R"({"type": "number", "minimum": -90.0, "maximum": 90.0})", "-45.25", "90.5"},
    {R"({"format": "date", "type": "string"})", R"("2024-02-29")", R"("2023-02-29")"},
    {R"({"format": "date-time", "type": "string"})", R"("2024-05-01T10:00:00Z")", R"("2024-05-01")"},
    {R"({"format": "time", "type": "string"})", R"("10:00:00Z")", R"("10")"},
    {R"({"format": "duration", "type": "string"})", R"("P1DT2H")", R"("1 day")"},
    {R"({"format": "uuid", "type": "string"})", kUuid, R"("2eb8")"},
    {R"({"format": "uuid4", "type": "string"})", kUuid, "1"},
    {R"({"format": "email", "type": "string"})", R"("a@example.com")", R"("a")"},
    {R"({"format": "uri", "minLength": 1, "maxLength": 2083, "type": "string"})", R"("https://example.com/a?b#c")", R"("a b")"},
    {R"({"format": "uri", "minLength": 1, "type": "string"})", R"("ftp://example.com")", R"("")"},
    {R"({"format": "ipv4", "type": "string"})", R"("10.0.0.1")", R"("10.0.0.256")"},
    {R"({"format": "ipv6", "type": "string"})", R"("::1")", R"("1")"},
    {R"({"format": "ipvanyaddress", "type": "string"})", R"("10.0.0.1")", "1"},
    {R"({"format": "binary", "type": "string"})", R"("x")", "1"},
    {R"({"format": "base64url", "type": "string"})", R"("eA")", "1"},
    {R"({"format": "password", "type": "string", "writeOnly": true})", R"("x")", "1"},
    {R"({"format": "path", "type": "string"})", R"("/tmp/x")", "1"},
    {R"({"format": "json-string", "contentMediaType": "application/json", "contentSchema": {}, "type": "string"})", R"("{}")",
     "1"},
    {R"({"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}]})", R"("12.50")",
     R"("x")"},
    {R"({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}], "default": null})", "null", "1.5"},
    {R"({"enum": ["red", "green"], "type": "string"})", R"("red")", R"("blue")"},
    {R"({"enum": [1, 2, 3], "type": "integer"})", "2", "4"},
    {R"({"const": "cat", "type": "string"})", R"("cat")", R"("dog")"},
    {R"({"$ref": "#/$defs/Color"})", R"("green")", R"("x")"},
    {R"({"$ref": "#/$defs/Node", "description": "the root"})", R"({"value": 1, "next": {"value": 2}})", R"({"next": null})"},
    {R"({"items": {"type": "string"}, "type": "array"})", R"(["a", "a"])", "[1]"},
    {R"({"items": {"type": "integer"}, "maxItems": 3, "minItems": 1, "type": "array"})", "[1, 2]", "[]"},
    {R"({"items": {"$ref": "#/$defs/Color"}, "type": "array", "uniqueItems": true})", R"(["green", "red"])",
     R"(["red", "red"])"},
    {R"({"items": {"enum": ["a", "b", "c"], "type": "string"}, "type": "array", "uniqueItems": true, "maxItems": 2})",
     R"(["c", "a"])", R"(["a", "b", "c"])"},
    {R"({"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}], "type": "array"})",
     R"([1, "a"])", "[1]"},
    {R"({"additionalProperties": {"type": "integer"}, "type": "object"})", R"({"a": 1})", R"({"a": "x"})"},
    {R"({"additionalProperties": true, "type": "object"})", R"({"a": "x"})", "[]"},
    {R"({"additionalProperties": {"type": "number"}, "propertyNames": {"enum": ["red", "green"]}, "type": "object"})",
     R"({"green": 1})", R"({"blue": 1})"},
    {R"({"additionalProperties": {"type": "string"}, "propertyNames": {"format": "uuid"}, "type": "object"})",
     R"({"2eb8aa08-aa98-11ea-b4aa-73b441d16380": "x"})", R"({"2": "x"})"},
    {R"({"discriminator": {"mapping": {"c": "#/$defs/Cat", "d": "#/$defs/Dog"}, "propertyName": "kind"}, "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]})",
     R"({"kind": "d", "barks": true})", R"({"kind": "e"})"},
};

/// `z.toJSONSchema()` of zod 4, and zod-to-json-schema.
const std::vector<FieldType> kZod{
    {R"({"type": "string"})", R"("a")", "1"},
    {R"({"type": "string", "minLength": 1})", R"("a")", R"("")"},
    {R"({"type": "string", "minLength": 5, "maxLength": 5})", R"("abcde")", R"("abcd")"},
    {R"({"type": "string", "maxLength": 255, "pattern": "^[a-z0-9-]+$"})", R"("a-1")", R"("A")"},
    {R"({"type": "number"})", "1.5", "true"},
    {R"({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991})", "-5", "9007199254740992"},
    {R"({"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991})", "5", "0"},
    {R"({"type": "integer", "minimum": -2147483648, "maximum": 2147483647})", "2147483647", "2147483648"},
    {R"({"type": "number", "minimum": 0})", "0", "-1"},
    {R"({"type": "number", "multipleOf": 0.01})", "0.25", "0.255"},
    {R"({"type": "boolean"})", "false", "null"},
    {R"({"type": "null"})", "null", "0"},
    {R"({})", "[]", "["},
    {R"({"not": {}})", "", ""},
    {R"({"type": "string", "const": "a"})", R"("a")", R"("b")"},
    {R"({"type": "number", "const": 7})", "7", "8"},
    {R"({"type": "string", "enum": ["a", "b"]})", R"("b")", R"("c")"},
    {R"({"type": "number", "enum": [1, 2]})", "1", "3"},
    {R"x({"type": "string", "format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})x",
     R"("a.b@example.com")", R"("a..b@example.com")"},
    {R"({"type": "string", "format": "uri"})", R"("https://example.com")", R"("x y")"},
    {R"x({"type": "string", "format": "uuid", "pattern": "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$"})x",
     R"("2eb8aa08-aa98-11ea-b4aa-73b441d16380")", R"("2eb8aa08-aa98-01ea-b4aa-73b441d16380")"},
    {R"({"type": "string", "format": "guid", "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"})",
     kUuid, R"("2")"},
    {R"({"type": "string", "format": "cuid", "pattern": "^[cC][^\\s-]{8,}$"})", R"("cabcdefgh")", R"("c-")"},
    {R"({"type": "string", "format": "cuid2", "pattern": "^[0-9a-z]+$"})", R"("a1")", R"("A")"},
    {R"({"type": "string", "format": "ulid", "pattern": "^[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26}$"})",
     R"("01ARZ3NDEKTSV4RRFFQ69G5FAV")", R"("01")"},
    {R"({"type": "string", "format": "nanoid", "pattern": "^[a-zA-Z0-9_-]{21}$"})", R"("V1StGXR8_Z5jdHi6B-myT")", R"("V1")"},
    {R"x({"type": "string", "format": "date-time", "pattern": "^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))T(?:(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:\\.\\d+)?)?(?:Z))$"})x",
     R"("2024-02-29T12:00:00Z")", R"("2023-02-29T12:00:00Z")"},
    {R"x({"type": "string", "format": "date", "pattern": "^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))$"})x",
     R"("2024-02-29")", R"("2023-02-29")"},
    {R"x({"type": "string", "format": "duration", "pattern": "^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)$"})x",
     R"("P1DT2H")", R"("P")"},
    {R"x({"type": "string", "format": "ipv4", "pattern": "^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])\\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])$"})x",
     R"("10.0.0.1")", R"("10.0.0")"},
    {R"x({"type": "string", "format": "base64", "contentEncoding": "base64", "pattern": "^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$"})x",
     R"("YWI=")", R"("YW")"},
    {R"({"type": "string", "format": "e164", "pattern": "^\\+[1-9]\\d{6,14}$"})", R"("+4930123456")", R"("030")"},
    {R"({"type": "string", "pattern": "^pre.*"})", R"("prefix")", R"("xpre")"},
    {R"({"type": "string", "pattern": ".*suf$"})", R"("xsuf")", R"("suff")"},
    {R"({"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "z$"}]})", R"("abz")", R"("ab")"},
    {R"({"type": "string", "pattern": "^(?=.*[A-Z])(?=.*\\d).+$", "minLength": 4, "maxLength": 64})", R"("abC1")", R"("abc1")"},
    {R"({"type": "array", "items": {"type": "string"}})", R"(["a"])", "[1]"},
    {R"({"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 10})", "[1]", "[]"},
    {R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]})", R"(["a", 1])", "[1]"},
    {R"({"type": "array", "items": [{"type": "string"}, {"type": "number"}], "minItems": 2, "maxItems": 2})", R"(["a", 1])",
     R"(["a"])"},
    {R"({"type": "array", "uniqueItems": true, "items": {"type": "string", "enum": ["x", "y"]}})", R"(["y", "x"])",
     R"(["x", "x"])"},
    {R"({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}})", R"({"a": 1})",
     R"({"a": ""})"},
    {R"({"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]}, "additionalProperties": {"type": "number"}, "required": ["a", "b"]})",
     R"({"a": 1, "b": 2})", R"({"a": 1})"},
    {R"({"type": "object", "propertyNames": {"type": "string", "pattern": "^k_"}, "additionalProperties": {}})",
     R"({"k_a": 1})", R"({"a": 1})"},
    {R"({"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": false})",
     R"({"x": 1})", R"({"x": 1, "y": 2})"},
    {R"({"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": {}})", R"({"x": 1, "y": 2})",
     R"({"x": ""})"},
    {R"({"anyOf": [{"type": "string"}, {"type": "number"}]})", "1", "true"},
    {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "null", "1"},
    {R"({"oneOf": [{"type": "object", "properties": {"t": {"type": "string", "const": "a"}}, "required": ["t"], "additionalProperties": false}, {"type": "object", "properties": {"t": {"type": "string", "const": "b"}, "n": {"type": "number"}}, "required": ["t", "n"], "additionalProperties": false}]})",
     R"({"t": "b", "n": 1})", R"({"t": "b"})"},
    {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"anyOf": [{"type": "object", "properties": {"b": {"type": "number"}}, "required": ["b"]}, {"type": "object", "properties": {"c": {"type": "number"}}, "required": ["c"]}]}]})",
     R"({"a": "", "c": 1})", R"({"a": ""})"},
    {R"({"$ref": "#/$defs/Node"})", R"({"value": 1, "next": null})", "{}"},
    {R"({"default": "x", "type": "string", "description": "d", "title": "T", "examples": ["a"], "deprecated": true})", R"("a")",
     "1"},
};

/// Schema objects of OpenAPI 3.0.
const std::vector<FieldType> kOpenApi{
    {R"({"type": "string"})", R"("a")", "1"},
    {R"({"type": "string", "nullable": true})", "null", "1"},
    {R"({"type": "string", "nullable": false, "example": "a"})", R"("a")", "null"},
    {R"({"type": "string", "enum": ["a", "b"], "nullable": true})", "null", R"("c")"},
    {R"({"type": "string", "enum": ["a", "b", null], "nullable": true})", "null", R"("c")"},
    {R"({"type": "string", "enum": ["a"], "default": "a", "x-enum-varnames": ["A"]})", R"("a")", "null"},
    {R"({"type": "integer", "format": "int32"})", "1", "1.5"},
    {R"({"type": "integer", "format": "int64", "minimum": 0, "exclusiveMinimum": true})", "1", "0"},
    {R"({"type": "integer", "minimum": 1, "maximum": 100, "exclusiveMaximum": true})", "99", "100"},
    {R"({"type": "integer", "minimum": 1, "exclusiveMinimum": false})", "1", "0"},
    {R"({"type": "number", "format": "float"})", "1.5", R"("1.5")"},
    {R"({"type": "number", "format": "double", "nullable": true})", "null", "true"},
    {R"({"type": "number", "minimum": 0, "maximum": 1, "exclusiveMinimum": true, "exclusiveMaximum": true})", "0.5", "1"},
    {R"({"type": "number", "multipleOf": 0.5})", "1.5", "1.2"},
    {R"({"type": "boolean", "default": false})", "true", "1"},
    {R"({"type": "boolean", "nullable": true})", "null", "0"},
    {R"({"type": "string", "format": "date"})", R"("2024-02-29")", R"("x")"},
    {R"({"type": "string", "format": "date-time", "nullable": true})", "null", R"("x")"},
    {R"({"type": "string", "format": "byte"})", R"("eA==")", "1"},
    {R"({"type": "string", "format": "binary"})", R"("x")", "1"},
    {R"({"type": "string", "format": "password"})", R"("x")", "1"},
    {R"({"type": "string", "format": "email", "maxLength": 320})", R"("a@example.com")", R"("a")"},
    {R"({"type": "string", "format": "uuid", "maxLength": 36, "minLength": 36})", kUuid, R"("2")"},
    {R"({"type": "string", "format": "uri", "maxLength": 2048})", R"("https://example.com")", R"("a b")"},
    {R"({"type": "string", "format": "uri-reference", "maxLength": 2000})", R"("/a/b")", R"("a b")"},
    {R"({"type": "string", "format": "hostname", "maxLength": 253})", R"("example.com")", R"("-a")"},
    {R"({"type": "string", "format": "ipv4"})", R"("10.0.0.1")", R"("10")"},
    {R"({"type": "string", "minLength": 0, "maxLength": 2147483647})", R"("a")", "1"},
    {R"({"type": "string", "minLength": 1, "maxLength": 65535})", R"("a")", R"("")"},
    {R"({"type": "string", "pattern": "^[A-Z]{2}$"})", R"("DE")", R"("D")"},
    {R"({"type": "string", "pattern": "[a-z]", "maxLength": 4096})", R"("1a")", R"("1")"},
    {R"({"type": "string", "pattern": null, "format": null, "enum": null, "minLength": null})", R"("a")", "1"},
    {R"({"type": "array", "items": {"type": "string"}, "nullable": true})", "null", "{}"},
    {R"({"type": "array", "items": {"type": "string", "nullable": true}})", "[null]", "[1]"},
    {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 5})", "[1]", "[]"},
    {R"({"type": "array", "items": {"type": "string", "enum": ["x", "y", "z"]}, "uniqueItems": true})", R"(["z", "x"])",
     R"(["x", "x"])"},
    {R"({"type": "array", "items": {"type": "string"}, "uniqueItems": false})", R"(["x", "x"])", "[1]"},
    {R"({"type": "array", "items": {}, "maxItems": null})", "[1]", "1"},
    {R"({"type": "object"})", R"({"a": 1})", "[]"},
    {R"({"type": "object", "additionalProperties": {"type": "string"}})", R"({"a": "b"})", R"({"a": 1})"},
    {R"({"type": "object", "additionalProperties": true, "nullable": true})", "null", "[]"},
    {R"({"type": "object", "properties": {"a": {"type": "string", "nullable": true}}, "required": ["a"]})", R"({"a": null})",
     "{}"},
    {R"({"type": "object", "properties": {"a": {"type": "string", "readOnly": true}}, "additionalProperties": false})", "{}",
     R"({"b": 1})"},
    {R"({"type": "object", "maxProperties": 2, "minProperties": 1, "additionalProperties": {"type": "integer"}})",
     R"({"a": 1})", "{}"},
    {R"({"$ref": "#/definitions/Pet"})", R"({"name": "a"})", "{}"},
    {R"({"nullable": true, "allOf": [{"$ref": "#/definitions/Pet"}]})", "null", "{}"},
    {R"({"allOf": [{"$ref": "#/definitions/Pet"}, {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}]})",
     R"({"name": "a", "age": 1})", R"({"name": "a"})"},
    {R"({"oneOf": [{"$ref": "#/definitions/Cat"}, {"$ref": "#/definitions/Dog"}], "discriminator": {"propertyName": "kind", "mapping": {"c": "#/definitions/Cat"}}})",
     R"({"kind": "c"})", R"({"kind": "x"})"},
    {R"({"anyOf": [{"type": "string"}, {"type": "integer", "nullable": true}]})", "null", "1.5"},
    {R"({"type": "string", "description": "d", "externalDocs": {"url": "http://a"}, "xml": {"name": "n"}, "deprecated": true})",
     R"("a")", "1"},
};

constexpr std::string_view kDefs =
    R"("Color": {"enum": ["red", "green"], "title": "Color", "type": "string"},
       "Node": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/DEFS/Node"}, {"type": "null"}], "default": null}}, "required": ["value"], "additionalProperties": false},
       "Cat": {"type": "object", "properties": {"kind": {"const": "c", "type": "string"}}, "required": ["kind"], "additionalProperties": false},
       "Dog": {"type": "object", "properties": {"kind": {"const": "d", "type": "string"}, "barks": {"type": "boolean"}}, "required": ["kind"], "additionalProperties": false},
       "Pet": {"type": "object", "properties": {"name": {"type": "string"}, "tag": {"type": "string", "nullable": true}}, "required": ["name"]})";

/// A model with fields "f0", "f1"...
std::string model(std::string_view dialect, std::string_view defs, const std::vector<std::string>& fields, bool are_required) {
  std::string properties;
  std::string required;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    properties += fmt::format("{}\"f{}\": {}", i == 0 ? "" : ", ", i, fields[i]);
    required += fmt::format("{}\"f{}\"", i == 0 ? "" : ", ", i);
  }
  std::string definitions(kDefs);
  for (std::size_t at = definitions.find("DEFS"); at != std::string::npos; at = definitions.find("DEFS"))
    definitions.replace(at, 4, defs);
  return fmt::format(
      R"({{{}"{}": {{{}}}, "type": "object", "title": "Model", "properties": {{{}}}{}, "additionalProperties": false}})",
      dialect, defs, definitions, properties, are_required ? fmt::format(", \"required\": [{}]", required) : "");
}

void expect_fields(const std::vector<FieldType>& types, std::string_view dialect, std::string_view defs) {
  std::vector<std::string> all;
  std::string value_of_all = "{";
  for (const FieldType& type : types) {
    const std::string schema(type.schema);
    if (type.valid.empty()) {  // no value: zod's never()
      EXPECT_NE(refusal(GrammarKind::json_schema, model(dialect, defs, {schema}, true)).find("#/properties/f0/not"),
                std::string::npos);
      continue;
    }
    const std::string valid = fmt::format("{{\"f0\": {}}}", type.valid);
    const std::string invalid = fmt::format("{{\"f0\": {}}}", type.invalid);
    const std::string required_model = model(dialect, defs, {schema}, true);
    ASSERT_EQ(refusal(GrammarKind::json_schema, required_model), "") << schema;
    const auto required = compiled(GrammarKind::json_schema, required_model);
    EXPECT_TRUE(accepts(*required.program, valid)) << schema << valid;
    EXPECT_FALSE(accepts(*required.program, invalid)) << schema << invalid;
    EXPECT_FALSE(accepts(*required.program, "{}")) << schema;
    const auto optional = compiled(
        GrammarKind::json_schema,
        model(dialect, defs, {fmt::format(R"({{"anyOf": [{}, {{"type": "null"}}], "default": null}})", schema)}, false));
    for (const std::string& text : {valid, std::string("{\"f0\": null}"), std::string("{}")})
      EXPECT_TRUE(accepts(*optional.program, text)) << schema << text;
    EXPECT_FALSE(accepts(*optional.program, invalid) && type.invalid != "null") << schema;
    value_of_all += fmt::format("{}\"f{}\": {}", all.empty() ? "" : ", ", all.size(), type.valid);
    all.push_back(schema);
  }
  const auto whole = compiled(GrammarKind::json_schema, model(dialect, defs, all, true));
  EXPECT_TRUE(accepts(*whole.program, value_of_all + "}"));
}

TEST(LibrarySchemas, of_pydantic) {
  ASSERT_GE(kPydantic.size(), 50u);
  expect_fields(kPydantic, "", "$defs");
}

TEST(LibrarySchemas, of_zod) {
  ASSERT_GE(kZod.size(), 50u);
  expect_fields(kZod, R"("$schema": "https://json-schema.org/draft/2020-12/schema", )", "$defs");
  expect_fields(kZod, R"("$schema": "http://json-schema.org/draft-07/schema#", )", "$defs");
}

TEST(LibrarySchemas, of_open_api) {
  ASSERT_GE(kOpenApi.size(), 50u);
  expect_fields(kOpenApi, "", "definitions");
}

}  // namespace
}  // namespace baton::grammar
