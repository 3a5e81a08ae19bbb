/// Methods of lists, dicts and strings, and which type has which.
#include <algorithm>

#include "jinja/native.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/strings.h"

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

std::string_view self_of(const NativeCall& call) { return call.self.as_string(); }
Value made(const NativeCall& call, std::string text) {
  call.arena.spend_text(text.size());
  return call.arena.text(std::move(text));
}
/// Counts a loop over the characters of the text, or (search) over its bytes by what the C library has for it.
Result<void> count_characters(const NativeCall& call) {
  if (!call.arena.spend_characters(self_of(call).size())) return fail_exhausted(call.arena);
  return {};
}
Result<void> count_search(const NativeCall& call) {
  if (!call.arena.spend_text(self_of(call).size())) return fail_exhausted(call.arena);
  return {};
}
/// A part of the text at whose ends characters were removed, which is counted here.
Value stripped(const NativeCall& call, std::string_view rest) {
  call.arena.spend_characters(self_of(call).size() - rest.size());
  return Value::string(rest);
}

Result<std::string_view> text_argument(const NativeCall& call, std::size_t parameter) {
  const Value value = call[parameter].value_or(Value::string(""));
  if (value.is(Kind::undefined)) return type_error(undefined_message(value));
  if (!value.is(Kind::string)) return type_error("a string is needed, not " + std::string(type_name(value)));
  return value.as_string();
}

template <bool left, bool right>
Result<Value> strip_ends(const NativeCall& call) {
  if (!call[0] || call[0]->is(Kind::none)) return stripped(call, strip(self_of(call), left, right));
  BATON_TRY(const std::string_view set, text_argument(call, 0));
  if (!call.arena.spend_characters(set.size()) || !call.arena.reserve(set.size(), sizeof(char32_t)))
    return fail_exhausted(call.arena);
  return stripped(call, strip(self_of(call), set, left, right));
}

template <std::string (*change)(std::string_view)>
Result<Value> changed(const NativeCall& call) {
  BATON_TRY_VOID(count_characters(call));
  if (!call.arena.reserve(self_of(call).size())) return fail_exhausted(call.arena);
  return made(call, change(self_of(call)));
}

/// Parts that count what their list takes.
Parts counted_parts(const NativeCall& call) {
  return {.parts = {}, .may_add = [&arena = call.arena] {
            constexpr std::size_t kPartBytes = sizeof(std::string_view) + sizeof(Value);
            return arena.spend(1) && arena.take(kPartBytes);
          }};
}

Result<Value> list_of(const NativeCall& call, const Parts& parts) {
  if (call.arena.is_exhausted()) return fail_exhausted(call.arena);
  Values values;
  values.reserve(parts.parts.size());
  for (const std::string_view part : parts.parts) values.push_back(Value::string(part));
  return call.arena.list(List::Flavor::list, std::move(values));
}

Result<Value> split_text(const NativeCall& call) {
  std::optional<std::string_view> separator;
  if (call[0] && !call[0]->is(Kind::none)) {
    BATON_TRY(separator, text_argument(call, 0));
    if (separator->empty()) return type_error("empty separator");
  }
  BATON_TRY(const std::int64_t most, integer_argument(call, 1, -1));
  BATON_TRY_VOID(separator ? count_search(call) : count_characters(call));
  Parts parts = counted_parts(call);
  split(self_of(call), separator, most, parts);
  return list_of(call, parts);
}

/// The text between the start and stop arguments.
Result<Value> part_of(const NativeCall& call, std::size_t start) {
  if (!call[start] && !call[start + 1]) return call.self;
  return slice(call.arena, call.self, call[start], call[start + 1], std::nullopt);
}

