/// Methods of lists and dicts, and which type has which; methods of strings stand in string_methods.cpp.
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

constexpr Native kListMethods[] = {{"append", append, {"object"}, 1}, {"pop", pop, {"index"}}};
constexpr Native kDictMethods[] = {
    {"get", get, {"key", "default"}, 1},          {"items", items},
    {"keys", keys_or_values<List::Flavor::keys>}, {"values", keys_or_values<List::Flavor::values>},
    {"pop", pop_key, {"key", "default"}, 1},      {"update", update, {}, 0, true},
};

}  // namespace

const Native* find_method(Value object, std::string_view name) {
  switch (object.kind()) {
    case Kind::string: return find_row(string_methods(), name);
    case Kind::dict: return find_row(kDictMethods, name);
    case Kind::list: return object.as_list()->flavor == List::Flavor::list ? find_row(kListMethods, name) : nullptr;
    default: return nullptr;
  }
}

}  // namespace baton::jinja
