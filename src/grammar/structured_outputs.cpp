/// The fields that hold grammars, each read by a row of a table.
#include "grammar/structured_outputs.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton::grammar {
namespace {

using json::Value;
using FoundGrammar = std::optional<FieldGrammar>;

constexpr std::size_t kMaxNameBytes = 64;

/// The keys of `structured_outputs`.
constexpr GrammarKey kGrammarKeys[] = {{"json", read_schema},
                                       {"regex", read_regex},
                                       {"choice", read_choice},
                                       {"grammar", read_ebnf},
                                       {"json_object", read_json_object},
                                       {"structural_tag", read_structural_tag}};

tl::unexpected<Error> bad_field(const std::string& field, std::string message) {
  return fail(ErrorCode::invalid_request, std::move(message), field);
}

tl::unexpected<Error> not_supported(const std::string& field, std::string_view accepted) {
  return bad_field(field, fmt::format("'{}' is not supported; the value accepted is {}", field, accepted));
}

const Value* find_not_null(const Value& object, std::string_view key) {
  const Value* value = json::find(object, key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<FoundGrammar> read_text(GrammarKind kind, const Value& value, const std::string& field, JsonSpaces spaces) {
  if (!value.is_string()) return json::wrong_type(field, "a string", value);
  return field_grammar(kind, value.get_ref<const std::string&>(), spaces, field);
}

}  // namespace

FieldGrammar field_grammar(GrammarKind kind, std::string text, JsonSpaces spaces, std::string field) {
  FieldGrammar made;
  made.source.kind = kind;
  made.source.text = std::move(text);
  made.source.spaces = spaces;
  made.field = std::move(field);
  return made;
}

Result<FoundGrammar> read_schema(const Value& schema, const std::string& field, JsonSpaces spaces) {
  if (schema.is_object() || schema.is_boolean())
    return field_grammar(GrammarKind::json_schema, json::dump(schema), spaces, field);
  if (!schema.is_string()) return json::wrong_type(field, "a JSON schema (an object)", schema);
  const auto parsed = json::parse(schema.get_ref<const std::string&>(), "the schema");
  if (!parsed) return bad_field(field, fmt::format("'{}': {}", field, parsed.error().message));
  if (!parsed->is_object() && !parsed->is_boolean())
    return bad_field(
        field, fmt::format("'{}' must be a JSON schema (an object), not the text of {}", field, json::describe_type(*parsed)));
  return field_grammar(GrammarKind::json_schema, json::dump(*parsed), spaces, field);
}

Result<FoundGrammar> read_regex(const Value& value, const std::string& field, JsonSpaces spaces) {
  return read_text(GrammarKind::regex, value, field, spaces);
}

Result<FoundGrammar> read_ebnf(const Value& value, const std::string& field, JsonSpaces spaces) {
  if (value.is_string() && value.get_ref<const std::string&>().empty()) return FoundGrammar{};
  return read_text(GrammarKind::ebnf, value, field, spaces);
}

Result<FoundGrammar> read_choice(const Value& value, const std::string& field, JsonSpaces spaces) {
  const bool is_list = value.is_array() && std::ranges::all_of(value, [](const Value& one) { return one.is_string(); });
  if (!is_list) return json::wrong_type(field, "a list of strings", value);
  if (value.empty()) return bad_field(field, fmt::format("'{}' must hold at least one string", field));
  return field_grammar(GrammarKind::choice, json::dump(value), spaces, field);
}

Result<FoundGrammar> read_json_object(const Value& value, const std::string& field, JsonSpaces spaces) {
  if (!value.is_boolean()) return json::wrong_type(field, "true or false", value);
  if (!value.get<bool>()) return FoundGrammar{};
  return field_grammar(GrammarKind::json_object, {}, spaces, field);
}

Result<FoundGrammar> read_structural_tag(const Value& value, const std::string& field, JsonSpaces spaces) {
  if (value.is_object()) return field_grammar(GrammarKind::structural_tag, json::dump(value), spaces, field);
  if (!value.is_string()) return json::wrong_type(field, "an object, or the text of one", value);
  return read_text(GrammarKind::structural_tag, value, field, spaces);
}

tl::unexpected<Error> two_grammars(const std::string& one, const std::string& other) {
  return bad_field(other,
                   fmt::format("'{}' and '{}' both say what the answer must keep to; only one may be given", one, other));
}

Result<FoundGrammar> read_grammar_keys(const Value& object, std::string_view path, std::span<const GrammarKey> keys,
                                       JsonSpaces spaces) {
  FoundGrammar found;
  for (const GrammarKey& key : keys) {
    const Value* value = find_not_null(object, key.name);
    if (value == nullptr) continue;
    BATON_TRY(FoundGrammar grammar, key.read(*value, fmt::format("{}{}", path, key.name), spaces));
    if (grammar && found) return two_grammars(found->field, grammar->field);
    if (grammar) found = std::move(grammar);
  }
  return found;
}

Result<void> refuse_other_keys(const Value& object, const std::string& field, std::span<const std::string_view> read) {
  for (const auto& [name, value] : object.get_ref<const Value::object_t&>()) {
    if (value.is_null() || std::ranges::find(read, name) != read.end()) continue;
    const std::string path = fmt::format("{}.{}", field, name.substr(0, kMaxNameBytes));
    return bad_field(path, fmt::format("'{}' is not known; read are {}", path, fmt::join(read, ", ")));
  }
  return {};
}

Result<void> read_whitespace_pattern(const Value* pattern, const std::string& field, JsonSpaces& spaces) {
  if (pattern == nullptr) return {};
  if (!pattern->is_string() || !pattern->get_ref<const std::string&>().empty())
    return not_supported(field, "\"\" (no spaces) or null (a space or a line end between tokens)");
  spaces = JsonSpaces::none;
  return {};
}

Result<void> check_grammar_backend(const Value* backend, const std::string& field) {
  if (backend == nullptr || (backend->is_string() && backend->get_ref<const std::string&>() == "auto")) return {};
  return not_supported(field, "\"auto\"");
}

Result<FoundGrammar> read_structured_outputs(const Value& object, JsonSpaces spaces) {
  const std::string field = "structured_outputs";
  if (!object.is_object()) return json::wrong_type(field, "an object", object);
  constexpr std::string_view kRead[] = {"json",
                                        "regex",
                                        "choice",
                                        "grammar",
                                        "json_object",
                                        "disable_any_whitespace",
                                        "disable_additional_properties",
                                        "whitespace_pattern",
                                        "structural_tag",
                                        "disable_fallback",
                                        "backend"};
  BATON_TRY_VOID(refuse_other_keys(object, field, kRead));
  BATON_TRY_VOID(read_whitespace_pattern(find_not_null(object, "whitespace_pattern"), field + ".whitespace_pattern", spaces));
  BATON_TRY_VOID(check_grammar_backend(find_not_null(object, "backend"), field + ".backend"));
  // disable_fallback: there is no other backend.
  for (const std::string_view name : {"disable_any_whitespace", "disable_additional_properties", "disable_fallback"}) {
    const Value* value = find_not_null(object, name);
    if (value == nullptr) continue;
    const std::string path = fmt::format("{}.{}", field, name);
    if (!value->is_boolean()) return json::wrong_type(path, "true or false", *value);
    if (!value->get<bool>()) continue;
    if (name == "disable_any_whitespace") spaces = JsonSpaces::none;
    if (name == "disable_additional_properties") return not_supported(path, "false; say additionalProperties in the schema");
  }
  BATON_TRY(FoundGrammar found, read_grammar_keys(object, field + ".", kGrammarKeys, spaces));
  const bool is_neutral = std::ranges::all_of(object, [](const Value& value) { return value.is_null(); });
  if (!found && !is_neutral)
    return bad_field(field,
                     fmt::format("'{}' must hold one of json, regex, choice, grammar, json_object and structural_tag", field));
  return found;
}

}  // namespace baton::grammar
