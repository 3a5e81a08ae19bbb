/// Types, strings, numbers, enum and const of JSON Schema.
#include "grammar/schema/schema_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/one_line.h"
#include "grammar/automaton/char_ranges.h"
#include "grammar/automaton/json_text.h"
#include "grammar/automaton/regex.h"
#include "grammar/automaton/source_cursor.h"
#include "grammar/automaton/string_formats.h"
#include "grammar/ebnf/regular_grammar.h"

namespace baton::grammar {

Result<std::optional<int>> count_keyword(const SchemaDocument& document, const json::Value& schema, std::string_view keyword) {
  const json::Value* value = find_keyword(schema, keyword);
  if (value == nullptr) return std::optional<int>();
  const auto count = json::to_int64(*value, keyword, 0, kMaxRepeat);
  if (!count)
    return schema_error(ErrorCode::invalid_request, document, schema, keyword,
                        fmt::format("must be an integer from 0 to {}", kMaxRepeat));
  return std::optional<int>(static_cast<int>(*count));
}

Result<LengthBounds> length_keywords(const SchemaDocument& document, const json::Value& schema) {
  LengthBounds length;
  for (const std::string_view keyword : {"minLength", "maxLength"}) {
    const json::Value* value = find_keyword(schema, keyword);
    if (value == nullptr) continue;
    const double number = value->is_number() ? value->get<double>() : -1;
    if (number < 0 || std::floor(number) != number)
      return schema_error(ErrorCode::invalid_request, document, schema, keyword, "must be an integer of at least 0");
    const bool is_too_long = number > LengthBounds::kMost;
    if (keyword == "maxLength" && !is_too_long) length.max = static_cast<std::int32_t>(number);
    if (keyword == "maxLength") continue;
    if (is_too_long)
      return schema_error(ErrorCode::invalid_request, document, schema, keyword,
                          fmt::format("is over {}: no answer is so long", LengthBounds::kMost));
    length.min = static_cast<std::int32_t>(number);
  }
  return length;
}

void StringLanguage::limit(const LengthBounds& other) {
  length.min = std::max(length.min, other.min);
  if (other.max >= 0 && (length.max < 0 || other.max < length.max)) length.max = other.max;
}

bool StringLanguage::allows(std::string_view text) const {
  return length.allows(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; })) &&
         (!content || content->accepts(text));
}

unsigned kind_of(const json::Value& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_string()) return kString;
  if (value.is_array()) return kArray;
  if (value.is_object()) return kObject;
  return value.is_number_float() && std::floor(value.get<double>()) != value.get<double>() ? kFraction : kInteger;
}

Result<unsigned> SchemaValues::kinds(const SchemaShape& shape) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 7> kNames{{{"null", kNull},
                                                                         {"boolean", kBoolean},
                                                                         {"integer", kInteger},
                                                                         {"number", kInteger | kFraction},
                                                                         {"string", kString},
                                                                         {"array", kArray},
                                                                         {"object", kObject}}};
  unsigned all = kAllKinds;
  for (const json::Value* part : shape.parts) {
    const json::Value* type = find_keyword(*part, "type");
    if (type == nullptr) continue;
    if (!meter_.spend(8 * static_cast<std::int64_t>(type->size()))) return over_budget(meter_);
    unsigned own = 0;
    const auto add = [&](const json::Value& name) {
      for (const auto& [known, kind] : kNames)
        if (name == json::Value(std::string(known))) {
          own |= kind;
          return true;
        }
      return false;
    };
    const bool is_known = type->is_array() ? std::all_of(type->begin(), type->end(), add) : add(*type);
    if (!is_known)
      return schema_error(ErrorCode::invalid_request, document_, *part, "type",
                          fmt::format("is {}, which is not a type", one_line(json::dump(*type), kMaxQuotedBytes)));
    all &= own;
  }
  return all;
}

