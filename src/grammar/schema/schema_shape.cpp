/// References, allOf, anyOf and oneOf of JSON Schema, resolved into alternatives.
#include "grammar/schema/schema_shape.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/limits/stack_space.h"
#include "grammar/automaton/dfa.h"
#include "grammar/automaton/source_cursor.h"
#include "grammar/ebnf/regular_grammar.h"

namespace baton::grammar {

tl::unexpected<Error> schema_error(ErrorCode code, const SchemaDocument& document, const json::Value& schema,
                                   std::string_view keyword, std::string_view text) {
  return fail(code, fmt::format("the JSON schema: {}/{} {}", document.path_of(schema), keyword, text));
}

namespace {

constexpr std::array<std::string_view, 36> kAssertions{"$ref",
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
                                                       kGrammarKeyword,
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
                                                       "uniqueItems",
                                                       "nullable"};
constexpr std::array<std::string_view, 18> kAnnotations{
    "$schema",          "$comment",      "title",          "description",      "default",
    "examples",         "deprecated",    "readOnly",       "writeOnly",        "contentEncoding",
    "contentMediaType", "contentSchema", "$dynamicAnchor", "$recursiveAnchor", "discriminator",
    "example",          "xml",           "externalDocs"};
constexpr std::array<std::string_view, 16> kRefused{"not",
                                                    "if",
                                                    "then",
                                                    "else",
                                                    "contains",
                                                    "minContains",
                                                    "maxContains",
                                                    "dependentRequired",
                                                    "dependentSchemas",
                                                    "dependencies",
                                                    "unevaluatedItems",
                                                    "unevaluatedProperties",
                                                    "$dynamicRef",
                                                    "$recursiveRef",
                                                    "$vocabulary",
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

/// What a schema leaves to be decided.
enum class Choice : std::uint8_t { none, any_of, one_of, nullable };

/// A schema that holds, or what it leaves to be decided at that place of the order.
struct Entry {
  const json::Value* schema;
  const Inside* path = nullptr;
  Choice choice = Choice::none;
};

/// What a nullable value may be beside what its schema says.
const json::Value& null_schema() {
  static const json::Value schema = {{"type", "null"}};
  return schema;
}

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
    std::vector<Entry> entries;  // in the order of the schema
    std::size_t n_decided = 0;   // at the front
    std::size_t n_schemas = 0;   // that hold
    bool is_impossible = false;

    std::size_t n_bytes() const { return entries.size() * sizeof(Entry); }
  };

  tl::unexpected<Error> error(ErrorCode code, const json::Value& schema, std::string_view keyword,
                              std::string_view text) const {
    return schema_error(code, document_, schema, keyword, text);
  }
  Result<void> add(const json::Value& schema, const Inside* outer, Draft& draft, bool may_be_null = true);
  Result<bool> may_add(const json::Value& schema, const Inside* outer, const Draft& draft);
  Result<void> add_overlaps(const json::Value& schema, const json::Value& alternatives);
  Result<void> check_keywords(const json::Value& schema);
  Result<void> place(const json::Value& alternative, const Entry& entry, Draft& draft);
  Result<void> add_shape(const Draft& draft);
  Result<std::vector<const json::Value*>> alternatives_of(const Entry& entry);
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
    if (field.value().is_null() && name != "const") continue;
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
  const std::vector<Entry>& entries = draft.entries;
  if (!meter_.spend(n_outer / 8 + static_cast<std::int64_t>(entries.size() / 8))) return over_budget(meter_);
  if (std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.schema == &schema; })) return false;
  if (draft.n_schemas >= kMaxParts)
    return fail(ErrorCode::too_large, fmt::format("the JSON schema: {}: $ref and allOf ask one value for more than {} schemas",
                                                  document_.path_of(schema), kMaxParts));
  return true;
}

