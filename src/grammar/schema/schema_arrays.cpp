/// items, prefixItems, counts and uniqueItems of JSON Schema.
#include "grammar/schema/schema_arrays.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace baton::grammar {

namespace {

/// The schemas of the first elements, one by one, and of all others.
struct ArrayPart {
  const json::Value* first = nullptr;  // a list
  const json::Value* rest = nullptr;

  std::size_t n_first() const { return first == nullptr ? 0 : first->size(); }
};

Result<ArrayPart> array_part(const SchemaDocument& document, const json::Value& schema) {
  ArrayPart part;
  const json::Value* items = find_keyword(schema, "items");
  const json::Value* prefix = find_keyword(schema, "prefixItems");
  if (items != nullptr && items->is_array()) {  // before 2020-12
    prefix = items;
    items = find_keyword(schema, "additionalItems");
  }
  if (prefix != nullptr && !prefix->is_array())
    return schema_error(ErrorCode::invalid_request, document, schema, "prefixItems", "must be a list of schemas");
  part.first = prefix;
  part.rest = items;
  return part;
}

class ArrayCompiler {
 public:
  ArrayCompiler(const SchemaDocument& document, SchemaValues& values, JsonText& text, SchemaOverlaps& overlaps,
                WorkMeter& meter, const ValueRule& value_of)
      : document_(document),
        values_(values),
        text_(text),
        expressions_(text.expressions()),
        overlaps_(overlaps),
        meter_(meter),
        value_of_(value_of) {}

  Result<ExprId> compile(const SchemaShape& shape);

 private:
  Result<void> read(const json::Value& schema);
  Result<SchemaSet> schemas_of(std::size_t index) const;
  Result<ExprId> element(std::size_t index);
  Result<ExprId> any_elements();
  /// nullopt: the elements are different by themselves.
  Result<std::optional<ExprId>> unique_elements();
  Result<std::optional<ExprId>> different_tuple();
  Result<void> add_listed(const ListedValues& listed);
  ExprId end_behind(int count) const;
  ExprId one_more(std::size_t index, int count, ExprId behind) const;
  bool has_room(int count) const { return max_ == kUnlimited || count < max_; }
  ExprId behind_set(const std::vector<std::uint16_t>& used);
  Result<ExprId> in_listed_order();

  const SchemaDocument& document_;
  SchemaValues& values_;
  JsonText& text_;
  Expressions& expressions_;
  SchemaOverlaps& overlaps_;
  WorkMeter& meter_;
  const ValueRule& value_of_;
  std::vector<ArrayPart> parts_;
  const json::Value* unique_ = nullptr;  // the schema that asks for it
  std::size_t n_first_ = 0;
  int min_ = 0;
  int max_ = kUnlimited;
  std::vector<ExprId> listed_;                           // each element
  std::vector<ExprId> next_;                             // the same after a comma
  std::map<std::vector<std::uint16_t>, ExprId> behind_;  // what follows, by the elements that were there, sorted
};

Result<void> ArrayCompiler::read(const json::Value& schema) {
  BATON_TRY(const ArrayPart part, array_part(document_, schema));
  BATON_TRY(const std::optional<int> least, count_keyword(document_, schema, "minItems"));
  BATON_TRY(const std::optional<int> most, count_keyword(document_, schema, "maxItems"));
  min_ = std::max(min_, least.value_or(0));
  if (most && (max_ == kUnlimited || *most < max_)) max_ = *most;
  n_first_ = std::max(n_first_, part.n_first());
  parts_.push_back(part);
  if (const json::Value* unique = find_keyword(schema, "uniqueItems"); unique != nullptr) {
    if (!unique->is_boolean())
      return schema_error(ErrorCode::invalid_request, document_, schema, "uniqueItems", "must be true or false");
    if (unique->get<bool>()) unique_ = &schema;
  }
  return {};
}

Result<SchemaSet> ArrayCompiler::schemas_of(std::size_t index) const {
  if (!meter_.spend(static_cast<std::int64_t>(parts_.size()))) return over_budget(meter_);
  SchemaSet schemas;
  for (const ArrayPart& part : parts_) {
    if (index < part.n_first())
      schemas.push_back(&(*part.first)[index]);
    else if (part.rest != nullptr)
      schemas.push_back(part.rest);
  }
  return schemas;
}

Result<ExprId> ArrayCompiler::element(std::size_t index) {
  BATON_TRY(SchemaSet schemas, schemas_of(index));
  return value_of_(std::move(schemas));
}

/// From the last element to the first.
Result<ExprId> ArrayCompiler::any_elements() {
  const ExprId close = expressions_.bytes("]");
  const ExprId end = expressions_.sequence({text_.spaces(), close});
  BATON_TRY(const ExprId other, element(n_first_));
  const int n = static_cast<int>(n_first_);
  const int least = std::max(min_ - n, 0);
  const int most = max_ == kUnlimited ? kUnlimited : max_ - n;
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
    rest = i >= min_ ? expressions_.choice({i == 0 ? close : end, with_it}) : with_it;
  }
  return rest;
}