Result<const Dfa*> SchemaValues::regex(const json::Value& schema, std::string_view keyword, const std::string& regex,
                                       bool is_whole) {
  if (!meter_.pass(4 * regex.size())) return over_budget(meter_);
  const auto known = automata_.find({regex, is_whole});
  if (known != automata_.end()) return &known->second;
  const auto expr = parse_regex(expressions_, regex, is_whole ? RegexUse::whole : RegexUse::search, meter_);
  if (!expr)
    return schema_error(expr.error().code, document_, schema, keyword, fmt::format("is refused: {}", expr.error().message));
  auto dfa = determinize(expressions_, *expr, meter_);
  if (!dfa)
    return schema_error(dfa.error().code, document_, schema, keyword, fmt::format("is refused: {}", dfa.error().message));
  if (!meter_.write(128 + regex.size())) return over_budget(meter_);
  return &automata_.emplace(std::pair(regex, is_whole), std::move(*dfa)).first->second;
}

Result<const Dfa*> SchemaValues::pattern(const json::Value& schema, std::string_view keyword, const std::string& pattern) {
  return regex(schema, keyword, pattern, /*is_whole=*/false);
}

Result<const Dfa*> SchemaValues::regular_grammar(const json::Value& schema, const std::string& text) {
  if (!meter_.pass(4 * text.size())) return over_budget(meter_);
  const auto known = grammars_.find(text);
  if (known != grammars_.end()) return &known->second;
  auto dfa = grammar::regular_grammar(text, meter_);
  if (!dfa)
    return schema_error(dfa.error().code, document_, schema, kGrammarKeyword,
                        fmt::format("is refused: {}", dfa.error().message));
  if (!meter_.write(128 + text.size())) return over_budget(meter_);
  return &grammars_.emplace(text, std::move(*dfa)).first->second;
}

Result<const Dfa*> SchemaValues::any_text() { return regex(document_.root(), "pattern", "", /*is_whole=*/false); }

Result<StringLanguage> SchemaValues::strings(const SchemaShape& shape) {
  StringLanguage language;
  const auto intersect = [&](const Dfa& other) -> Result<void> {
    if (!meter_.spend(4 * static_cast<std::int64_t>(other.n_states()))) return over_budget(meter_);
    if (!language.content) {
      language.content = other;
      return {};
    }
    BATON_TRY(language.content, combine(*language.content, other, DfaProduct::intersection, meter_));
    return {};
  };
  for (const json::Value* part : shape.parts) {
    BATON_TRY(const LengthBounds length, length_keywords(document_, *part));
    language.limit(length);
    if (const json::Value* found = find_keyword(*part, "pattern"); found != nullptr) {
      if (!found->is_string()) return schema_error(ErrorCode::invalid_request, document_, *part, "pattern", "must be a string");
      BATON_TRY(const Dfa* dfa, pattern(*part, "pattern", found->get_ref<const std::string&>()));
      BATON_TRY_VOID(intersect(*dfa));
    }
    if (const json::Value* found = find_keyword(*part, kGrammarKeyword); found != nullptr) {
      if (!found->is_string())
        return schema_error(ErrorCode::invalid_request, document_, *part, kGrammarKeyword, "must be a string");
      BATON_TRY(const Dfa* dfa, regular_grammar(*part, found->get_ref<const std::string&>()));
      BATON_TRY_VOID(intersect(*dfa));
    }
    if (const json::Value* found = find_keyword(*part, "format"); found != nullptr) {
      if (!found->is_string()) return schema_error(ErrorCode::invalid_request, document_, *part, "format", "must be a string");
      const StringFormat format = string_format(found->get_ref<const std::string&>());
      if (format.use == FormatUse::refused)
        return schema_error(ErrorCode::unsupported, document_, *part, "format",
                            fmt::format("'{}' is not supported", found->get_ref<const std::string&>()));
      if (format.use == FormatUse::annotation) {
        ignored_.push_back(document_.path_of(*part) + "/format");
        if (!meter_.write(ignored_.back().size() + 2 * sizeof(std::string))) return over_budget(meter_);
        continue;
      }
      BATON_TRY(const Dfa* dfa, regex(*part, "format", format.regex, /*is_whole=*/true));
      BATON_TRY_VOID(intersect(*dfa));
    }
  }
  return language;
}

Result<std::vector<SchemaShape>> SchemaValues::shapes(const SchemaSet& schemas) {
  return shapes_of(document_, schemas, overlaps_, ignored_, meter_);
}