Result<void> ShapeBuilder::add(const json::Value& schema, const Inside* outer, Draft& draft, bool may_be_null) {
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
  if (!held_.add(sizeof(Inside) + 2 * sizeof(Entry))) return over_budget(meter_);
  const Inside* path = &insides_.emplace_back(Inside{&schema, outer});
  const json::Value* ref = find_keyword(schema, "$ref");
  const bool is_only_ref = ref != nullptr && document_.draft() <= SchemaDraft::draft7;
  if (const json::Value* nullable = find_keyword(schema, "nullable"); nullable != nullptr && !is_only_ref && may_be_null) {
    if (!nullable->is_boolean()) return error(ErrorCode::invalid_request, schema, "nullable", "must be true or false");
    if (nullable->get<bool>()) {
      draft.entries.push_back({&schema, outer, Choice::nullable});
      return {};
    }
  }
  if (!is_only_ref) {
    BATON_TRY_VOID(check_keywords(schema));
    draft.entries.push_back({&schema});
    ++draft.n_schemas;
  }
  if (ref != nullptr) {
    if (!ref->is_string()) return error(ErrorCode::invalid_request, schema, "$ref", "must be a string");
    BATON_TRY(const json::Value* target, document_.resolve(schema, ref->get_ref<const std::string&>()));
    BATON_TRY_VOID(add(*target, path, draft));
  }
  for (const std::string_view keyword : {"allOf", "anyOf", "oneOf"}) {
    const json::Value* list = is_only_ref ? nullptr : find_keyword(schema, keyword);
    if (list == nullptr) continue;
    if (!list->is_array() || list->empty())
      return error(ErrorCode::invalid_request, schema, keyword, "must be a list of schemas");
    if (keyword != "allOf") {
      draft.entries.push_back({&schema, path, keyword == "anyOf" ? Choice::any_of : Choice::one_of});
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

/// Puts an alternative in the place of the first entry that is not decided.
Result<void> ShapeBuilder::place(const json::Value& alternative, const Entry& entry, Draft& draft) {
  const auto begin = static_cast<std::ptrdiff_t>(draft.n_decided);
  HeldBytes held(meter_);
  if (!held.add((draft.entries.size() - draft.n_decided) * sizeof(Entry))) return over_budget(meter_);
  const std::vector<Entry> rest(draft.entries.begin() + begin + 1, draft.entries.end());
  const auto holds = [](const Entry& one) { return one.choice == Choice::none; };
  draft.n_schemas -= static_cast<std::size_t>(std::count_if(rest.begin(), rest.end(), holds));
  draft.entries.resize(draft.n_decided);
  BATON_TRY_VOID(add(alternative, entry.path, draft, /*may_be_null=*/entry.choice != Choice::nullable));
  std::set<const json::Value*> added;
  for (auto one = draft.entries.begin() + begin; one != draft.entries.end(); ++one) added.insert(one->schema);
  if (!meter_.spend(static_cast<std::int64_t>(4 * added.size() + rest.size() / 8))) return over_budget(meter_);
  for (const Entry& one : rest) {
    if (added.contains(one.schema)) continue;
    draft.entries.push_back(one);
    draft.n_schemas += holds(one) ? 1 : 0;
  }
  return {};
}

Result<void> ShapeBuilder::add_shape(const Draft& draft) {
  if (shapes_.size() >= kMaxShapes)
    return fail(ErrorCode::too_large,
                fmt::format("the JSON schema: {}: anyOf and oneOf give one value more than {} alternatives",
                            document_.path_of(*draft.entries.front().schema), kMaxShapes));
  if (!meter_.write(sizeof(SchemaShape) + draft.entries.size() * sizeof(draft.entries[0].schema))) return over_budget(meter_);
  SchemaShape& shape = shapes_.emplace_back();
  shape.parts.reserve(draft.entries.size());
  for (const Entry& entry : draft.entries) shape.parts.push_back(entry.schema);
  return {};
}

Result<std::vector<const json::Value*>> ShapeBuilder::alternatives_of(const Entry& entry) {
  if (entry.choice == Choice::nullable) return std::vector{entry.schema, &null_schema()};
  const json::Value& list = *json::find(*entry.schema, entry.choice == Choice::any_of ? "anyOf" : "oneOf");
  if (entry.choice == Choice::one_of) BATON_TRY_VOID(add_overlaps(*entry.schema, list));
  if (!meter_.spend(static_cast<std::int64_t>(list.size() / 8))) return over_budget(meter_);
  std::vector<const json::Value*> all;
  for (const json::Value& alternative : list) all.push_back(&alternative);
  return all;
}

/// Decides what is first in the order, each alternative at its place.
Result<void> ShapeBuilder::decide(Draft draft) {
  if (draft.is_impossible) return {};
  const auto first = std::find_if(draft.entries.begin() + static_cast<std::ptrdiff_t>(draft.n_decided), draft.entries.end(),
                                  [](const Entry& entry) { return entry.choice != Choice::none; });
  draft.n_decided = static_cast<std::size_t>(first - draft.entries.begin());
  if (first == draft.entries.end()) return add_shape(draft);
  const Entry entry = *first;
  BATON_TRY(const std::vector<const json::Value*> all, alternatives_of(entry));
  HeldBytes held(meter_);  // of the list, and of a copy below
  if (!held.add(all.size() * sizeof(all[0]) + (all.size() > 1 ? draft.n_bytes() : 0))) return over_budget(meter_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!meter_.spend(2 + static_cast<std::int64_t>(draft.n_bytes() / 64))) return over_budget(meter_);
    Draft one = i + 1 == all.size() ? std::move(draft) : draft;
    BATON_TRY_VOID(place(*all[i], entry, one));
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
      const json::Value& ref = *json::find(*schema, "$ref");  // null is not a reference
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
