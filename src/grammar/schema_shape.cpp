/// References, allOf, anyOf and oneOf of JSON Schema, resolved into alternatives.
#include "grammar/schema_shape.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "grammar/dfa.h"

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

/// An anyOf or oneOf that is still to be decided.
struct Group {
  const json::Value* schema;
  std::string_view keyword;
  std::vector<const json::Value*> path;  // the schemas inside of which it was found
};

class ShapeBuilder {
 public:
  ShapeBuilder(const SchemaDocument& document, std::vector<SchemaOverlap>& overlaps, std::vector<std::string>& ignored,
               WorkMeter& meter)
      : document_(document), overlaps_(overlaps), ignored_(ignored), meter_(meter) {}

  Result<std::vector<SchemaShape>> build(const SchemaSet& schemas) {
    Draft draft;
    for (const json::Value* schema : schemas) {
      path_.clear();
      BATON_TRY_VOID(add(*schema, draft));
    }
    BATON_TRY_VOID(decide(std::move(draft)));
    return std::move(shapes_);
  }

 private:
  struct Draft {
    SchemaShape shape;
    std::vector<Group> groups;
    bool is_impossible = false;
  };

  tl::unexpected<Error> error(ErrorCode code, const json::Value& schema, std::string_view keyword,
                              std::string_view text) const {
    return schema_error(code, document_, schema, keyword, text);
  }
  Result<void> add(const json::Value& schema, Draft& draft);
  Result<void> check_keywords(const json::Value& schema);
  Result<void> decide(Draft draft);

  const SchemaDocument& document_;
  std::vector<SchemaOverlap>& overlaps_;
  std::vector<std::string>& ignored_;
  WorkMeter& meter_;
  std::vector<SchemaShape> shapes_;
  std::vector<const json::Value*> path_;
};

Result<void> ShapeBuilder::check_keywords(const json::Value& schema) {
  for (auto field = schema.begin(); field != schema.end(); ++field) {
    const std::string& name = field.key();
    if (name == "uniqueItems" && field.value() != json::Value(false))
      return error(ErrorCode::unsupported, schema, name, "is not supported");
    if (is_one_of(kAssertions, name) || is_one_of(kAnnotations, name)) continue;
    if (is_one_of(kRefused, name)) return error(ErrorCode::unsupported, schema, name, "is not supported");
    ignored_.push_back(document_.path_of(schema) + "/" + name);
  }
  return {};
}

Result<void> ShapeBuilder::add(const json::Value& schema, Draft& draft) {
  if (!meter_.spend(16)) return over_budget(meter_);
  if (schema.is_boolean()) {
    draft.is_impossible = draft.is_impossible || !schema.get<bool>();
    return {};
  }
  if (!schema.is_object())
    return fail(ErrorCode::invalid_request, fmt::format("the JSON schema: {} must be a schema (an object or a boolean), not {}",
                                                        document_.path_of(schema), json::describe_type(schema)));
  if (std::find(path_.begin(), path_.end(), &schema) != path_.end())
    return fail(ErrorCode::unsupported, fmt::format("the JSON schema: {} refers to itself", document_.path_of(schema)));
  if (std::find(draft.shape.parts.begin(), draft.shape.parts.end(), &schema) != draft.shape.parts.end()) return {};
  path_.push_back(&schema);
  const json::Value* ref = json::find(schema, "$ref");
  const bool is_only_ref = ref != nullptr && document_.draft() <= SchemaDraft::draft7;
  if (!is_only_ref) {
    BATON_TRY_VOID(check_keywords(schema));
    draft.shape.parts.push_back(&schema);
  }
  if (ref != nullptr) {
    if (!ref->is_string()) return error(ErrorCode::invalid_request, schema, "$ref", "must be a string");
    BATON_TRY(const json::Value* target, document_.resolve(schema, ref->get_ref<const std::string&>()));
    BATON_TRY_VOID(add(*target, draft));
  }
  for (const std::string_view keyword : {"allOf", "anyOf", "oneOf"}) {
    const json::Value* list = is_only_ref ? nullptr : json::find(schema, keyword);
    if (list == nullptr) continue;
    if (!list->is_array() || list->empty())
      return error(ErrorCode::invalid_request, schema, keyword, "must be a list of schemas");
    if (keyword != "allOf") {
      draft.groups.push_back({&schema, keyword, path_});
      continue;
    }
    for (const json::Value& part : *list) BATON_TRY_VOID(add(part, draft));
  }
  path_.pop_back();
  return {};
}

Result<void> ShapeBuilder::decide(Draft draft) {
  if (draft.is_impossible) return {};
  if (draft.groups.empty()) {
    if (shapes_.size() >= kMaxShapes)
      return fail(ErrorCode::too_large,
                  fmt::format("the JSON schema: anyOf and oneOf give one value more than {} alternatives", kMaxShapes));
    shapes_.push_back(std::move(draft.shape));
    return {};
  }
  const Group group = std::move(draft.groups.back());
  draft.groups.pop_back();
  const json::Value& list = *json::find(*group.schema, group.keyword);
  if (group.keyword == "oneOf") {
    // What holds beside it is left out: alternatives that do not overlap by themselves do not overlap with more.
    for (std::size_t a = 0; a < list.size(); ++a)
      for (std::size_t b = a + 1; b < list.size(); ++b) {
        SchemaSet both{&list[a], &list[b]};
        std::sort(both.begin(), both.end());
        overlaps_.push_back({std::move(both), document_.path_of(*group.schema) + "/oneOf"});
      }
  }
  for (const json::Value& alternative : list) {
    Draft one = draft;
    path_ = group.path;
    BATON_TRY_VOID(add(alternative, one));
    BATON_TRY_VOID(decide(std::move(one)));
  }
  return {};
}

}  // namespace

Result<std::vector<SchemaShape>> shapes_of(const SchemaDocument& document, const SchemaSet& schemas,
                                           std::vector<SchemaOverlap>& overlaps, std::vector<std::string>& ignored,
                                           WorkMeter& meter) {
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
