/// Methods of lists, dicts and loops, and which type has which; methods of strings stand in string_methods.cpp.
#include <algorithm>

#include "jinja/native.h"
#include "jinja/operators.h"

namespace baton::jinja {
namespace {

using Values = std::vector<Value>;

Values& items_of(const NativeCall& call) { return call.self.as_list()->items; }
Dict& dict_of(const NativeCall& call) { return *call.self.as_dict(); }

/// Methods that change a list or dict work here as in Python; the sandbox of Transformers refuses them.
Result<Value> append(const NativeCall& call) {
  if (!call.arena.take(sizeof(Value))) return fail_exhausted(call.arena);
  items_of(call).push_back(*call[0]);
  return Value::none();
}

Result<Value> extend(const NativeCall& call) {
  BATON_TRY(const Values more, elements(call.arena, *call[0]));
  if (!call.arena.take(more.size() * sizeof(Value)) || !call.arena.reserve(items_of(call).size() + more.size(), sizeof(Value)))
    return fail_exhausted(call.arena);
  items_of(call).insert(items_of(call).end(), more.begin(), more.end());
  return Value::none();
}

Result<Value> insert(const NativeCall& call) {
  BATON_TRY(const std::int64_t index, integer_argument(call, 0, 0));
  const auto n = static_cast<std::int64_t>(items_of(call).size());
  const std::int64_t at = std::clamp<std::int64_t>(index < 0 && index >= -n ? index + n : index, 0, n);
  if (!call.arena.spend(1 + static_cast<std::size_t>(n) / 16) || !call.arena.take(sizeof(Value)))
    return fail_exhausted(call.arena);
  items_of(call).insert(items_of(call).begin() + at, *call[1]);
  return Value::none();
}

Result<Value> pop(const NativeCall& call) {
  Values& items = items_of(call);
  BATON_TRY(std::int64_t index, integer_argument(call, 0, -1));
  if (items.empty()) return type_error("pop from empty list");
  if (index < 0) index += static_cast<std::int64_t>(items.size());
  if (index < 0 || index >= static_cast<std::int64_t>(items.size())) return type_error("pop index out of range");
  const Value value = items[static_cast<std::size_t>(index)];
  call.arena.spend(items.size() / 16);
  items.erase(items.begin() + index);
  return value;
}

Result<Value> remove(const NativeCall& call) {
  Values& items = items_of(call);
  const auto found = std::find_if(items.begin(), items.end(), [&](Value item) { return equal(call.arena, item, *call[0]); });
  if (call.arena.is_exhausted()) return fail_exhausted(call.arena);
  if (found == items.end()) return type_error("list.remove(x): x not in list");
  call.arena.spend(items.size() / 16);
  items.erase(found);
  return Value::none();
}

Result<Value> reverse(const NativeCall& call) {
  if (!call.arena.spend(items_of(call).size())) return fail_exhausted(call.arena);
  std::reverse(items_of(call).begin(), items_of(call).end());
  return Value::none();
}

Result<Value> clear_list(const NativeCall& call) {
  items_of(call).clear();
  return Value::none();
}

Result<Value> copy_list(const NativeCall& call) {
  if (!call.arena.reserve(items_of(call).size(), sizeof(Value))) return fail_exhausted(call.arena);
  return call.arena.list(List::Flavor::list, items_of(call));
}

Result<Value> count(const NativeCall& call) {
  const Values& items = items_of(call);
  return Value::integer(
      std::count_if(items.begin(), items.end(), [&](Value item) { return equal(call.arena, item, *call[0]); }));
}

Result<Value> index(const NativeCall& call) {
  const Values& items = items_of(call);
  const auto found = std::find_if(items.begin(), items.end(), [&](Value item) { return equal(call.arena, item, *call[0]); });
  if (found == items.end()) return type_error("a value is not in the list");
  return Value::integer(found - items.begin());
}

/// The dict's value of the first argument, or null.
Result<const Value*> find(const NativeCall& call) {
  BATON_TRY_VOID(check_hashable(*call[0]));
  call.arena.spend_key(*call[0]);
  return dict_of(call).find(*call[0]);
}

Result<Value> get(const NativeCall& call) {
  BATON_TRY(const Value* value, find(call));
  return value != nullptr ? *value : call[1].value_or(Value::none());
}

template <List::Flavor flavor>
Result<Value> keys_or_values(const NativeCall& call) {
  Values result;
  if (!call.arena.reserve(dict_of(call).entries.size(), sizeof(Value))) return fail_exhausted(call.arena);
  for (const auto& [key, value] : dict_of(call).entries) result.push_back(flavor == List::Flavor::keys ? key : value);
  return call.arena.list(flavor, std::move(result));
}

Result<Value> items(const NativeCall& call) {
  Values result;
  for (const auto& [key, value] : dict_of(call).entries) {
    if (call.arena.is_exhausted()) return fail_exhausted(call.arena);
    result.push_back(call.arena.list(List::Flavor::tuple, {key, value}));
  }
  return call.arena.list(List::Flavor::items, std::move(result));
}

Result<Value> copy_dict(const NativeCall& call) {
  Dict* copy = call.arena.dict();
  for (const auto& [key, value] : dict_of(call).entries) {
    if (call.arena.is_exhausted()) return fail_exhausted(call.arena);
    call.arena.set(*copy, key, value);
  }
  return Value::dict(copy);
}

Result<Value> pop_key(const NativeCall& call) {
  BATON_TRY(const Value* found, find(call));
  if (found == nullptr) {
    if (call[1]) return *call[1];
    return type_error("pop(): the key is not in the dict");
  }
  const Value value = *found;
  call.arena.spend(dict_of(call).entries.size());
  dict_of(call).erase(*call[0]);
  return value;
}

Result<Value> set_default(const NativeCall& call) {
  BATON_TRY(const Value* found, find(call));
  if (found != nullptr) return *found;
  const Value value = call[1].value_or(Value::none());
  call.arena.set(dict_of(call), *call[0], value);
  return value;
}

Result<Value> update(const NativeCall& call) {
  if (!call.all.positional.empty()) {
    const Value source = call.all.positional[0];
    if (!source.is(Kind::dict)) return type_error("update() needs a mapping, not " + std::string(type_name(source)));
    const auto entries = source.as_dict()->entries;
    for (const auto& [key, value] : entries) {
      if (call.arena.is_exhausted()) return fail_exhausted(call.arena);
      call.arena.set(dict_of(call), key, value);
    }
  }
  for (const auto& [name, value] : call.all.named) call.arena.set(dict_of(call), Value::string(name), value);
  return Value::none();
}

Result<Value> clear_dict(const NativeCall& call) {
  *call.self.as_dict() = Dict();
  return Value::none();
}

Result<Value> cycle(const NativeCall& call) {
  if (call.all.positional.empty()) return type_error("no items for cycling given");
  return call.all.positional[call.self.as_loop()->index0 % call.all.positional.size()];
}

Result<Value> changed(const NativeCall& call) {
  Loop& loop = *call.self.as_loop();
  const Values& now = call.all.positional;
  const bool same = loop.changed && std::equal(now.begin(), now.end(), loop.changed->begin(), loop.changed->end(),
                                               [&](Value a, Value b) { return equal(call.arena, a, b); });
  loop.changed = now;
  return Value::boolean(!same);
}

constexpr Native kListMethods[] = {
    {"append", append, {"object"}, 1},
    {"extend", extend, {"iterable"}, 1},
    {"insert", insert, {"index", "object"}, 2},
    {"pop", pop, {"index"}},
    {"remove", remove, {"value"}, 1},
    {"reverse", reverse},
    {"clear", clear_list},
    {"copy", copy_list},
    {"count", count, {"value"}, 1},
    {"index", index, {"value"}, 1},
};
constexpr Native kTupleMethods[] = {{"count", count, {"value"}, 1}, {"index", index, {"value"}, 1}};
constexpr Native kDictMethods[] = {
    {"get", get, {"key", "default"}, 1},
    {"items", items},
    {"keys", keys_or_values<List::Flavor::keys>},
    {"values", keys_or_values<List::Flavor::values>},
    {"copy", copy_dict},
    {"pop", pop_key, {"key", "default"}, 1},
    {"update", update, {}, 0, true},
    {"setdefault", set_default, {"key", "default"}, 1},
    {"clear", clear_dict},
};
constexpr Native kLoopMethods[] = {{"cycle", cycle, {}, 0, true}, {"changed", changed, {}, 0, true}};

}  // namespace

const Native* find_method(Value object, std::string_view name) {
  switch (object.kind()) {
    case Kind::string: return find_row(string_methods(), name);
    case Kind::dict: return find_row(kDictMethods, name);
    case Kind::loop: return find_row(kLoopMethods, name);
    case Kind::list:
      if (object.as_list()->flavor == List::Flavor::list) return find_row(kListMethods, name);
      return object.as_list()->is_indexable() ? find_row(kTupleMethods, name) : nullptr;
    default: return nullptr;
  }
}

}  // namespace baton::jinja
