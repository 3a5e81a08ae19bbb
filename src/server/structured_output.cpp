/// The fields that hold grammars, each read by a row of a table.
#include "server/structured_output.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/openai_values.h"

namespace baton {
namespace {

using grammar::GrammarKind;
using grammar::JsonSpaces;
using json::Value;
using openai::bad;
using openai::find_given;
using Output = std::optional<StructuredOutput>;

constexpr std::size_t kMaxNameBytes = 64;

tl::unexpected<Error> not_supported(const std::string& field, std::string_view accepted) {
  return bad(field, fmt::format("'{}' is not supported by this server; the value accepted is {}", field, accepted));
}

/// Refuses a key that nothing reads.
Result<void> refuse_other_keys(const Value& object, const std::string& field, std::span<const std::string_view> keys) {
  for (const auto& [name, value] : object.get_ref<const Value::object_t&>()) {
    if (value.is_null() || std::ranges::find(keys, name) != keys.end()) continue;
    const std::string path = fmt::format("{}.{}", field, name.substr(0, kMaxNameBytes));
    return bad(path, fmt::format("'{}' is not known to this server; it reads {}", path, fmt::join(keys, ", ")));
  }
  return {};
}

Result<Output> schema_of(const Value& value, const std::string& field, JsonSpaces spaces) {
  return schema_output(value, field, spaces);
}

Result<Output> text_of(GrammarKind kind, const Value& value, const std::string& field, JsonSpaces spaces) {
  if (!value.is_string()) return json::wrong_type(field, "a string", value);
  return StructuredOutput{{kind, value.get_ref<const std::string&>(), spaces}, field};
}
Result<Output> regex_of(const Value& value, const std::string& field, JsonSpaces spaces) {
  return text_of(GrammarKind::regex, value, field, spaces);
}
/// Clients of llama.cpp send "" for no grammar.
Result<Output> grammar_of(const Value& value, const std::string& field, JsonSpaces spaces) {
  if (value.is_string() && value.get_ref<const std::string&>().empty()) return Output{};
  return text_of(GrammarKind::ebnf, value, field, spaces);
}

Result<Output> choice_of(const Value& value, const std::string& field, JsonSpaces spaces) {
  const bool is_list = value.is_array() && std::ranges::all_of(value, [](const Value& one) { return one.is_string(); });
  if (!is_list) return json::wrong_type(field, "a list of strings", value);
  if (value.empty()) return bad(field, fmt::format("'{}' must hold at least one string", field));
  return StructuredOutput{{GrammarKind::choice, json::dump(value), spaces}, field};
}

Result<Output> object_of(const Value& value, const std::string& field, JsonSpaces spaces) {
  if (!value.is_boolean()) return json::wrong_type(field, "true or false", value);
  if (!value.get<bool>()) return Output{};
  return StructuredOutput{{GrammarKind::json_object, {}, spaces}, field};
}

/// An object {"type": "structural_tag", ...}, or its text.
Result<Output> tag_of(const Value& value, const std::string& field, JsonSpaces spaces) {
  if (value.is_object()) return StructuredOutput{{GrammarKind::structural_tag, json::dump(value), spaces}, field};
  if (!value.is_string()) return json::wrong_type(field, "an object, or the text of one", value);
  return text_of(GrammarKind::structural_tag, value, field, spaces);
}

/// A key that holds a grammar.
struct GrammarKey {
  std::string_view name;
  Result<Output> (*read)(const Value&, const std::string& field, JsonSpaces spaces);
};

/// The keys of `structured_outputs`.
constexpr GrammarKey kKeys[] = {{"json", schema_of},     {"regex", regex_of},        {"choice", choice_of},
                                {"grammar", grammar_of}, {"json_object", object_of}, {"structural_tag", tag_of}};

/// Fields of a request with one grammar each: older vLLM, llama.cpp.
constexpr GrammarKey kFields[] = {
    {"guided_json", schema_of},        {"guided_regex", regex_of}, {"guided_choice", choice_of}, {"guided_grammar", grammar_of},
    {"guided_json_object", object_of}, {"json_schema", schema_of}, {"grammar", grammar_of}};

tl::unexpected<Error> two_grammars(const std::string& one, const std::string& other) {
  return bad(other, fmt::format("'{}' and '{}' both say what the answer must keep to; only one may be given", one, other));
}

/// Reads the keys of a table that are given. Error: more than one of them.
Result<Output> read_keys(const Value& object, std::string_view path, std::span<const GrammarKey> keys, JsonSpaces spaces) {
  Output found;
  for (const GrammarKey& key : keys) {
    const Value* value = find_given(object, key.name);
    if (value == nullptr) continue;
    BATON_TRY(Output output, key.read(*value, fmt::format("{}{}", path, key.name), spaces));
    if (output && found) return two_grammars(found->field, output->field);
    if (output) found = std::move(output);
  }
  return found;
}

/// A pattern of the spaces between tokens of JSON: only the empty one says what a grammar here can do.
Result<void> check_whitespace_pattern(const Value* pattern, const std::string& field, JsonSpaces& spaces) {
  if (pattern == nullptr) return {};
  if (!pattern->is_string() || !pattern->get_ref<const std::string&>().empty())
    return not_supported(field, "\"\" (no spaces) or null (a space or a line end between tokens)");
  spaces = JsonSpaces::none;
  return {};
}

Result<void> check_backend(const Value* backend, const std::string& field) {
  if (backend == nullptr || (backend->is_string() && backend->get_ref<const std::string&>() == "auto")) return {};
  return not_supported(field, "\"auto\"");
}

Result<Output> parse_structured_outputs(const Value& object, JsonSpaces spaces) {
  const std::string field = "structured_outputs";
  if (!object.is_object()) return json::wrong_type(field, "an object", object);
  constexpr std::string_view kRead[] = {"json",
                                        "regex",
                                        "choice",
                                        "grammar",
                                        "json_object",
                                        "disable_any_whitespace",
                                        "whitespace_pattern",
                                        "structural_tag",
                                        "disable_fallback",
                                        "backend"};
  BATON_TRY_VOID(refuse_other_keys(object, field, kRead));
  BATON_TRY_VOID(check_whitespace_pattern(find_given(object, "whitespace_pattern"), field + ".whitespace_pattern", spaces));
  BATON_TRY_VOID(check_backend(find_given(object, "backend"), field + ".backend"));
  for (const std::string_view name : {"disable_any_whitespace", "disable_fallback"}) {  // there is no other backend
    const Value* value = find_given(object, name);
    if (value == nullptr) continue;
    if (!value->is_boolean()) return json::wrong_type(fmt::format("{}.{}", field, name), "true or false", *value);
    if (name == "disable_any_whitespace" && value->get<bool>()) spaces = JsonSpaces::none;
  }
  BATON_TRY(Output output, read_keys(object, field + ".", kKeys, spaces));
  const bool is_neutral = std::ranges::all_of(object, [](const Value& value) { return value.is_null(); });
  if (!output && !is_neutral)
    return bad(field, fmt::format("'{}' must hold one of json, regex, choice, grammar, json_object and structural_tag", field));
  return output;
}

/// OpenAI's {"type": "json_schema", "json_schema": {"name", "schema", ...}}.
Result<Output> parse_named_schema(const Value& object, JsonSpaces spaces) {
  const std::string field = "response_format.json_schema";
  if (!object.is_object()) return json::wrong_type(field, "an object", object);
  constexpr std::string_view kRead[] = {"name", "schema", "strict", "description"};
  BATON_TRY_VOID(refuse_other_keys(object, field, kRead));
  for (const std::string_view name : {"name", "description"})
    if (const Value* value = find_given(object, name); value != nullptr && !value->is_string())
      return json::wrong_type(fmt::format("{}.{}", field, name), "a string", *value);
  if (const Value* strict = find_given(object, "strict"); strict != nullptr && !strict->is_boolean())
    return json::wrong_type(field + ".strict", "true or false", *strict);
  const Value* schema = find_given(object, "schema");
  if (schema == nullptr) return bad(field + ".schema", fmt::format("'{}.schema' is missing", field));
  return schema_output(*schema, field + ".schema", spaces);
}

Result<Output> parse_response_format(const Value& format, JsonSpaces spaces) {
  const std::string field = "response_format";
  if (!format.is_object()) return json::wrong_type(field, "an object", format);
  if (format.empty()) return Output{};
  const Value* type = find_given(format, "type");
  if (type == nullptr || !type->is_string()) return bad(field + ".type", "'response_format.type' must be a string");
  const std::string& name = type->get_ref<const std::string&>();
  const auto only = [&](std::initializer_list<std::string_view> keys) {
    return refuse_other_keys(format, field, std::vector(keys));
  };
  if (name == "text") {
    BATON_TRY_VOID(only({"type"}));
    return Output{};
  }
  if (name == "grammar") {  // OpenAI's ResponseFormatTextGrammar
    BATON_TRY_VOID(only({"type", "grammar"}));
    const Value* text = find_given(format, "grammar");
    if (text == nullptr) return bad(field + ".grammar", "'response_format.grammar' is missing");
    return text_of(GrammarKind::ebnf, *text, field + ".grammar", spaces);
  }
  if (name == "structural_tag") return tag_of(format, field, spaces);
  if (name != "json_object" && name != "json_schema")
    return bad(field + ".type",
               fmt::format("'response_format.type' is \"{}\", which is not supported by this server; the values accepted are "
                           "\"text\", \"json_object\", \"json_schema\", \"grammar\" and \"structural_tag\"",
                           name.substr(0, kMaxNameBytes)));
  // llama.cpp takes a schema beside either type.
  const Value* named = name == "json_schema" ? find_given(format, "json_schema") : nullptr;
  const Value* schema = find_given(format, "schema");
  if (named != nullptr) {
    BATON_TRY_VOID(only({"type", "json_schema"}));
    return parse_named_schema(*named, spaces);
  }
  BATON_TRY_VOID(only({"type", "schema"}));
  if (schema != nullptr) return schema_output(*schema, field + ".schema", spaces);
  if (name == "json_schema") return bad(field + ".json_schema", "'response_format.json_schema' is missing");
  return StructuredOutput{{GrammarKind::json_object, {}, spaces}, field};
}

}  // namespace

Result<StructuredOutput> schema_output(const Value& schema, std::string field, JsonSpaces spaces) {
  if (schema.is_object() || schema.is_boolean())
    return StructuredOutput{{GrammarKind::json_schema, json::dump(schema), spaces}, std::move(field)};
  if (!schema.is_string()) return json::wrong_type(field, "a JSON schema (an object)", schema);
  const auto parsed = json::parse(schema.get_ref<const std::string&>(), "the schema");
  if (!parsed) return bad(field, fmt::format("'{}': {}", field, parsed.error().message));
  if (!parsed->is_object() && !parsed->is_boolean())
    return bad(field,
               fmt::format("'{}' must be a JSON schema (an object), not the text of {}", field, json::describe_type(*parsed)));
  return StructuredOutput{{GrammarKind::json_schema, json::dump(*parsed), spaces}, std::move(field)};
}

Result<std::optional<StructuredOutput>> parse_structured_output(const Value& body, JsonSpaces spaces) {
  BATON_TRY_VOID(check_backend(find_given(body, "guided_decoding_backend"), "guided_decoding_backend"));
  JsonSpaces guided = spaces;
  BATON_TRY_VOID(check_whitespace_pattern(find_given(body, "guided_whitespace_pattern"), "guided_whitespace_pattern", guided));
  BATON_TRY(Output output, read_keys(body, "", kFields, guided));
  const auto add = [&](std::string_view name, auto parse) -> Result<void> {
    const Value* value = find_given(body, name);
    if (value == nullptr) return {};
    BATON_TRY(Output other, parse(*value, spaces));
    if (other && output) return two_grammars(output->field, other->field);
    if (other) output = std::move(other);
    return {};
  };
  BATON_TRY_VOID(add("structured_outputs", parse_structured_outputs));
  BATON_TRY_VOID(add("response_format", parse_response_format));
  return output;
}

}  // namespace baton
