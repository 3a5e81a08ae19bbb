/// properties, patternProperties, additionalProperties, required and counts of JSON Schema.
#include "grammar/schema/schema_objects.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace baton::grammar {

namespace {

/// A name pattern and the automaton of the names that it matches.
struct NamePattern {
  const json::Value* schema;
  const Dfa* names;
};

/// What one schema says about the properties of an object.
struct ObjectPart {
  const json::Value* schema = nullptr;
  const json::Value* properties = nullptr;
  std::vector<NamePattern> patterns;
  const json::Value* others = nullptr;
};

class ObjectCompiler {
 public:
  ObjectCompiler(const SchemaDocument& document, SchemaValues& values, JsonText& text, WorkMeter& meter,
                 const ValueRule& value_of)
      : document_(document),
        values_(values),
        text_(text),
        expressions_(text.expressions()),
        meter_(meter),
        held_(meter),
        value_of_(value_of) {}

  Result<ExprId> compile(const SchemaShape& shape);

 private:
  /// A declared property: `"name": value`.
  struct Member {
    ExprId text;
    bool is_required;
  };

  Result<void> read(const json::Value& schema);
  Result<void> read_names(const json::Value& schema);
  Result<void> allow_names(const json::Value& names, const StringLanguage& language);
  Result<void> allow_listed(const json::Value& names, const std::vector<SchemaShape>& shapes);
  bool is_allowed(const std::string& name) const;
  Result<void> read_patterns(const json::Value& schema, ObjectPart& part);
  Result<void> add_name(const std::string& name);
  Result<void> add_member(const std::string& name);
  /// The properties that are not declared: each `"name": value`; nullopt where there can be none.
  Result<std::optional<ExprId>> others();
  Result<std::optional<ExprId>> others_matching(const std::set<const Dfa*>& patterns, std::size_t subset,
                                                const Dfa& free_names);
  Result<Dfa> undeclared_names();
  Result<std::vector<ExprId>> places_before(const Member& member, int index, int n_counts, const std::vector<ExprId>& behind);
  ExprId tail(std::optional<ExprId> other, int count) const;
  Result<ExprId> join(std::optional<ExprId> other);