template <bool at_end>
Result<Value> has_affix(const NativeCall& call) {
  BATON_TRY(const Value part, part_of(call, 1));
  const std::string_view text = part.as_string();
  Values affixes = {*call[0]};
  if (call[0]->is(Kind::list) && call[0]->as_list()->is_tuple()) affixes = call[0]->as_list()->items;
  for (const Value affix : affixes) {
    if (affix.is(Kind::undefined)) return type_error(undefined_message(affix));
    if (!affix.is(Kind::string))
      return type_error("a string or a tuple of strings is needed, not " + std::string(type_name(affix)));
    if (!call.arena.spend_text(affix.as_string().size())) return fail_exhausted(call.arena);
    if (at_end ? text.ends_with(affix.as_string()) : text.starts_with(affix.as_string())) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool must_exist>
Result<Value> find_text(const NativeCall& call) {
  BATON_TRY(const std::string_view wanted, text_argument(call, 0));
  BATON_TRY(const Value part, part_of(call, 1));
  const std::string_view text = part.as_string();
  if (!call.arena.spend_text(self_of(call).size() + wanted.size())) return fail_exhausted(call.arena);
  const std::size_t at = find_first(text, wanted, 0);
  if (at == std::string_view::npos) {
    if (must_exist) return type_error("substring not found");
    return Value::integer(-1);
  }
  const std::string_view before(self_of(call).data(), static_cast<std::size_t>(text.data() + at - self_of(call).data()));
  return Value::integer(static_cast<std::int64_t>(length(text.empty() ? std::string_view() : before)));
}

Result<Value> count_text(const NativeCall& call) {
  BATON_TRY(const std::string_view wanted, text_argument(call, 0));
  BATON_TRY(const Value part, part_of(call, 1));
  BATON_TRY_VOID(wanted.empty() ? count_characters(call) : count_search(call));
  return Value::integer(static_cast<std::int64_t>(count(part.as_string(), wanted)));
}

Result<Value> replace_text(const NativeCall& call) {
  BATON_TRY(const std::string_view old_part, text_argument(call, 0));
  BATON_TRY(const std::string_view new_part, text_argument(call, 1));
  BATON_TRY(const std::int64_t most, integer_argument(call, 2, -1));
  const std::string_view text = self_of(call);
  BATON_TRY_VOID(old_part.empty() ? count_characters(call) : count_search(call));
  if (!call.arena.reserve(text.size() + count(text, old_part) * new_part.size())) return fail_exhausted(call.arena);
  return made(call, replace(text, old_part, new_part, most));
}

Result<Value> join(const NativeCall& call) {
  BATON_TRY(const Values parts, elements(call.arena, *call[0]));
  std::string result;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].is(Kind::undefined)) return type_error(undefined_message(parts[i]));
    if (!parts[i].is(Kind::string))
      return type_error("sequence item " + std::to_string(i) + ": expected str instance, " + std::string(type_name(parts[i])) +
                        " found");
    const std::size_t n_more = self_of(call).size() + parts[i].as_string().size();
    if (!call.arena.spend_text(n_more) || !call.arena.reserve(result.size() + n_more)) return fail_exhausted(call.arena);
    if (i > 0) result += self_of(call);
    result += parts[i].as_string();
  }
  return made(call, std::move(result));
}

constexpr Native kMethods[] = {
    {"strip", strip_ends<true, true>, {"chars"}},
    {"lstrip", strip_ends<true, false>, {"chars"}},
    {"rstrip", strip_ends<false, true>, {"chars"}},
    {"split", split_text, {"sep", "maxsplit"}},
    {"startswith", has_affix<false>, {"prefix", "start", "end"}, 1},
    {"endswith", has_affix<true>, {"suffix", "start", "end"}, 1},
    {"find", find_text<false>, {"sub", "start", "end"}, 1},
    {"index", find_text<true>, {"sub", "start", "end"}, 1},
    {"count", count_text, {"sub", "start", "end"}, 1},
    {"replace", replace_text, {"old", "new", "count"}, 2},
    {"join", join, {"iterable"}, 1},
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"title", changed<title>},
    {"capitalize", changed<capitalize>},
};

}  // namespace

std::span<const Native> string_methods() { return kMethods; }

const Native* find_method(Value object, std::string_view name) {
  switch (object.kind()) {
    case Kind::string: return find_row(string_methods(), name);
    case Kind::dict: return find_row(kDictMethods, name);
    case Kind::list: return object.as_list()->flavor == List::Flavor::list ? find_row(kListMethods, name) : nullptr;
    default: return nullptr;
  }
}

}  // namespace baton::jinja