/// The end after `count` elements.
ExprId ArrayCompiler::end_behind(int count) const {
  const ExprId close = expressions_.bytes("]");
  return count == 0 ? close : expressions_.sequence({text_.spaces(), close});
}

ExprId ArrayCompiler::one_more(std::size_t index, int count, ExprId behind) const {
  return expressions_.sequence({count == 0 ? listed_[index] : next_[index], behind});
}

/// What follows where the elements of `used` were, in any order. As deep as there are elements: kMostUniquePlaces keep them
/// few where an array may have many.
ExprId ArrayCompiler::behind_set(const std::vector<std::uint16_t>& used) {
  if (const auto known = behind_.find(used); known != behind_.end()) return known->second;
  const int count = static_cast<int>(used.size());
  std::vector<ExprId> choices;
  if (count >= min_) choices.push_back(end_behind(count));
  const std::size_t n_bytes = 160 + used.size() * sizeof(used[0]) + listed_.size() * sizeof(ExprId);
  const bool is_within = meter_.spend(static_cast<std::int64_t>(16 + listed_.size())) && meter_.write(n_bytes);
  for (std::size_t i = 0; i < listed_.size() && has_room(count) && is_within; ++i) {
    const auto element = static_cast<std::uint16_t>(i);
    const auto place = std::lower_bound(used.begin(), used.end(), element);
    if (place != used.end() && *place == element) continue;
    std::vector<std::uint16_t> more = used;
    more.insert(more.begin() + (place - used.begin()), element);
    choices.push_back(one_more(i, count, behind_set(more)));
  }
  const ExprId all = expressions_.choice(choices);
  behind_.emplace(used, all);
  return all;
}

/// Each element or not, one after another.
Result<ExprId> ArrayCompiler::in_listed_order() {
  const int n = static_cast<int>(listed_.size());
  const int n_counts = std::min(n, max_ == kUnlimited ? std::max(1, min_) : max_);  // counts over it say the same
  const auto n_pairs = static_cast<std::int64_t>(n_counts + 1) * (n + 1);
  if (!HeldBytes(meter_).add(static_cast<std::size_t>(n_pairs) * 2 * sizeof(Expr)) || !meter_.spend(n_pairs))
    return over_budget(meter_);
  std::vector<ExprId> behind;  // [count], after the elements that were looked at
  for (int count = 0; count <= n_counts; ++count) behind.push_back(count >= min_ ? end_behind(count) : expressions_.nothing());
  for (std::size_t i = listed_.size(); i-- > 0;) {
    std::vector<ExprId> before;
    for (int count = 0; count <= std::min(static_cast<int>(i), n_counts); ++count) {
      const ExprId without = behind[static_cast<std::size_t>(count)];
      const ExprId next = behind[static_cast<std::size_t>(std::min(count + 1, n_counts))];
      before.push_back(has_room(count) ? expressions_.choice({one_more(i, count, next), without}) : without);
    }
    behind = std::move(before);
  }
  return behind[0];
}