  const SchemaDocument& document_;
  SchemaValues& values_;
  JsonText& text_;
  Expressions& expressions_;
  WorkMeter& meter_;
  HeldBytes held_;
  const ValueRule& value_of_;
  std::vector<ObjectPart> parts_;
  std::set<const Dfa*> patterns_;   // of all parts
  std::vector<std::string> names_;  // in their order
  std::set<std::string> is_named_;
  std::set<std::string> required_;
  std::vector<Member> members_;
  StringLanguage allowed_names_;                       // that all propertyNames allow
  std::optional<std::set<std::string>> listed_names_;  // the names that they list
  std::vector<std::string> listed_in_order_;
  int min_ = 0;
  int max_ = kUnlimited;
};

Result<void> ObjectCompiler::add_name(const std::string& name) {
  if (!meter_.spend(4 + static_cast<std::int64_t>(name.size() / 16)) || !held_.add(2 * (96 + name.size())))
    return over_budget(meter_);
  if (is_named_.insert(name).second) names_.push_back(name);
  return {};
}

Result<void> ObjectCompiler::read_patterns(const json::Value& schema, ObjectPart& part) {
  constexpr std::size_t kMaxPatterns = 6;
  const json::Value* patterns = find_keyword(schema, "patternProperties");
  if (patterns == nullptr) return {};
  if (!patterns->is_object())
    return schema_error(ErrorCode::invalid_request, document_, schema, "patternProperties", "must be an object of schemas");
  for (auto field = patterns->begin(); field != patterns->end(); ++field) {
    BATON_TRY(const Dfa* names, values_.pattern(schema, "patternProperties", field.key()));
    part.patterns.push_back({&field.value(), names});
    patterns_.insert(names);
    if (patterns_.size() > kMaxPatterns)
      return schema_error(ErrorCode::too_large, document_, schema, "patternProperties",
                          fmt::format("has more than {} patterns", kMaxPatterns));
  }
  return {};
}

Result<void> ObjectCompiler::read(const json::Value& schema) {
  ObjectPart part{.schema = &schema,
                  .properties = find_keyword(schema, "properties"),
                  .patterns = {},
                  .others = find_keyword(schema, "additionalProperties")};
  const auto wrong = [&](std::string_view keyword, std::string_view what) {
    return schema_error(ErrorCode::invalid_request, document_, schema, keyword, what);
  };
  if (part.properties != nullptr) {
    if (!part.properties->is_object()) return wrong("properties", "must be an object of schemas");
    for (auto field = part.properties->begin(); field != part.properties->end(); ++field) BATON_TRY_VOID(add_name(field.key()));
  }
  BATON_TRY_VOID(read_patterns(schema, part));
  if (const json::Value* required = find_keyword(schema, "required"); required != nullptr && !required->is_boolean()) {
    if (!required->is_array()) return wrong("required", "must be a list of names");
    for (const json::Value& name : *required) {
      if (!name.is_string()) return wrong("required", "must be a list of names");
      const std::string& text = name.get_ref<const std::string&>();
      BATON_TRY_VOID(add_name(text));
      required_.insert(text);
    }
  }
  BATON_TRY(const std::optional<int> least, count_keyword(document_, schema, "minProperties"));
  BATON_TRY(const std::optional<int> most, count_keyword(document_, schema, "maxProperties"));
  min_ = std::max(min_, least.value_or(0));
  if (most && (max_ == kUnlimited || *most < max_)) max_ = *most;
  parts_.push_back(std::move(part));
  return read_names(schema);
}

/// Names by pattern, format and length.
Result<void> ObjectCompiler::allow_names(const json::Value& names, const StringLanguage& language) {
  allowed_names_.limit(language.length);
  if (!language.content) return {};
  if (!meter_.spend(4 * static_cast<std::int64_t>(language.content->n_states()))) return over_budget(meter_);
  if (!allowed_names_.content) {
    allowed_names_.content = language.content;
    return {};
  }
  auto both = combine(*allowed_names_.content, *language.content, DfaProduct::intersection, meter_);
  if (!both) return schema_error(both.error().code, document_, names, "pattern", "is refused: " + both.error().message);
  allowed_names_.content = std::move(*both);
  return {};
}

/// Names that enum and const list.
Result<void> ObjectCompiler::allow_listed(const json::Value& names, const std::vector<SchemaShape>& shapes) {
  std::vector<std::string> in_order;
  std::set<std::string> own;
  for (const SchemaShape& shape : shapes) {
    BATON_TRY(const unsigned kinds, values_.kinds(shape));
    BATON_TRY(const auto listed, values_.values(shape));
    if (!listed)
      return schema_error(ErrorCode::unsupported, document_, names, "anyOf",
                          "of names that are listed and others is not supported");
    BATON_TRY(const ListedValues allowed, values_.allowed_of(shape, kinds, *listed));
    for (const json::Value* value : allowed) {
      if (!value->is_string()) continue;
      const std::string& name = value->get_ref<const std::string&>();
      if (!meter_.spend(8 + static_cast<std::int64_t>(name.size() / 16)) || !held_.add(3 * (96 + name.size())))
        return over_budget(meter_);
      if ((!listed_names_ || listed_names_->contains(name)) && own.insert(name).second) in_order.push_back(name);
    }
  }
  listed_names_ = std::move(own);
  listed_in_order_ = std::move(in_order);
  return {};
}

Result<void> ObjectCompiler::read_names(const json::Value& schema) {
  const json::Value* names = find_keyword(schema, "propertyNames");
  if (names == nullptr) return {};
  BATON_TRY(std::vector<SchemaShape> shapes, values_.shapes({names}));
  bool is_listed = false;
  for (std::size_t i = 0; i < shapes.size();) {
    BATON_TRY(const unsigned kinds, values_.kinds(shapes[i]));
    BATON_TRY(const auto listed, values_.values(shapes[i]));
    is_listed = is_listed || listed.has_value();
    if ((kinds & kString) == 0)
      shapes.erase(shapes.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
  if (is_listed || shapes.empty()) return allow_listed(*names, shapes);
  if (shapes.size() > 1)
    return schema_error(ErrorCode::unsupported, document_, *names, "anyOf", "of names is supported only where all are listed");
  BATON_TRY(const StringLanguage language, values_.strings(shapes[0]));
  return allow_names(*names, language);
}

bool ObjectCompiler::is_allowed(const std::string& name) const {
  return allowed_names_.allows(name) && (!listed_names_ || listed_names_->contains(name));
}

Result<void> ObjectCompiler::add_member(const std::string& name) {
  SchemaSet schemas;
  for (const ObjectPart& part : parts_) {
    const std::size_t n_looked_at = part.properties == nullptr ? 0 : part.properties->size();
    if (!meter_.spend(1 + static_cast<std::int64_t>(n_looked_at / 8)) || !meter_.pass(4 * name.size() * part.patterns.size()))
      return over_budget(meter_);
    const json::Value* own = part.properties == nullptr ? nullptr : json::find(*part.properties, name);
    bool is_covered = own != nullptr;
    if (own != nullptr) schemas.push_back(own);
    for (const NamePattern& pattern : part.patterns) {
      if (!pattern.names->accepts(name)) continue;
      schemas.push_back(pattern.schema);
      is_covered = true;
    }
    if (!is_covered && part.others != nullptr) schemas.push_back(part.others);
  }
  BATON_TRY(const ExprId value, value_of_(std::move(schemas)));
  members_.push_back({expressions_.sequence({text_.literal_string(name), text_.colon(), value}), required_.contains(name)});
  return {};
}

Result<Dfa> ObjectCompiler::undeclared_names() {
  BATON_TRY(const Dfa* any, values_.any_text());
  if (allowed_names_.content) any = &*allowed_names_.content;
  if (names_.empty()) return *any;
  std::vector<ExprId> all;
  for (const std::string& name : names_) all.push_back(expressions_.bytes(name));
  BATON_TRY(const Dfa declared, determinize(expressions_, expressions_.choice(all), meter_));
  return combine(*any, declared, DfaProduct::difference, meter_);
}

Result<std::optional<ExprId>> ObjectCompiler::others_matching(const std::set<const Dfa*>& patterns, std::size_t subset,
                                                              const Dfa& free_names) {
  if (!meter_.spend(4 * static_cast<std::int64_t>(free_names.n_states()))) return over_budget(meter_);
  Dfa names = free_names;
  std::set<const Dfa*> matching;
  std::size_t bit = 0;
  for (const Dfa* pattern : patterns) {
    const bool is_in = (subset >> bit++ & 1) != 0;
    if (is_in) matching.insert(pattern);
    BATON_TRY(names, combine(names, *pattern, is_in ? DfaProduct::intersection : DfaProduct::difference, meter_));
    if (names.is_empty()) return std::optional<ExprId>();
  }
  SchemaSet schemas;
  if (!meter_.spend(static_cast<std::int64_t>(8 * parts_.size()))) return over_budget(meter_);
  for (const ObjectPart& part : parts_) {
    bool is_covered = false;
    for (const NamePattern& pattern : part.patterns) {
      if (!matching.contains(pattern.names)) continue;
      schemas.push_back(pattern.schema);
      is_covered = true;
    }
    if (!is_covered && part.others != nullptr) schemas.push_back(part.others);
  }
  if (std::any_of(schemas.begin(), schemas.end(),
                  [](const json::Value* schema) { return schema->is_boolean() && !schema->get<bool>(); }))
    return std::optional<ExprId>();
  BATON_TRY(const ExprId value, value_of_(std::move(schemas)));
  ExprId name = 0;
  if (patterns.empty() && names_.empty() && allowed_names_.is_any()) {
    BATON_TRY(name, text_.string());
  } else if (allowed_names_.length.is_any()) {
    BATON_TRY(name, text_.string_of(names));
  } else {
    BATON_TRY(name, text_.counted_string("other names", std::move(names), allowed_names_.length));
  }
  return std::optional<ExprId>(expressions_.sequence({name, text_.colon(), value}));
}

Result<std::optional<ExprId>> ObjectCompiler::others() {
  const bool none_other = std::any_of(parts_.begin(), parts_.end(), [](const ObjectPart& part) {
    return part.patterns.empty() && part.others != nullptr && part.others->is_boolean() && !part.others->get<bool>();
  });
  if (none_other || listed_names_) return std::optional<ExprId>();
  BATON_TRY(const Dfa free_names, undeclared_names());
  std::vector<ExprId> all;
  for (std::size_t subset = 0; subset < std::size_t{1} << patterns_.size(); ++subset) {
    BATON_TRY(const std::optional<ExprId> some, others_matching(patterns_, subset, free_names));
    if (some) all.push_back(*some);
  }
  if (all.empty()) return std::optional<ExprId>();
  const RuleId rule = expressions_.add_rule("other properties");
  expressions_.define(rule, expressions_.choice(all));
  return std::optional<ExprId>(expressions_.rule(rule));
}

/// What comes after the declared properties, of which there were `count`, to the closing bracket.
ExprId ObjectCompiler::tail(std::optional<ExprId> other, int count) const {
  const int least = std::max(min_ - count, 0);
  const int most = max_ == kUnlimited ? kUnlimited : max_ - count;
  const ExprId close = expressions_.bytes("}");
  const ExprId end = expressions_.sequence({text_.spaces(), close});
  if (!other || most == 0) return least > 0 ? expressions_.nothing() : count == 0 ? close : end;
  const ExprId next = expressions_.sequence({text_.comma(), *other});
  if (count > 0) return expressions_.sequence({expressions_.repeat(next, least, most), end});
  const ExprId more = expressions_.repeat(next, std::max(least - 1, 0), most == kUnlimited ? kUnlimited : most - 1);
  const ExprId some = expressions_.sequence({*other, more, end});
  return least == 0 ? expressions_.choice({close, some}) : some;
}

/// What follows in front of a member, by the count of properties so far; `after`: the same after it.
Result<std::vector<ExprId>> ObjectCompiler::places_before(const Member& member, int index, int n_counts,
                                                          const std::vector<ExprId>& behind) {
  std::vector<ExprId> before;
  for (int count = 0; count <= std::min(index, n_counts); ++count) {
    if (!meter_.spend(1)) return over_budget(meter_);
    std::vector<ExprId> choices;
    if (max_ == kUnlimited || count < max_) {
      const ExprId next = behind[static_cast<std::size_t>(std::min(count + 1, n_counts))];
      choices.push_back(count == 0 ? expressions_.sequence({member.text, next})
                                   : expressions_.sequence({text_.comma(), member.text, next}));
    }
    if (!member.is_required) choices.push_back(behind[static_cast<std::size_t>(count)]);
    before.push_back(expressions_.choice(choices));
  }
  return before;
}

/// The declared properties in their order and the others, with what is after each place and count made once.
Result<ExprId> ObjectCompiler::join(std::optional<ExprId> other) {
  // Counts over `n_counts` say the same as it.
  const int n_members = static_cast<int>(members_.size());
  const int n_counts = std::min(n_members, max_ == kUnlimited ? std::max(1, min_) : max_);
  // Of each place and count two expressions are made, a sequence and a choice: they are counted before.
  const std::int64_t n_pairs =
      static_cast<std::int64_t>(n_counts + 1) * (n_members + 1) - n_counts * (n_counts + std::int64_t{1}) / 2;
  if (!HeldBytes(meter_).add(static_cast<std::size_t>(n_pairs) * 2 * sizeof(Expr)) || !meter_.spend(n_pairs))
    return over_budget(meter_);
  std::vector<ExprId> behind;  // [count], after the properties that were looked at
  for (int count = 0; count <= n_counts; ++count) behind.push_back(tail(other, count));
  for (int i = n_members; i-- > 0;) {
    BATON_TRY(behind, places_before(members_[static_cast<std::size_t>(i)], i, n_counts, behind));
  }
  return expressions_.sequence({expressions_.bytes("{"), text_.spaces(), behind[0]});
}

Result<ExprId> ObjectCompiler::compile(const SchemaShape& shape) {
  for (const json::Value* schema : shape.parts) BATON_TRY_VOID(read(*schema));
  if (max_ != kUnlimited && max_ < min_) return expressions_.nothing();
  // Listed names are declared by that: each at most once, after the ones that are declared otherwise.
  for (const std::string& name : listed_in_order_) BATON_TRY_VOID(add_name(name));
  for (const std::string& name : names_) {
    const bool is_possible = is_allowed(name);
    if (!is_possible && required_.contains(name)) return expressions_.nothing();
    if (is_possible) BATON_TRY_VOID(add_member(name));
  }
  BATON_TRY(const std::optional<ExprId> other, others());
  return join(other);
}

}  // namespace

Result<ExprId> object_of_shape(const SchemaDocument& document, const SchemaShape& shape, SchemaValues& values, JsonText& text,
                               WorkMeter& meter, const ValueRule& value_of) {
  return ObjectCompiler(document, values, text, meter, value_of).compile(shape);
}

}  // namespace baton::grammar