Result<std::string> SchemaValues::string_key(const SchemaShape& shape) {
  std::string key;
  for (const json::Value* part : shape.parts)
    for (const std::string_view keyword : {std::string_view("minLength"), std::string_view("maxLength"),
                                           std::string_view("pattern"), std::string_view("format"), kGrammarKeyword})
      if (const json::Value* value = find_keyword(*part, keyword); value != nullptr) {
        const std::string text = json::dump(*value);
        if (!meter_.pass(16 * text.size())) return over_budget(meter_);
        key += fmt::format("{} {} ", keyword, text);
      }
  return key;
}

Result<NumberLanguage> SchemaValues::numbers(const SchemaShape& shape) {
  NumberLanguage language;
  for (const json::Value* part : shape.parts) {
    const auto bound = [&](std::string_view keyword, std::string_view exclusive,
                           std::vector<NumberBound>& bounds) -> Result<void> {
      const json::Value* limit = find_keyword(*part, keyword);
      const json::Value* other = find_keyword(*part, exclusive);
      const bool is_draft4 = other != nullptr && other->is_boolean();  // in whatever draft: OpenAPI 3.0 and others write it so
      if (is_draft4 && limit == nullptr && other->get<bool>())
        return schema_error(ErrorCode::invalid_request, document_, *part, exclusive,
                            fmt::format("is true, and there is no '{}'", keyword));
      if (limit != nullptr) {
        if (!limit->is_number()) return schema_error(ErrorCode::invalid_request, document_, *part, keyword, "must be a number");
        bounds.push_back({plain_decimal(*limit), is_draft4 && other->get<bool>()});
      }
      if (other == nullptr || is_draft4) return {};
      if (!other->is_number()) return schema_error(ErrorCode::invalid_request, document_, *part, exclusive, "must be a number");
      bounds.push_back({plain_decimal(*other), true});
      return {};
    };
    BATON_TRY_VOID(bound("minimum", "exclusiveMinimum", language.at_least));
    BATON_TRY_VOID(bound("maximum", "exclusiveMaximum", language.at_most));
    if (const json::Value* multiple = find_keyword(*part, "multipleOf"); multiple != nullptr) {
      if (!multiple->is_number() || multiple->get<double>() <= 0)
        return schema_error(ErrorCode::invalid_request, document_, *part, "multipleOf", "must be a number over 0");
      language.multiples_of.push_back(plain_decimal(*multiple));
    }
  }
  return language;
}

namespace {

/// Values without duplicates. Equal values have equal hashes, also 1 and 1.0.
class ValueSet {
 public:
  explicit ValueSet(WorkMeter& meter) : meter_(meter), held_(meter) {}

  /// Whether there was none equal to it. Errors: the budget's.
  Result<bool> insert(const json::Value& value) {
    const Sum sum = sum_of(value);
    BATON_TRY(const bool is_known, contains(value, sum));
    if (is_known) return false;
    if (!held_.add(56)) return over_budget(meter_);
    values_.emplace(sum.hash, &value);
    return true;
  }
  Result<bool> contains(const json::Value& value) { return contains(value, sum_of(value)); }

 private:
  struct Sum {
    std::size_t hash = 0;
    std::int64_t n_steps = 1;  // that looking at all of the value costs
  };

  /// As deep as JSON may be nested.
  static Sum sum_of(const json::Value& value) {
    constexpr std::size_t kFactor = 0x9E3779B97F4A7C15u;
    Sum sum{.hash = kFactor * kind_of(value), .n_steps = 1};
    if (value.is_string()) {
      const std::string& text = value.get_ref<const std::string&>();
      sum = {.hash = std::hash<std::string>()(text), .n_steps = 1 + static_cast<std::int64_t>(text.size() / 16)};
    } else if (value.is_number()) {
      sum.hash = std::hash<double>()(value.get<double>());
    } else if (value.is_boolean()) {
      sum.hash += value.get<bool>() ? 1 : 0;
    }
    if (!value.is_structured()) return sum;
    for (auto part = value.begin(); part != value.end(); ++part) {
      const Sum own = sum_of(*part);
      sum.hash = (sum.hash ^ own.hash) * kFactor;
      sum.n_steps += own.n_steps;
      if (!value.is_object()) continue;
      sum.hash ^= std::hash<std::string>()(part.key());
      sum.n_steps += static_cast<std::int64_t>(part.key().size() / 16);
    }
    return sum;
  }
  Result<bool> contains(const json::Value& value, const Sum& sum) {
    if (!meter_.spend(2 + sum.n_steps)) return over_budget(meter_);
    const auto [first, last] = values_.equal_range(sum.hash);
    for (auto known = first; known != last; ++known) {
      if (!meter_.spend(1 + sum.n_steps)) return over_budget(meter_);
      if (*known->second == value) return true;
    }
    return false;
  }

