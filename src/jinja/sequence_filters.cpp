/// Filters of sequences and mappings.
#include <algorithm>

#include "jinja/native.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/strings.h"

namespace baton::jinja {
namespace {

using Values = std::vector<Value>;

Value generator(const NativeCall& call, Values items) { return call.arena.list(List::Flavor::generator, std::move(items)); }
bool flag(const NativeCall& call, std::size_t parameter) { return call[parameter] && truthy(*call[parameter]); }

/// The value at a path: "name", "a.b", "pair.0" or an integer; `fallback` where it is undefined.
Result<Value> at_path(Arena& arena, Value value, Value path, std::optional<Value> fallback) {
  if (path.is(Kind::string)) {
    arena.spend_characters(path.as_string().size());
    for (const std::string_view part : split(path.as_string(), ".")) {
      if (!arena.spend(1)) return fail_exhausted(arena);
      const bool is_index = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
      Value key = Value::string(part);
      if (is_index && part.size() < 10) key = Value::integer(std::stoi(std::string(part)));
      BATON_TRY(value, item(arena, value, key));
      if (value.is(Kind::undefined) && fallback) value = *fallback;
    }
    return value;
  }
  BATON_TRY(value, item(arena, value, path));
  return value.is(Kind::undefined) && fallback ? *fallback : value;
}

/// A string in lower case.
Value folded(Arena& arena, Value value) {
  if (!value.is(Kind::string)) return value;
  if (!arena.spend_characters(value.as_string().size()) || !arena.reserve(value.as_string().size())) return Value::string("");
  return arena.text(lower(value.as_string()));
}

/// What sort and unique compare: the attribute, in lower case unless case counts.
Result<Value> sort_key(Arena& arena, Value value, const std::optional<Value>& path, bool case_sensitive) {
  if (path && !path->is(Kind::none)) {
    BATON_TRY(value, at_path(arena, value, *path, std::nullopt));
  }
  return case_sensitive ? value : folded(arena, value);
}

/// What sort compares: lists, as in Jinja, of one key or of those of several attributes, "a,b". (So values that have
/// no order but are all equal can be sorted.)
Result<Value> sort_keys(Arena& arena, Value value, const std::optional<Value>& paths, bool case_sensitive) {
  Values keys;
  if (!paths || !paths->is(Kind::string)) {
    BATON_TRY(const Value key, sort_key(arena, value, paths, case_sensitive));
    return arena.list(List::Flavor::list, {key});
  }
  for (const std::string_view path : split(paths->as_string(), ",")) {
    BATON_TRY(const Value key, sort_key(arena, value, Value::string(path), case_sensitive));
    keys.push_back(key);
  }
  return arena.list(List::Flavor::list, std::move(keys));
}

struct Keyed {
  Value key, value;
};

template <class KeyOf>
Result<std::vector<Keyed>> with_keys(Arena& arena, const Values& items, KeyOf key_of, const std::optional<Value>& path,
                                     bool case_sensitive) {
  std::vector<Keyed> keyed;
  for (const Value value : items) {
    if (!arena.spend(1)) return fail_exhausted(arena);
    BATON_TRY(const Value key, key_of(arena, value, path, case_sensitive));
    keyed.push_back({key, value});
  }
  return keyed;
}

/// A merge sort: stable, and unlike std::stable_sort at ease with comparisons that fail or contradict each other.
Result<void> sort_keyed(Arena& arena, std::vector<Keyed>& items, bool reverse) {
  std::vector<Keyed> merged(items.size());
  for (std::size_t width = 1; width < items.size(); width *= 2) {
    for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, items.size()), end = std::min(begin + 2 * width, items.size());
      std::size_t left = begin, right = middle;
      for (std::size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          BATON_TRY(take_right,
                    reverse ? less(arena, items[left].key, items[right].key) : less(arena, items[right].key, items[left].key));
        }
        merged[out] = take_right ? items[right++] : items[left++];
      }
    }
    items.swap(merged);
  }
  return {};
}

Result<Value> sort(const NativeCall& call) {
  BATON_TRY(const Values items, elements(call.arena, call.self));
  BATON_TRY(std::vector<Keyed> keyed, with_keys(call.arena, items, sort_keys, call[2], flag(call, 1)));
  BATON_TRY_VOID(sort_keyed(call.arena, keyed, flag(call, 0)));
  Values sorted;
  for (const Keyed& entry : keyed) sorted.push_back(entry.value);
  return call.arena.list(List::Flavor::list, std::move(sorted));
}

