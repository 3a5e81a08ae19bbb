/// References, allOf, anyOf and oneOf of JSON Schema, resolved into alternatives.
#include "grammar/schema/schema_shape.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/limits/stack_space.h"
#include "grammar/automaton/dfa.h"
#include "grammar/automaton/source_cursor.h"

namespace baton::grammar {

tl::unexpected<Error> schema_error(ErrorCode code, const SchemaDocument& document, const json::Value& schema,
                                   std::string_view keyword, std::string_view text) {
  return fail(code, fmt::format("the JSON schema: {}/{} {}", document.path_of(schema), keyword, text));
}

namespace {

constexpr std::array<std::string_view, 33> kAssertions{"$ref",
                                                       "allOf",
                                                       "anyOf",
                                                       "oneOf",
                                                       "type",
                                                       "enum",
                                                       "const",
                                                       "minimum",
                                                       "maximum",
                                                       "multipleOf",
                                                       "exclusiveMinimum",
                                                       "exclusiveMaximum",
                                                       "minLength",
                                                       "maxLength",
                                                       "pattern",
                                                       "format",
                                                       "items",
                                                       "prefixItems",
                                                       "additionalItems",
                                                       "minItems",
                                                       "maxItems",
                                                       "properties",
                                                       "required",
                                                       "patternProperties",
                                                       "additionalProperties",
                                                       "minProperties",
                                                       "maxProperties",
                                                       "$defs",
                                                       "definitions",
                                                       "$id",
                                                       "id",
                                                       "$anchor",
                                                       "uniqueItems"};
constexpr std::array<std::string_view, 18> kAnnotations{
    "$schema",          "$comment",      "title",          "description",      "default",
    "examples",         "deprecated",    "readOnly",       "writeOnly",        "contentEncoding",
    "contentMediaType", "contentSchema", "$dynamicAnchor", "$recursiveAnchor", "discriminator",
    "example",          "xml",           "externalDocs"};
constexpr std::array<std::string_view, 18> kRefused{"not",
                                                    "if",
                                                    "then",
                                                    "else",
                                                    "contains",
                                                    "minContains",
                                                    "maxContains",
                                                    "propertyNames",
                                                    "dependentRequired",
                                                    "dependentSchemas",
                                                    "dependencies",
                                                    "unevaluatedItems",
                                                    "unevaluatedProperties",
                                                    "$dynamicRef",
                                                    "$recursiveRef",
                                                    "$vocabulary",
                                                    "nullable",
                                                    "disallow"};

template <std::size_t n>
bool is_one_of(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether a schema has nothing but `keyword`, annotations and definitions.
bool has_only(const json::Value& schema, std::string_view keyword) {
  bool has_it = false;
  for (auto field = schema.begin(); field != schema.end(); ++field) {
    const std::string& name = field.key();
    if (name == keyword)
      has_it = true;
    else if (name == "$defs" || name == "definitions" || name == "$id" || name == "id" || name == "$anchor")
      continue;
    else if (!is_one_of(kAnnotations, name))
      return false;
  }
  return has_it;
}

/// The schemas inside of which one was found, from the innermost.
struct Inside {
  const json::Value* schema;
  const Inside* outer;
};

/// An anyOf or oneOf that is still to be decided.
struct Group {
  const json::Value* schema;
  std::string_view keyword;
  const Inside* path;
};

class ShapeBuilder {
 public:
  ShapeBuilder(const SchemaDocument& document, SchemaOverlaps& overlaps, std::vector<std::string>& ignored, WorkMeter& meter)
      : document_(document), overlaps_(overlaps), ignored_(ignored), meter_(meter), held_(meter) {}

  Result<std::vector<SchemaShape>> build(const SchemaSet& schemas) {
    Draft draft;
    for (const json::Value* schema : schemas) BATON_TRY_VOID(add(*schema, nullptr, draft));
    BATON_TRY_VOID(decide(std::move(draft)));
    return std::move(shapes_);
  }

 private:
  struct Draft {
    SchemaShape shape;
    std::vector<Group> groups;
    bool is_impossible = false;

    std::size_t n_bytes() const { return shape.parts.size() * sizeof(shape.parts[0]) + groups.size() * sizeof(Group); }
  };

  tl::unexpected<Error> error(ErrorCode code, const json::Value& schema, std::string_view keyword,
                              std::string_view text) const {
    return schema_error(code, document_, schema, keyword, text);
  }
  Result<void> add(const json::Value& schema, const Inside* outer, Draft& draft);
  Result<bool> may_add(const json::Value& schema, const Inside* outer, const Draft& draft);
  Result<void> add_overlaps(const json::Value& schema, const json::Value& alternatives);
  Result<void> check_keywords(const json::Value& schema);
  Result<void> decide(Draft draft);

  const SchemaDocument& document_;
  SchemaOverlaps& overlaps_;
  std::vector<std::string>& ignored_;
  WorkMeter& meter_;
  HeldBytes held_;
  StackSpace stack_;
  std::vector<SchemaShape> shapes_;
  std::deque<Inside> insides_;
};

Result<void> ShapeBuilder::check_keywords(const json::Value& schema) {
  for (auto field = schema.begin(); field != schema.end(); ++field) {
    const std::string& name = field.key();
    if (name == "uniqueItems" && field.value() != json::Value(false))
      return error(ErrorCode::unsupported, schema, name, "is not supported");
    if (is_one_of(kAssertions, name) || is_one_of(kAnnotations, name)) continue;
    if (is_one_of(kRefused, name)) return error(ErrorCode::unsupported, schema, name, "is not supported");
    std::string path = document_.path_of(schema) + "/" + name.substr(0, kMaxQuotedBytes);
    if (name.size() > kMaxQuotedBytes) path += "...";
    if (!meter_.write(path.size() + 2 * sizeof(path))) return over_budget(meter_);
    ignored_.push_back(std::move(path));
  }
  return {};
}

/// Whether a schema says something that the draft has not. What the compiler looks up in a schema takes the steps of its fields.
Result<bool> ShapeBuilder::may_add(const json::Value& schema, const Inside* outer, const Draft& draft) {
  if (!meter_.spend(16 + 8 * static_cast<std::int64_t>(schema.size()))) return over_budget(meter_);
  if (!stack_.has_room(8192))
    return fail(ErrorCode::too_large,
                fmt::format("the JSON schema: {} has $ref, allOf, anyOf and oneOf nested too deep", document_.path_of(schema)));
  std::int64_t n_outer = 0;
  for (const Inside* one = outer; one != nullptr; one = one->outer, ++n_outer)
    if (one->schema == &schema)
      return fail(ErrorCode::unsupported, fmt::format("the JSON schema: {} refers to itself", document_.path_of(schema)));
  const std::vector<const json::Value*>& parts = draft.shape.parts;
  if (!meter_.spend(n_outer / 8 + static_cast<std::int64_t>(parts.size() / 8))) return over_budget(meter_);
  if (std::find(parts.begin(), parts.end(), &schema) != parts.end()) return false;
  if (parts.size() >= kMaxParts)
    return fail(ErrorCode::too_large, fmt::format("the JSON schema: {}: $ref and allOf ask one value for more than {} schemas",
                                                  document_.path_of(schema), kMaxParts));
  return true;
}

Result<void> ShapeBuilder::add(const json::Value& schema, const Inside* outer, Draft& draft) {
  if (schema.is_boolean()) {
    if (!meter_.spend(1)) return over_budget(meter_);
    draft.is_impossible = draft.is_impossible || !schema.get<bool>();
    return {};
  }
  if (!schema.is_object())
    return fail(ErrorCode::invalid_request, fmt::format("the JSON schema: {} must be a schema (an object or a boolean), not {}",
                                                        document_.path_of(schema), json::describe_type(schema)));
  BATON_TRY(const bool is_new, may_add(schema, outer, draft));
  if (!is_new) return {};
  if (!held_.add(sizeof(Inside) + 2 * (sizeof(Group) + sizeof(&schema)))) return over_budget(meter_);
  const Inside* path = &insides_.emplace_back(Inside{&schema, outer});
  const json::Value* ref = json::find(schema, "$ref");
  const bool is_only_ref = ref != nullptr && document_.draft() <= SchemaDraft::draft7;
  if (!is_only_ref) {
    BATON_TRY_VOID(check_keywords(schema));
    draft.shape.parts.push_back(&schema);
  }
  if (ref != nullptr) {
    if (!ref->is_string()) return error(ErrorCode::invalid_request, schema, "$ref", "must be a string");
    BATON_TRY(const json::Value* target, document_.resolve(schema, ref->get_ref<const std::string&>()));
    BATON_TRY_VOID(add(*target, path, draft));
  }
  for (const std::string_view keyword : {"allOf", "anyOf", "oneOf"}) {
    const json::Value* list = is_only_ref ? nullptr : json::find(schema, keyword);
    if (list == nullptr) continue;
    if (!list->is_array() || list->empty())
      return error(ErrorCode::invalid_request, schema, keyword, "must be a list of schemas");
    if (keyword != "allOf") {
      draft.groups.push_back({&schema, keyword, path});
      continue;
    }
    for (const json::Value& part : *list) BATON_TRY_VOID(add(part, path, draft));
  }
  return {};
}

/// What holds beside a oneOf is left out: alternatives that do not overlap by themselves do not overlap with more.
Result<void> ShapeBuilder::add_overlaps(const json::Value& schema, const json::Value& alternatives) {
  if (!overlaps_.seen.insert(&schema).second) return {};
  const std::size_t n_pairs = alternatives.size() * (alternatives.size() - 1) / 2;
  if (!meter_.spend(static_cast<std::int64_t>(16 * n_pairs)) || !meter_.write(n_pairs * sizeof(SchemaOverlap)))
    return over_budget(meter_);
  for (std::size_t a = 0; a < alternatives.size(); ++a)
    for (std::size_t b = a + 1; b < alternatives.size(); ++b)
      overlaps_.pairs.push_back({&alternatives[a], &alternatives[b], &schema});
  return {};
}

Result<void> ShapeBuilder::decide(Draft draft) {
  if (draft.is_impossible) return {};
  if (draft.groups.empty()) {
    if (shapes_.size() >= kMaxShapes)
      return fail(ErrorCode::too_large,
                  fmt::format("the JSON schema: anyOf and oneOf give one value more than {} alternatives", kMaxShapes));
    if (!meter_.write(sizeof(SchemaShape) + draft.n_bytes())) return over_budget(meter_);
    shapes_.push_back(std::move(draft.shape));
    return {};
  }
  const Group group = draft.groups.back();
  draft.groups.pop_back();
  const json::Value& list = *json::find(*group.schema, group.keyword);
  if (group.keyword == "oneOf") BATON_TRY_VOID(add_overlaps(*group.schema, list));
  HeldBytes held(meter_);  // of the copy below
  if (!held.add(draft.n_bytes())) return over_budget(meter_);
  for (const json::Value& alternative : list) {
    if (!meter_.spend(2 + static_cast<std::int64_t>(draft.n_bytes() / 64))) return over_budget(meter_);
    Draft one = draft;
    BATON_TRY_VOID(add(alternative, group.path, one));
    BATON_TRY_VOID(decide(std::move(one)));
  }
  return {};
}

}  // namespace

Result<std::vector<SchemaShape>> shapes_of(const SchemaDocument& document, const SchemaSet& schemas, SchemaOverlaps& overlaps,
                                           std::vector<std::string>& ignored, WorkMeter& meter) {
  return ShapeBuilder(document, overlaps, ignored, meter).build(schemas);
}

Result<SchemaSet> simplified(const SchemaDocument& document, SchemaSet schemas) {
  SchemaSet result;
  for (const json::Value* schema : schemas) {
    constexpr int kLongestChain = 64;
    for (int i = 0; i < kLongestChain && schema->is_object() && has_only(*schema, "$ref"); ++i) {
      const json::Value& ref = *json::find(*schema, "$ref");
      if (!ref.is_string()) break;
      BATON_TRY(schema, document.resolve(*schema, ref.get_ref<const std::string&>()));
    }
    const bool allows_all = (schema->is_boolean() && schema->get<bool>()) || (schema->is_object() && schema->empty());
    if (!allows_all) result.push_back(schema);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

}  // namespace baton::grammar