Result<void> ArrayCompiler::add_listed(const ListedValues& listed) {
  for (const json::Value* value : listed) {
    BATON_TRY(const ExprId literal, text_.literal(*value));
    const auto rule_of = [&](ExprId body) {
      const RuleId rule = expressions_.add_rule("a listed element");
      expressions_.define(rule, body);
      return expressions_.rule(rule);
    };
    listed_.push_back(rule_of(literal));
    next_.push_back(rule_of(expressions_.sequence({text_.comma(), literal})));
  }
  return {};
}

/// The elements of a tuple are different if no two of its schemas have a value in common.
Result<std::optional<ExprId>> ArrayCompiler::different_tuple() {
  const bool is_closed = max_ != kUnlimited && static_cast<std::size_t>(max_) <= n_first_;
  const bool has_no_rest = n_first_ > 0 && parts_.size() == 1 && parts_[0].rest != nullptr && parts_[0].rest->is_boolean() &&
                           !parts_[0].rest->get<bool>();
  if (parts_.size() != 1 || (!is_closed && !has_no_rest))
    return schema_error(ErrorCode::unsupported, document_, *unique_, "uniqueItems",
                        "is supported for elements that are listed (enum, const, booleans, null), for at most one, and for "
                        "tuples");
  const json::Value& first = *parts_[0].first;
  const std::size_t n = std::min(n_first_, max_ == kUnlimited ? n_first_ : static_cast<std::size_t>(max_));
  if (!meter_.spend(static_cast<std::int64_t>(8 * n * n)) || !meter_.write(n * n / 2 * sizeof(SchemaOverlap)))
    return over_budget(meter_);
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = a + 1; b < n; ++b)
      overlaps_.pairs.push_back({.one = &first[a],
                                 .other = &first[b],
                                 .schema = unique_,
                                 .keyword = "uniqueItems",
                                 .refusal = "is not supported for a tuple that may have a value twice"});
  return std::optional<ExprId>();
}

Result<std::optional<ExprId>> ArrayCompiler::unique_elements() {
  if (unique_ == nullptr || max_ == 0 || max_ == 1) return std::optional<ExprId>();
  if (n_first_ > 0) return different_tuple();
  BATON_TRY(const SchemaSet schemas, schemas_of(0));
  BATON_TRY(const std::optional<ListedValues> listed, values_.finite_values(schemas));
  if (!listed) return different_tuple();
  BATON_TRY_VOID(add_listed(*listed));
  const double n = static_cast<double>(listed_.size());
  double n_places = 0;
  double n_sets = 1;  // of so many elements
  for (int count = 0; count < static_cast<int>(listed_.size()) && has_room(count); ++count) {
    n_places += n_sets * (n - count);
    n_sets *= (n - count) / (count + 1);
    if (n_places > kMostUniquePlaces) break;
  }
  if (n_places > kMostUniquePlaces) {
    BATON_TRY(const ExprId ordered, in_listed_order());
    return std::optional(ordered);
  }
  const ExprId unordered = behind_set({});
  if (!meter_.is_within()) return over_budget(meter_);
  return std::optional(unordered);
}

Result<ExprId> ArrayCompiler::compile(const SchemaShape& shape) {
  for (const json::Value* schema : shape.parts) BATON_TRY_VOID(read(*schema));
  if (max_ != kUnlimited && max_ < min_) return expressions_.nothing();
  if (max_ != kUnlimited) n_first_ = std::min(n_first_, static_cast<std::size_t>(max_));
  BATON_TRY(const std::optional<ExprId> unique, unique_elements());
  ExprId elements = 0;
  if (unique) {
    elements = *unique;
  } else {
    BATON_TRY(elements, any_elements());
  }
  return expressions_.sequence({expressions_.bytes("["), text_.spaces(), elements});
}

}  // namespace

Result<ExprId> array_of_shape(const SchemaDocument& document, const SchemaShape& shape, SchemaValues& values, JsonText& text,
                              SchemaOverlaps& overlaps, WorkMeter& meter, const ValueRule& value_of) {
  return ArrayCompiler(document, values, text, overlaps, meter, value_of).compile(shape);
}

}  // namespace baton::grammar
