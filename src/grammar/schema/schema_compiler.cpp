/// Values of a schema's alternatives as rules.
#include "grammar/schema/schema_compiler.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/one_line.h"
#include "grammar/automaton/source_cursor.h"
#include "grammar/schema/schema_arrays.h"
#include "grammar/schema/schema_objects.h"

namespace baton::grammar {

Result<SchemaGrammar> schema_grammar(const SchemaDocument& document, JsonText& text, WorkMeter& meter) {
  SchemaGrammar grammar;
  SchemaCompiler compiler(document, text, grammar.ignored, meter);
  BATON_TRY(const ExprId root, compiler.rule_of({&document.root()}));
  BATON_TRY_VOID(compiler.finish());
  std::sort(grammar.ignored.begin(), grammar.ignored.end());
  grammar.ignored.erase(std::unique(grammar.ignored.begin(), grammar.ignored.end()), grammar.ignored.end());
  grammar.root = text.expressions().add_rule("#");
  text.expressions().define(grammar.root, root);
  return grammar;
}

Result<SchemaGrammar> parse_json_schema(JsonText& text, std::string_view schema, WorkMeter& meter) {
  BATON_TRY(const SchemaDocument document, SchemaDocument::parse(schema, meter));
  return schema_grammar(document, text, meter);
}

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
  const ValueRule value_of = [&](SchemaSet schemas) { return rule_of(std::move(schemas)); };
  BATON_TRY_VOID(add(kArray, [&] { return array_of_shape(document_, shape, values_, text_, overlaps_, meter_, value_of); }));
  BATON_TRY_VOID(add(kObject, [&] { return object_of_shape(document_, shape, values_, text_, meter_, value_of); }));
  return expressions_.choice(all);
}

/// Listed lists and objects are not looked into, so keywords about them beside an enum are refused.
Result<void> SchemaCompiler::refuse_beside_listed(const SchemaShape& shape) {
  for (const json::Value* part : shape.parts)
    for (const std::string_view keyword :
         {"properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties", "items",
          "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "propertyNames"})
      if (const json::Value* value = find_keyword(*part, keyword); value != nullptr && *value != json::Value(false))
        return schema_error(ErrorCode::unsupported, document_, *part, keyword,
                            "beside an enum or const with lists or objects is not supported");
  return {};
}

/// The listed values that the other keywords allow.
Result<ExprId> SchemaCompiler::listed(const SchemaShape& shape, unsigned kinds, const ListedValues& values) {
  BATON_TRY(const ListedValues allowed, values_.allowed_of(shape, kinds, values));
  std::vector<ExprId> all;
  bool has_structured = false;
  for (const json::Value* value : allowed) {
    if (!meter_.spend(2)) return over_budget(meter_);
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
  std::string name = "JSON string " + one_line(key, kMaxQuotedBytes);
  ExprId rule = 0;
  if (language.length.is_any()) {
    BATON_TRY(const ExprId body, text_.string_of(*language.content));
    const RuleId own = expressions_.add_rule(std::move(name));
    expressions_.define(own, body);
    rule = expressions_.rule(own);
  } else {
    BATON_TRY(rule, text_.counted_string(std::move(name), language.content, language.length));
  }
  if (!meter_.write(128 + key.size())) return over_budget(meter_);
  return strings_.emplace(key, rule).first->second;
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

tl::unexpected<Error> SchemaCompiler::located(Error error, const json::Value& schema) const {
  if (error.code != ErrorCode::unavailable && !error.message.starts_with("the JSON schema"))
    error.message = fmt::format("the JSON schema: {}: {}", document_.path_of(schema), error.message);
  return tl::unexpected<Error>(std::move(error));
}

Result<void> SchemaCompiler::refuse_overlaps() {
  if (overlaps_.pairs.empty()) return {};
  BATON_TRY(const std::vector<bool> is_productive, expressions_.productive_rules());
  for (const SchemaOverlap& overlap : overlaps_.pairs) {
    if (!meter_.spend(16)) return over_budget(meter_);
    BATON_TRY(const SchemaSet schemas, simplified(document_, overlap.schemas()));
    const auto rule = rules_.find(schemas);
    if (schemas.empty() || rule == rules_.end() || is_productive[static_cast<std::size_t>(rule->second)])
      return schema_error(ErrorCode::unsupported, document_, *overlap.schema, overlap.keyword, overlap.refusal);
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
    const Result<ExprId> body = body_of(schemas);
    if (!body) return located(body.error(), *schemas[0]);
    expressions_.define(rule, *body);
  }
  return refuse_overlaps();
}

}  // namespace baton::grammar
