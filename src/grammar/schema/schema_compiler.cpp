/// Values of a schema's alternatives as rules.
#include "grammar/schema/schema_compiler.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/one_line.h"
#include "grammar/automaton/source_cursor.h"
#include "grammar/schema/schema_objects.h"

namespace baton::grammar {

Result<ExprId> SchemaCompiler::rule_of(SchemaSet schemas) {
  if (!meter_.spend(8 + 8 * static_cast<std::int64_t>(schemas.size()))) return over_budget(meter_);
  BATON_TRY(schemas, simplified(document_, std::move(schemas)));
  if (schemas.empty()) return text_.value();
  const auto known = rules_.find(schemas);
  if (known != rules_.end()) return expressions_.rule(known->second);
  if (!meter_.write(256 + 2 * schemas.size() * sizeof(schemas[0]))) return over_budget(meter_);
  const RuleId rule = expressions_.add_rule(document_.path_of(*schemas[0]));
  rules_.emplace(schemas, rule);
  unwritten_.emplace_back(std::move(schemas), rule);
  return expressions_.rule(rule);
}

Result<ExprId> SchemaCompiler::body_of(const SchemaSet& schemas) {
  BATON_TRY(const std::vector<SchemaShape> shapes, shapes_of(document_, schemas, overlaps_, ignored_, meter_));
  std::vector<ExprId> alternatives;
  for (const SchemaShape& shape : shapes) {
    BATON_TRY(const ExprId one, shape_body(shape));
    alternatives.push_back(one);
  }
  return expressions_.choice(alternatives);
}

Result<ExprId> SchemaCompiler::shape_body(const SchemaShape& shape) {
  BATON_TRY(const unsigned kinds, values_.kinds(shape));
  BATON_TRY(const auto values, values_.values(shape));
  if (values) return listed(shape, kinds, *values);
  std::vector<ExprId> all;
  if ((kinds & kNull) != 0) all.push_back(expressions_.bytes("null"));
  if ((kinds & kBoolean) != 0) {
    all.push_back(expressions_.bytes("true"));
    all.push_back(expressions_.bytes("false"));
  }
  const auto add = [&](unsigned kind, auto&& make) -> Result<void> {
    if ((kinds & kind) == 0) return {};
    BATON_TRY(const ExprId one, make());
    all.push_back(one);
    return {};
  };
  BATON_TRY_VOID(add(kInteger | kFraction, [&] { return numbers(shape, kinds); }));
  BATON_TRY_VOID(add(kString, [&] { return strings(shape); }));
  BATON_TRY_VOID(add(kArray, [&] { return arrays(shape); }));
  BATON_TRY_VOID(add(kObject, [&] {
    return object_of_shape(document_, shape, values_, text_, meter_,
                           [&](SchemaSet schemas) { return rule_of(std::move(schemas)); });
  }));
  return expressions_.choice(all);
}

/// Listed lists and objects are not looked into, so keywords about them beside an enum are refused.
Result<void> SchemaCompiler::refuse_beside_listed(const SchemaShape& shape) {
  for (const json::Value* part : shape.parts)
    for (const std::string_view keyword :
         {"properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties", "items",
          "prefixItems", "additionalItems", "minItems", "maxItems"})
      if (json::find(*part, keyword) != nullptr)
        return schema_error(ErrorCode::unsupported, document_, *part, keyword,
                            "beside an enum or const with lists or objects is not supported");
  return {};
}

/// The listed values that the other keywords allow.
Result<ExprId> SchemaCompiler::listed(const SchemaShape& shape, unsigned kinds, const ListedValues& values) {
  BATON_TRY(const StringLanguage strings, values_.strings(shape));
  BATON_TRY(const NumberLanguage numbers, values_.numbers(shape));
  std::optional<Dfa> number;
  if (!numbers.is_any()) {
    BATON_TRY(number, number_automaton(numbers, meter_));
  }
  std::vector<ExprId> all;
  bool has_structured = false;
  for (const json::Value* value : values) {
    if (!meter_.spend(4)) return over_budget(meter_);
    const unsigned kind = kind_of(*value);
    if ((kinds & kind) == 0) continue;
    if (kind == kString && !strings.is_any()) {
      const std::string& text = value->get_ref<const std::string&>();
      if (!meter_.pass(4 * text.size())) return over_budget(meter_);
      const auto length = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
      if (length < strings.min_length || (strings.max_length != kUnlimited && length > strings.max_length)) continue;
      if (strings.content && !strings.content->accepts(text)) continue;
    }
    if ((kind & (kInteger | kFraction)) != 0 && number && !number->accepts(plain_decimal(*value))) continue;
    if (value->is_structured() && !std::exchange(has_structured, true)) BATON_TRY_VOID(refuse_beside_listed(shape));
    BATON_TRY(const ExprId one, text_.literal(*value));
    all.push_back(one);
  }
  return expressions_.choice(all);
}

Result<ExprId> SchemaCompiler::strings(const SchemaShape& shape) {
  BATON_TRY(const std::string key, values_.string_key(shape));
  const auto known = strings_.find(key);
  if (known != strings_.end()) return known->second;
  BATON_TRY(const StringLanguage language, values_.strings(shape));
  if (language.is_any()) return text_.string();
  if (!language.content && language.max_length != kUnlimited && language.max_length < language.min_length)
    return expressions_.nothing();
  ExprId body = 0;
  if (language.content) {
    BATON_TRY(body, text_.string_of(*language.content));
  } else {
    BATON_TRY(body, text_.string_of_length(language.min_length, language.max_length));
  }
  const RuleId rule = expressions_.add_rule("JSON string " + one_line(key, kMaxQuotedBytes));
  expressions_.define(rule, body);
  if (!meter_.write(128 + key.size())) return over_budget(meter_);
  return strings_.emplace(key, expressions_.rule(rule)).first->second;
}

Result<ExprId> SchemaCompiler::numbers(const SchemaShape& shape, unsigned kinds) {
  BATON_TRY(NumberLanguage language, values_.numbers(shape));
  language.is_integer = (kinds & kFraction) == 0;
  if (language.is_any()) return text_.number();
  std::string key = language.is_integer ? "i" : "n";
  for (const NumberBound& bound : language.at_least) key += (bound.is_exclusive ? " >" : " >=") + bound.decimal;
  for (const NumberBound& bound : language.at_most) key += (bound.is_exclusive ? " <" : " <=") + bound.decimal;
  for (const std::string& multiple : language.multiples_of) key += " *" + multiple;
  if (!meter_.pass(2 * key.size())) return over_budget(meter_);
  const auto known = numbers_.find(key);
  if (known != numbers_.end()) return known->second;
  auto dfa = number_automaton(language, meter_);
  if (!dfa)
    return schema_error(dfa.error().code, document_, *shape.parts[0], "multipleOf",
                        fmt::format("is refused: {}", dfa.error().message));
  if (!meter_.write(128 + key.size())) return over_budget(meter_);
  const RuleId rule = expressions_.add_rule("JSON number " + one_line(key, kMaxQuotedBytes));
  expressions_.define(rule, expressions_.automaton(*dfa));
  return numbers_.emplace(key, expressions_.rule(rule)).first->second;
}

namespace {

/// The schemas of the first elements, one by one, and of all others.
struct ArrayPart {
  const json::Value* first = nullptr;  // a list
  const json::Value* rest = nullptr;