  WorkMeter& meter_;
  HeldBytes held_;
  std::unordered_multimap<std::size_t, const json::Value*> values_;
};

}  // namespace

Result<std::optional<ListedValues>> SchemaValues::values(const SchemaShape& shape) {
  std::optional<ListedValues> all;
  const auto intersect = [&](const json::Value* begin, std::size_t n) -> Result<void> {
    ValueSet own(meter_);
    ListedValues kept;
    for (std::size_t i = 0; i < n; ++i) {
      BATON_TRY(const bool is_new, own.insert(begin[i]));
      if (is_new && !all) kept.push_back(&begin[i]);
    }
    if (all)
      for (const json::Value* value : *all) {
        BATON_TRY(const bool is_there, own.contains(*value));
        if (is_there) kept.push_back(value);
      }
    all = std::move(kept);
    return {};
  };
  for (const json::Value* part : shape.parts) {
    if (const json::Value* list = find_keyword(*part, "enum"); list != nullptr) {
      if (!list->is_array()) return schema_error(ErrorCode::invalid_request, document_, *part, "enum", "must be a list");
      BATON_TRY_VOID(intersect(list->get_ref<const json::Value::array_t&>().data(), list->size()));
    }
    if (const json::Value* value = find_keyword(*part, "const"); value != nullptr) BATON_TRY_VOID(intersect(value, 1));
  }
  return all;
}

Result<ListedValues> SchemaValues::allowed_of(const SchemaShape& shape, unsigned kinds, const ListedValues& values) {
  BATON_TRY(const StringLanguage string, strings(shape));
  BATON_TRY(const NumberLanguage number, numbers(shape));
  std::optional<Dfa> digits;
  if (!number.is_any()) {
    BATON_TRY(digits, number_automaton(number, meter_));
  }
  ListedValues allowed;
  for (const json::Value* value : values) {
    if (!meter_.spend(4)) return over_budget(meter_);
    const unsigned kind = kind_of(*value);
    if ((kinds & kind) == 0) continue;
    if (kind == kString && !string.is_any()) {
      const std::string& text = value->get_ref<const std::string&>();
      if (!meter_.pass(4 * text.size())) return over_budget(meter_);
      if (!string.allows(text)) continue;
    }
    if ((kind & (kInteger | kFraction)) != 0 && digits && !digits->accepts(plain_decimal(*value))) continue;
    allowed.push_back(value);
  }
  return allowed;
}

Result<std::optional<ListedValues>> SchemaValues::finite_values(const SchemaSet& schemas) {
  static const json::Value kSmall[] = {nullptr, false, true};
  ValueSet seen(meter_);
  ListedValues all;
  BATON_TRY(const std::vector<SchemaShape> alternatives, shapes(schemas));
  for (const SchemaShape& shape : alternatives) {
    BATON_TRY(const unsigned kinds_of_shape, kinds(shape));
    BATON_TRY(std::optional<ListedValues> listed, values(shape));
    if (!listed && (kinds_of_shape & ~unsigned{kNull | kBoolean}) != 0) return std::optional<ListedValues>();
    if (!listed) listed = ListedValues{&kSmall[0], &kSmall[1], &kSmall[2]};
    BATON_TRY(const ListedValues allowed, allowed_of(shape, kinds_of_shape, *listed));
    for (const json::Value* value : allowed) {
      if (value->is_structured()) return std::optional<ListedValues>();
      BATON_TRY(const bool is_new, seen.insert(*value));
      if (is_new) all.push_back(value);
    }
  }
  return std::optional(std::move(all));
}

}  // namespace baton::grammar