Result<Value> sort_dict(const NativeCall& call) {
  if (!call.self.is(Kind::dict)) return type_error("dictsort needs a mapping, not " + std::string(type_name(call.self)));
  const std::string_view by = call[1] ? to_text(call.arena, *call[1]).as_string() : "key";
  if (by != "key" && by != "value") return type_error("you can only sort by either 'key' or 'value'");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : call.self.as_dict()->entries) {
    if (!call.arena.spend(1)) return fail_exhausted(call.arena);
    BATON_TRY(const Value sorted_by, sort_key(call.arena, by == "key" ? key : value, std::nullopt, flag(call, 0)));
    keyed.push_back({sorted_by, call.arena.list(List::Flavor::tuple, {key, value})});
  }
  BATON_TRY_VOID(sort_keyed(call.arena, keyed, flag(call, 2)));
  Values sorted;
  for (const Keyed& entry : keyed) sorted.push_back(entry.value);
  return call.arena.list(List::Flavor::list, std::move(sorted));
}

Result<Value> unique(const NativeCall& call) {
  BATON_TRY(const Values items, elements(call.arena, call.self));
  BATON_TRY(const std::vector<Keyed> keyed, with_keys(call.arena, items, sort_key, call[1], flag(call, 0)));
  Dict* seen = call.arena.dict();
  Values result;
  for (const Keyed& entry : keyed) {
    BATON_TRY_VOID(check_hashable(entry.key));
    const std::size_t n_seen = seen->entries.size();
    call.arena.set(*seen, entry.key, Value::none());
    if (call.arena.is_exhausted()) return fail_exhausted(call.arena);
    if (seen->entries.size() > n_seen) result.push_back(entry.value);
  }
  return generator(call, std::move(result));
}

Result<Value> length_filter(const NativeCall& call) {
  if (call.self.is(Kind::string)) call.arena.spend_text(call.self.as_string().size());
  const auto n = length_of(call.self);
  if (!n) return type_error("object of type '" + std::string(type_name(call.self)) + "' has no len()");
  return Value::integer(*n);
}

Result<Value> first(const NativeCall& call) {
  if (call.self.is(Kind::list) && !call.self.as_list()->items.empty()) {
    List& list = *call.self.as_list();
    const Value value = list.items.front();
    if (list.is_generator()) {
      call.arena.spend(list.items.size() / 16);
      list.items.erase(list.items.begin());
    }
    return value;
  }
  BATON_TRY(const Values items, elements(call.arena, call.self));
  return items.empty() ? Value::undefined("no first item: the sequence was empty") : items.front();
}

Result<Value> last(const NativeCall& call) {
  if (call.self.is(Kind::list) && call.self.as_list()->is_generator())
    return type_error("'generator' object is not reversible");
  BATON_TRY(const Values items, elements(call.arena, call.self));
  return items.empty() ? Value::undefined("no last item: the sequence was empty") : items.back();
}

Result<Value> to_list(const NativeCall& call) {
  BATON_TRY(Values items, elements(call.arena, call.self));
  return call.arena.list(List::Flavor::list, std::move(items));
}

Result<Value> reverse(const NativeCall& call) {
  BATON_TRY(Values items, elements(call.arena, call.self));
  std::reverse(items.begin(), items.end());
  if (call.self.is(Kind::string)) {
    std::string text;
    for (const Value character : items) text += character.as_string();
    return call.arena.text(std::move(text));
  }
  return generator(call, std::move(items));
}

Result<Value> join(const NativeCall& call) {
  BATON_TRY(const Values items, elements(call.arena, call.self));
  const std::string_view separator = call[0] ? to_text(call.arena, *call[0]).as_string() : std::string_view();
  std::string result;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Value value = items[i];
    if (call[1] && !call[1]->is(Kind::none)) {
      BATON_TRY(value, at_path(call.arena, value, *call[1], std::nullopt));
    }
    const std::string_view piece = to_text(call.arena, value).as_string();
    const std::size_t n_more = separator.size() + piece.size();
    if (!call.arena.spend_text(n_more) || !call.arena.reserve(result.size() + n_more)) return fail_exhausted(call.arena);
    if (i > 0) result += separator;
    result += piece;
  }
  return call.arena.text(std::move(result));
}

