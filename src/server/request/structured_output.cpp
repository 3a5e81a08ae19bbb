/// Finds the one grammar among the fields of a request, and reads OpenAI's.
#include "server/request/structured_output.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "grammar/structured_outputs.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

using grammar::field_grammar;
using grammar::FieldGrammar;
using grammar::GrammarKind;
using grammar::JsonSpaces;
using grammar::refuse_other_keys;
using json::Value;
using Output = std::optional<StructuredOutput>;

constexpr std::size_t kMaxShownBytes = 64;

/// Fields of a request with one grammar each: older vLLM, llama.cpp.
constexpr grammar::GrammarKey kGrammarFields[] = {{"guided_json", grammar::read_schema},
                                                  {"guided_regex", grammar::read_regex},
                                                  {"guided_choice", grammar::read_choice},
                                                  {"guided_grammar", grammar::read_ebnf},
                                                  {"guided_json_object", grammar::read_json_object},
                                                  {"json_schema", grammar::read_schema},
                                                  {"grammar", grammar::read_ebnf}};

Result<Output> output_of(Result<std::optional<FieldGrammar>> read) {
  if (!read) return tl::unexpected<Error>(std::move(read.error()));
  if (!*read) return Output{};
  return StructuredOutput{std::move((*read)->source), std::move((*read)->field)};
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
  if (schema == nullptr) return bad_field(field + ".schema", "is missing");
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
    if (!text->is_string()) return json::wrong_type(field + ".grammar", "a string", *text);
    return output_of(field_grammar(GrammarKind::ebnf, text->get_ref<const std::string&>(), spaces, field + ".grammar"));
  }
  if (name == "structural_tag") return output_of(grammar::read_structural_tag(format, field, spaces));
  if (name != "json_object" && name != "json_schema")
    return bad(field + ".type",
               "'response_format.type' is \"{}\", which is not supported by this server; the values accepted are "
               "\"text\", \"json_object\", \"json_schema\", \"grammar\" and \"structural_tag\"",
               name.substr(0, kMaxShownBytes));
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
  return output_of(field_grammar(GrammarKind::json_object, {}, spaces, field));
}

// A cache below this would hold no schema of 10 KB.
constexpr std::int64_t kLeastCacheBytes = std::int64_t{1} << 20;

/// A key of vLLM's that has one accepted value beside null.
struct NeutralKey {
  std::string_view name;
  Value accepted;
};

tl::unexpected<Error> refuse(std::string_view key, const std::string& message) { return bad(key, "'{}': {}", key, message); }

/// The integer `name` of the object, if it is there.
Result<void> read_size(const Value& config, std::string_view key, std::string_view name, std::int64_t least, std::int64_t most,
                       std::size_t& size) {
  const Value* value = json::find(config, name);
  if (value == nullptr || value->is_null()) return {};
  const auto number = json::to_int64(*value, name, least, most);
  if (!number) return refuse(key, number.error().message);
  size = static_cast<std::size_t>(*number);
  return {};
}

}  // namespace

Result<StructuredOutput> schema_output(const Value& schema, std::string field, JsonSpaces spaces) {
  BATON_TRY(Output output, output_of(grammar::read_schema(schema, field, spaces)));
  return std::move(output.value());  // a schema is a grammar always
}

Result<std::optional<StructuredOutput>> parse_structured_output(const Value& body, JsonSpaces spaces) {
  BATON_TRY_VOID(grammar::check_grammar_backend(find_given(body, "guided_decoding_backend"), "guided_decoding_backend"));
  JsonSpaces guided = spaces;
  BATON_TRY_VOID(
      grammar::read_whitespace_pattern(find_given(body, "guided_whitespace_pattern"), "guided_whitespace_pattern", guided));
  BATON_TRY(Output output, output_of(grammar::read_grammar_keys(body, "", kGrammarFields, guided)));
  const auto add = [&](std::string_view name, auto parse) -> Result<void> {
    const Value* value = find_given(body, name);
    if (value == nullptr) return {};
    BATON_TRY(Output other, parse(*value, spaces));
    if (other && output) return grammar::two_grammars(output->field, other->field);
    if (other) output = std::move(other);
    return {};
  };
  BATON_TRY_VOID(add("structured_outputs", [](const Value& object, JsonSpaces json_spaces) {
    return output_of(grammar::read_structured_outputs(object, json_spaces));
  }));
  BATON_TRY_VOID(add("response_format", parse_response_format));
  return output;
}

Result<StructuredOutputsConfig> parse_structured_outputs_config(const Value& config, std::string_view key) {
  const NeutralKey neutral[] = {{"backend", "auto"},
                                {"disable_fallback", true},
                                {"disable_additional_properties", false},
                                {"enable_in_reasoning", false},
                                {"reasoning_parser", ""}};
  constexpr std::string_view kRead[] = {"disable_any_whitespace", "cache_bytes", "max_grammar_bytes", "max_states"};
  if (!config.is_object()) return json::wrong_type(key, "an object", config);
  for (const auto& [name, value] : config.get_ref<const Value::object_t&>()) {
    if (value.is_null() || std::ranges::find(kRead, name) != std::end(kRead)) continue;
    const auto* known = std::ranges::find(neutral, name, &NeutralKey::name);
    if (known == std::end(neutral))
      return refuse(key,
                    fmt::format("'{}' is not known to this server; it reads {}", name.substr(0, 64), fmt::join(kRead, ", ")));
    if (value != known->accepted)
      return refuse(key, fmt::format("'{}' is not supported by this server; the value accepted is {}", name,
                                     json::dump(known->accepted)));
  }
  StructuredOutputsConfig read;
  const auto no_spaces = json::get_optional<bool>(config, kRead[0]);
  if (!no_spaces) return refuse(key, no_spaces.error().message);
  if (no_spaces->value_or(false)) read.spaces = grammar::JsonSpaces::none;
  BATON_TRY_VOID(read_size(config, key, "cache_bytes", kLeastCacheBytes, std::int64_t{1} << 40, read.cache_bytes));
  BATON_TRY_VOID(read_size(config, key, "max_grammar_bytes", 1, std::int64_t{1} << 30, read.max_grammar_bytes));
  BATON_TRY_VOID(read_size(config, key, "max_states", 1, std::int64_t{1} << 30, read.max_states));
  return read;
}

grammar::GrammarCache::Options cache_options(const StructuredOutputsConfig& config, std::int64_t client_bytes) {
  grammar::GrammarCache::Options options;
  options.max_bytes = config.cache_bytes > 0 ? config.cache_bytes : static_cast<std::size_t>(client_bytes / 4);
  options.grammar.max_text_bytes = config.max_grammar_bytes;
  options.grammar.max_states = config.max_states;
  options.grammar.work.bytes = std::min<std::int64_t>(options.grammar.work.bytes, static_cast<std::int64_t>(options.max_bytes));
  // One matcher alone leaves room for others.
  for (std::size_t* bytes : {&options.matcher.table_bytes, &options.matcher.local_bytes, &options.matcher.mask_bytes})
    *bytes = std::min(*bytes, options.max_bytes / 4);
  return options;
}

}  // namespace baton
