/// Properties one by one, each with the values of its schema.
#include "grammar/front/argument_texts.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "core/one_line.h"
#include "core/utf8.h"
#include "grammar/automaton/char_ranges.h"
#include "grammar/automaton/free_text.h"
#include "grammar/automaton/regex.h"
#include "grammar/automaton/source_cursor.h"

namespace baton::grammar {

namespace {

struct DeclaredArgument {
  std::string_view name;
  const json::Value* schema;
  bool is_required = false;
};

struct DeclaredArguments {
  std::vector<DeclaredArgument> all;
  bool allows_others = true;
};

/// An error of a keyword of the object itself.
tl::unexpected<Error> arguments_error(ErrorCode code, const SchemaDocument& document, std::string_view keyword,
                                      std::string_view text) {
  return schema_error(code, document, document.root(), keyword, text);
}

/// propertyNames without effect.
bool allows_all_names(std::string_view keyword, const json::Value& value) {
  if (keyword != "propertyNames") return false;
  const json::Value* type = value.is_object() ? find_keyword(value, "type") : nullptr;
  return value == json::Value(true) || (value.is_object() && value.size() == (type == nullptr ? 0 : 1) &&
                                        (type == nullptr || json::is_text(*type, "string")));
}

Result<DeclaredArguments> declared_arguments(const SchemaDocument& document, WorkMeter& meter) {
  const json::Value& schema = document.root();
  DeclaredArguments declared;
  if (schema.is_boolean() && schema.get<bool>()) return declared;
  if (!schema.is_object()) return fail(ErrorCode::invalid_request, "the JSON schema: # of arguments must be an object");
  for (const std::string_view keyword :
       {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "patternProperties", "propertyNames", "minProperties",
        "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"})
    if (const json::Value* value = find_keyword(schema, keyword); value != nullptr && !allows_all_names(keyword, *value))
      return arguments_error(ErrorCode::unsupported, document, keyword, "is not supported in this format of calls");
  const json::Value* type = find_keyword(schema, "type");
  if (type != nullptr && !json::is_text(*type, "object"))
    return arguments_error(ErrorCode::unsupported, document, "type", "must be 'object'");
  if (const json::Value* other = find_keyword(schema, "additionalProperties"); other != nullptr) {
    const bool is_any = other->is_object() && other->empty();
    if (!other->is_boolean() && !is_any)
      return arguments_error(ErrorCode::unsupported, document, "additionalProperties",
                             "must be true or false in this format of calls");
    declared.allows_others = is_any || other->get<bool>();
  }
  if (const json::Value* properties = find_keyword(schema, "properties"); properties != nullptr) {
    if (!properties->is_object())
      return arguments_error(ErrorCode::invalid_request, document, "properties", "must be an object");
    if (!meter.spend(static_cast<std::int64_t>(4 * properties->size())) ||
        !meter.write(3 * properties->size() * sizeof(DeclaredArgument)))
      return over_budget(meter);
    for (auto field = properties->begin(); field != properties->end(); ++field)
      declared.all.push_back({.name = field.key(), .schema = &field.value()});
  }
  if (const json::Value* required = find_keyword(schema, "required"); required != nullptr && !required->is_boolean()) {
    const auto names = json::convert<std::vector<std::string>>(*required, "required");
    if (!names) return arguments_error(ErrorCode::invalid_request, document, "required", "must be a list of names");
    std::map<std::string_view, DeclaredArgument*> by_name;
    for (DeclaredArgument& one : declared.all) by_name.emplace(one.name, &one);
    for (const std::string& name : *names) {
      if (!meter.spend(8)) return over_budget(meter);
      const auto known = by_name.find(name);
      if (known == by_name.end())
        return arguments_error(ErrorCode::unsupported, document, "required",
                               fmt::format("names '{}', which is not a property", one_line(name, kMaxQuotedBytes)));
      known->second->is_required = true;
    }
  }
  return declared;
}

// What stands in no string: see parsers/xml_calls.cpp and parsers/glm_calls.cpp.
constexpr std::array<std::string_view, 3> kNeverInQwen{"</parameter>", "\n<parameter=", "\n</function>"};
constexpr std::array<std::string_view, 1> kNeverInGlm{"</arg_value>"};

/// A tag in the name of a rule.
std::string name_of(std::string_view tag) { return std::string(tag.starts_with('\n') ? tag.substr(1) : tag); }

/// A schema that a value fulfils if it is not a string.
const json::Value& no_string() {
  static const json::Value schema = {{"type", {"null", "boolean", "number", "array", "object"}}};
  return schema;
}

}  // namespace

const ArgumentTags kQwenTags{.before_name = "<parameter=",
                             .after_name = ">\n",
                             .before_value = "",
                             .after_value = "\n</parameter>",
                             .never_in_value = kNeverInQwen};
const ArgumentTags kGlmTags{.before_name = "<arg_key>",
                            .after_name = "</arg_key>",
                            .before_value = "<arg_value>",
                            .after_value = "</arg_value>",
                            .never_in_value = kNeverInGlm};

/// The texts that a value may have.
Result<const Dfa*> ArgumentTexts::text_of_value() {
  if (!text_of_value_) {
    BATON_TRY(text_of_value_,
              text_without({.stops = {}, .never = {tags_.never_in_value.begin(), tags_.never_in_value.end()}}, meter_));
  }
  return &*text_of_value_;
}

/// A string up to the end of its element.
Result<ExprId> ArgumentTexts::free_string() {
  if (!free_string_) {
    BATON_TRY(const Dfa dfa,
              text_up_to({.stops = {tags_.after_value}, .never = {tags_.never_in_value.begin(), tags_.never_in_value.end()}},
                         std::nullopt, meter_));
    free_string_ = expressions_.add_rule("a string up to " + name_of(tags_.after_value));
    expressions_.define(*free_string_, expressions_.automaton(dfa));
  }
  return expressions_.rule(*free_string_);
}

/// The strings of a schema as they are, and the end of their element.
Result<ExprId> ArgumentTexts::raw_strings(SchemaValues& values, const SchemaShape& shape) {
  const ExprId end = expressions_.bytes(tags_.after_value);
  BATON_TRY(StringLanguage language, values.strings(shape));
  BATON_TRY(const Dfa* plain, text_of_value());
  BATON_TRY(const auto listed, values.values(shape));
  if (listed) {
    std::vector<ExprId> all;
    for (const json::Value* value : *listed) {
      if (!value->is_string()) continue;
      const std::string& text = value->get_ref<const std::string&>();
      if (!meter_.pass(4 * text.size())) return over_budget(meter_);
      if (!language.is_any())
        return fail(ErrorCode::unsupported,
                    "enum beside other keywords about strings is not supported in this format of calls");
      if (!plain->accepts(text)) return fail(ErrorCode::unsupported, "enum has a text that this format of calls cannot write");
      all.push_back(expressions_.bytes(text));
    }
    return expressions_.sequence({expressions_.choice(all), end});
  }
  if (language.is_any()) return free_string();
  if (!language.content) {
    BATON_TRY(const Dfa* any, values.any_text());
    language.content = *any;
  }
  BATON_TRY(const Dfa dfa, combine(*language.content, *plain, DfaProduct::intersection, meter_));
  const ExprId with_end = expressions_.sequence({expressions_.automaton(dfa), end});
  if (language.length.is_any()) return with_end;
  // The end is in the automaton and in its length, so that a text is at one place in it.
  BATON_TRY(const Dfa whole, determinize(expressions_, with_end, meter_));
  LengthBounds length = language.length;
  length.min += static_cast<std::int32_t>(tags_.after_value.size());
  if (length.max >= 0) length.max += static_cast<std::int32_t>(tags_.after_value.size());
  std::vector<bool> counts;
  for (std::size_t state = 0; state < whole.n_states(); ++state) counts.push_back(is_between_characters(whole, state));
  return expressions_.counted_rule("a string of limited length up to " + name_of(tags_.after_value), whole, counts, length);
}

ExprId ArgumentTexts::between_name_and_value() {
  const ExprId after_name = expressions_.bytes(tags_.after_name);
  if (tags_.before_value.empty()) return after_name;
  return expressions_.sequence(
      {after_name, expressions_.optional(expressions_.bytes("\n")), expressions_.bytes(tags_.before_value)});
}

/// A value and the end of its element.
Result<ExprId> ArgumentTexts::xml_value(SchemaCompiler& compiler, const json::Value& schema) {
  BATON_TRY(const std::vector<SchemaShape> shapes, compiler.shapes(schema));
  std::vector<ExprId> all;
  bool has_others = false;
  for (const SchemaShape& shape : shapes) {
    BATON_TRY(const unsigned kinds, compiler.values().kinds(shape));
    if ((kinds & kString) != 0) {
      BATON_TRY(const ExprId strings, raw_strings(compiler.values(), shape));
      all.push_back(strings);
    }
    has_others = has_others || (kinds & ~unsigned{kString}) != 0;
  }
  if (has_others) {
    BATON_TRY(const ExprId json, compiler.rule_of({&schema, &no_string()}));
    all.push_back(expressions_.sequence({json, expressions_.bytes(tags_.after_value)}));
  }
  return expressions_.choice(all);
}

Result<ExprId> ArgumentTexts::xml(const json::Value& schema) {
  BATON_TRY(const SchemaDocument document, SchemaDocument::of(schema, meter_));
  BATON_TRY(const DeclaredArguments declared, declared_arguments(document, meter_));
  SchemaCompiler compiler(document, text_, ignored_, meter_);
  const ExprId line_end = expressions_.optional(expressions_.bytes("\n"));
  const ExprId between = between_name_and_value();
  std::vector<ExprId> all;
  for (const DeclaredArgument& one : declared.all) {
    if (one.name.empty() || one.name.find_first_of("\n<>") != std::string::npos)
      return arguments_error(
          ErrorCode::unsupported, document, "properties",
          fmt::format("has '{}', which this format of calls cannot write", one_line(one.name, kMaxQuotedBytes)));
    const auto value = xml_value(compiler, *one.schema);
    if (!value) return compiler.located(value.error(), *one.schema);
    const ExprId element = expressions_.sequence(
        {line_end, expressions_.bytes(fmt::format("{}{}", tags_.before_name, one.name)), between, *value});
    all.push_back(one.is_required ? element : expressions_.optional(element));
  }
  if (declared.allows_others) {
    BATON_TRY(const ExprId name, parse_regex(expressions_, "[^\\s<>]{1,256}", RegexUse::whole, meter_));
    BATON_TRY(const ExprId value, free_string());
    const ExprId element = expressions_.sequence({line_end, expressions_.bytes(tags_.before_name), name, between, value});
    all.push_back(expressions_.repeat(element, 0, kUnlimited));
  }
  all.push_back(line_end);
  BATON_TRY_VOID(compiler.finish());
  return expressions_.sequence(all);
}

Result<ExprId> ArgumentTexts::python_value(SchemaCompiler& compiler, const json::Value& schema) {
  const json::Value* type = find_keyword(schema, "type");
  if (type != nullptr && json::is_text(*type, "boolean") && find_keyword(schema, "enum") == nullptr &&
      find_keyword(schema, "const") == nullptr)
    return expressions_.choice({expressions_.bytes("True"), expressions_.bytes("False")});
  return compiler.rule_of({&schema});
}

Result<ExprId> ArgumentTexts::python(const json::Value& schema) {
  BATON_TRY(const SchemaDocument document, SchemaDocument::of(schema, meter_));
  BATON_TRY(const DeclaredArguments declared, declared_arguments(document, meter_));
  SchemaCompiler compiler(document, text_, ignored_, meter_);
  const ExprId comma = expressions_.bytes(", ");
  std::optional<ExprId> other;
  ExprId more = expressions_.empty();
  if (declared.allows_others) {
    BATON_TRY(const ExprId name, parse_regex(expressions_, "[A-Za-z_][A-Za-z0-9_]{0,255}=", RegexUse::whole, meter_));
    BATON_TRY(const ExprId value, text_.value());
    other = expressions_.sequence({name, value});
    more = expressions_.repeat(expressions_.sequence({comma, *other}), 0, kUnlimited);
  }
  // From the last to the first: what is after a place, with an argument in front of it and without.
  ExprId behind = more;
  ExprId first = other ? expressions_.optional(expressions_.sequence({*other, more})) : expressions_.empty();
  for (auto one = declared.all.rbegin(); one != declared.all.rend(); ++one) {
    const bool is_word = !one->name.empty() && !ascii::is_digit(one->name[0]) && ascii::consists_of(one->name, "_");
    if (!is_word)
      return arguments_error(
          ErrorCode::unsupported, document, "properties",
          fmt::format("has '{}', which this format of calls cannot write", one_line(one->name, kMaxQuotedBytes)));
    if (!meter_.pass(one->name.size())) return over_budget(meter_);
    const auto value = python_value(compiler, *one->schema);
    if (!value) return compiler.located(value.error(), *one->schema);
    const ExprId argument = expressions_.sequence({expressions_.bytes(fmt::format("{}=", one->name)), *value});
    const RuleId rest = expressions_.add_rule(fmt::format("the arguments after {}", one_line(one->name, kMaxQuotedBytes)));
    expressions_.define(rest, behind);
    const ExprId with_it = expressions_.sequence({argument, expressions_.rule(rest)});
    first = one->is_required ? with_it : expressions_.choice({with_it, first});
    const ExprId next = expressions_.sequence({comma, argument});
    behind = expressions_.sequence({one->is_required ? next : expressions_.optional(next), expressions_.rule(rest)});
  }
  BATON_TRY_VOID(compiler.finish());
  return first;
}

}  // namespace baton::grammar