Result<Value> items_of(const NativeCall& call) {
  Values pairs;
  if (call.self.is(Kind::undefined)) return generator(call, std::move(pairs));
  if (!call.self.is(Kind::dict))
    return type_error("can only get item pairs from a mapping, not " + std::string(type_name(call.self)));
  for (const auto& [key, value] : call.self.as_dict()->entries) {
    if (call.arena.is_exhausted()) return fail_exhausted(call.arena);
    pairs.push_back(call.arena.list(List::Flavor::tuple, {key, value}));
  }
  return generator(call, std::move(pairs));
}

/// Arguments of `call` after the first `skip` positional ones.
Arguments rest_of(const NativeCall& call, std::size_t skip) {
  Arguments rest{.positional = {}, .named = call.all.named};
  for (std::size_t i = skip; i < call.all.positional.size(); ++i) rest.positional.push_back(call.all.positional[i]);
  return rest;
}

Result<Value> map(const NativeCall& call) {
  if (!truthy(call.self)) return generator(call, {});  // Jinja asks for truth before it iterates, so none is empty
  BATON_TRY(const Values items, elements(call.arena, call.self));
  std::optional<Value> path, fallback;
  for (const auto& [name, value] : call.all.named) {
    if (name == "attribute") path = value;
    if (name == "default") fallback = value;
  }
  Values result;
  if (call.all.positional.empty()) {
    if (!path) return type_error("map requires a filter argument");
    for (const Value value : items) {
      BATON_TRY(const Value mapped, at_path(call.arena, value, *path, fallback));
      result.push_back(mapped);
    }
    return generator(call, std::move(result));
  }
  const std::string_view name = to_text(call.arena, call.all.positional[0]).as_string();
  const Native* filter = find_filter(name);
  if (filter == nullptr) return type_error("no filter named '" + std::string(name) + "'");
  const Arguments arguments = rest_of(call, 1);
  for (const Value value : items) {
    BATON_TRY(const Value mapped, run_native(call.arena, *filter, value, arguments));
    result.push_back(mapped);
  }
  return generator(call, std::move(result));
}

/// select, reject, selectattr and rejectattr: the items whose value (or attribute) passes a test, or does not.
Result<Value> pick(const NativeCall& call, bool by_attribute, bool wanted) {
  if (!truthy(call.self)) return generator(call, {});
  BATON_TRY(const Values items, elements(call.arena, call.self));
  const std::size_t skip = by_attribute ? 1 : 0;
  if (call.all.positional.size() < skip) return type_error("missing parameter for attribute name");
  const Native* test = nullptr;
  if (call.all.positional.size() > skip) {
    const std::string_view name = to_text(call.arena, call.all.positional[skip]).as_string();
    test = find_test(name);
    if (test == nullptr) return type_error("no test named '" + std::string(name) + "'");
  }
  const Arguments arguments = rest_of(call, skip + 1);
  Values result;
  for (const Value value : items) {
    Value tested = value;
    if (by_attribute) {
      BATON_TRY(tested, at_path(call.arena, value, call.all.positional[0], std::nullopt));
    }
    if (test != nullptr) {
      BATON_TRY(tested, run_native(call.arena, *test, tested, arguments));
    }
    if (truthy(tested) == wanted) result.push_back(value);
  }
  return generator(call, std::move(result));
}
Result<Value> select(const NativeCall& call) { return pick(call, false, true); }
Result<Value> reject(const NativeCall& call) { return pick(call, false, false); }
Result<Value> select_attribute(const NativeCall& call) { return pick(call, true, true); }
Result<Value> reject_attribute(const NativeCall& call) { return pick(call, true, false); }

constexpr Native kFilters[] = {
    {"length", length_filter},
    {"count", length_filter},
    {"first", first},
    {"last", last},
    {"list", to_list},
    {"join", join, {"d", "attribute"}},
    {"items", items_of},
    {"map", map, {}, 0, true},
    {"select", select, {}, 0, true},
    {"reject", reject, {}, 0, true},
    {"selectattr", select_attribute, {}, 0, true},
    {"rejectattr", reject_attribute, {}, 0, true},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}},
    {"dictsort", sort_dict, {"case_sensitive", "by", "reverse"}},
    {"unique", unique, {"case_sensitive", "attribute"}},
    {"reverse", reverse},
};

}  // namespace

std::span<const Native> sequence_filters() { return kFilters; }

}  // namespace baton::jinja