  std::size_t n_first() const { return first == nullptr ? 0 : first->size(); }
};

Result<ArrayPart> array_part(const SchemaDocument& document, const json::Value& schema) {
  ArrayPart part;
  const json::Value* items = json::find(schema, "items");
  const json::Value* prefix = json::find(schema, "prefixItems");
  if (items != nullptr && items->is_array()) {  // before 2020-12
    prefix = items;
    items = json::find(schema, "additionalItems");
  }
  if (prefix != nullptr && !prefix->is_array())
    return schema_error(ErrorCode::invalid_request, document, schema, "prefixItems", "must be a list of schemas");
  part.first = prefix;
  part.rest = items;
  return part;
}

}  // namespace

Result<ExprId> SchemaCompiler::arrays(const SchemaShape& shape) {
  std::vector<ArrayPart> parts;
  std::size_t n_first = 0;
  int min = 0;
  int max = kUnlimited;
  for (const json::Value* schema : shape.parts) {
    BATON_TRY(const ArrayPart part, array_part(document_, *schema));
    BATON_TRY(const std::optional<int> least, count_keyword(document_, *schema, "minItems"));
    BATON_TRY(const std::optional<int> most, count_keyword(document_, *schema, "maxItems"));
    min = std::max(min, least.value_or(0));
    if (most && (max == kUnlimited || *most < max)) max = *most;
    n_first = std::max(n_first, part.n_first());
    parts.push_back(part);
  }
  const auto element = [&](std::size_t index) -> Result<ExprId> {
    if (!meter_.spend(static_cast<std::int64_t>(parts.size()))) return over_budget(meter_);
    SchemaSet schemas;
    for (const ArrayPart& part : parts) {
      if (index < part.n_first())
        schemas.push_back(&(*part.first)[index]);
      else if (part.rest != nullptr)
        schemas.push_back(part.rest);
    }
    return rule_of(std::move(schemas));
  };
  if (max != kUnlimited && max < min) return expressions_.nothing();
  if (max != kUnlimited) n_first = std::min(n_first, static_cast<std::size_t>(max));
  const ExprId close = expressions_.bytes("]");
  const ExprId end = expressions_.sequence({text_.spaces(), close});
  // From the last element to the first.
  BATON_TRY(const ExprId other, element(n_first));
  const int n = static_cast<int>(n_first);
  const int least = std::max(min - n, 0);
  const int most = max == kUnlimited ? kUnlimited : max - n;
  const ExprId next = expressions_.sequence({text_.comma(), other});
  ExprId rest = 0;
  if (n > 0) {
    rest = expressions_.sequence({expressions_.repeat(next, least, most), end});
  } else {
    const ExprId more =
        expressions_.repeat(next, std::max(least - 1, 0), most == kUnlimited ? kUnlimited : std::max(most - 1, 0));
    const ExprId some = most == 0 ? expressions_.nothing() : expressions_.sequence({other, more, end});
    rest = least == 0 ? expressions_.choice({close, some}) : some;
  }
  for (int i = n; i-- > 0;) {
    BATON_TRY(const ExprId one, element(static_cast<std::size_t>(i)));
    const ExprId with_it = i == 0 ? expressions_.sequence({one, rest}) : expressions_.sequence({text_.comma(), one, rest});
    rest = i >= min ? expressions_.choice({i == 0 ? close : end, with_it}) : with_it;
  }
  return expressions_.sequence({expressions_.bytes("["), text_.spaces(), rest});
}

Result<void> SchemaCompiler::refuse_overlaps() {
  if (overlaps_.pairs.empty()) return {};
  BATON_TRY(const std::vector<bool> is_productive, expressions_.productive_rules());
  for (const SchemaOverlap& overlap : overlaps_.pairs) {
    if (!meter_.spend(16)) return over_budget(meter_);
    BATON_TRY(const SchemaSet schemas, simplified(document_, overlap.schemas()));
    const auto rule = rules_.find(schemas);
    if (schemas.empty() || rule == rules_.end() || is_productive[static_cast<std::size_t>(rule->second)])
      return fail(ErrorCode::unsupported, fmt::format("the JSON schema: {}/oneOf has alternatives that overlap; use anyOf",
                                                      document_.path_of(*overlap.schema)));
  }
  return {};
}

Result<void> SchemaCompiler::finish() {
  while (!unwritten_.empty() || n_overlaps_ < overlaps_.pairs.size()) {
    if (unwritten_.empty()) {  // a oneOf is exact if no value is in two of its alternatives
      BATON_TRY_VOID(rule_of(overlaps_.pairs[n_overlaps_++].schemas()));
      continue;
    }
    const auto [schemas, rule] = std::move(unwritten_.back());
    unwritten_.pop_back();
    BATON_TRY(const ExprId body, body_of(schemas));
    expressions_.define(rule, body);
  }
  return refuse_overlaps();
}

}  // namespace baton::grammar
