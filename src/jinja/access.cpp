/// Attributes, items, slices and iteration of values.
#include <algorithm>

#include "jinja/native.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/strings.h"

namespace baton::jinja {
namespace {

Value bind_method(Arena& arena, Value object, const Native& method) {
  return arena.function(Function{.name = method.name, .native = &method, .self = object});
}

Value loop_attribute(Value object, std::string_view name) {
  const Loop& loop = *object.as_loop();
  const auto at = static_cast<std::int64_t>(loop.index0);
  const auto n = static_cast<std::int64_t>(loop.items.size());
  if (name == "index") return Value::integer(at + 1);
  if (name == "index0") return Value::integer(at);
  if (name == "revindex") return Value::integer(n - at);
  if (name == "revindex0") return Value::integer(n - at - 1);
  if (name == "first") return Value::boolean(at == 0);
  if (name == "last") return Value::boolean(at + 1 == n);
  if (name == "length") return Value::integer(n);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem" && at > 0) return loop.items[loop.index0 - 1];
  if (name == "nextitem" && at + 1 < n) return loop.items[loop.index0 + 1];
  return Value::undefined(name, Kind::loop);
}

/// The byte that character `index` of `text` starts at.
std::size_t byte_of(std::string_view text, std::int64_t index) {
  std::size_t at = 0;
  for (; index > 0; --index) at += char_size(text, at);
  return at;
}

/// The element of a list or character of a string; nothing when out of range.
std::optional<Value> element(Value object, std::int64_t index) {
  if (object.is(Kind::string)) {
    const std::string_view text = object.as_string();
    const auto n = static_cast<std::int64_t>(length(text));
    if (index < 0) index += n;
    if (index < 0 || index >= n) return std::nullopt;
    const std::size_t at = byte_of(text, index);
    return Value::string(text.substr(at, char_size(text, at)));
  }
  const List& list = *object.as_list();
  const auto n = static_cast<std::int64_t>(list.items.size());
  if (index < 0) index += n;
  if (!list.is_indexable() || index < 0 || index >= n) return std::nullopt;
  return list.items[static_cast<std::size_t>(index)];
}

/// What a slice selects: `count` elements from `first`, each `stride` after the one before.
struct Selection {
  std::int64_t first = 0, count = 0, stride = 1;
  std::size_t at(std::int64_t i) const { return static_cast<std::size_t>(first + i * stride); }
};

/// The selection of start:stop:step from n elements, by Python's rules.
Result<Selection> select(std::int64_t n, std::optional<Value> start, std::optional<Value> stop, std::optional<Value> step) {
  for (const auto& part : {start, stop, step}) {
    if (part && part->is(Kind::undefined)) return type_error(undefined_message(*part));
    if (part && !part->is(Kind::none) && !part->is_whole()) return type_error("slice indices must be integers or none");
  }
  const auto given = [](const std::optional<Value>& part) { return part && !part->is(Kind::none); };
  std::int64_t stride = given(step) ? step->as_int() : 1;
  if (stride == 0) return type_error("slice step cannot be zero");
  stride = std::clamp(stride, -n - 1, n + 1);  // longer steps select the same
  const std::int64_t low = stride > 0 ? 0 : -1;
  const std::int64_t high = stride > 0 ? n : n - 1;
  const auto place = [&](const std::optional<Value>& part, std::int64_t fallback) {
    if (!given(part)) return fallback;
    const std::int64_t at = part->as_int();
    return at < 0 ? std::max(low, at < -n ? low : at + n) : std::min(high, at);
  };
  const std::int64_t from = place(start, stride > 0 ? low : high);
  const std::int64_t to = place(stop, stride > 0 ? high : low);
  const std::int64_t distance = stride > 0 ? to - from : from - to;
  const std::int64_t pace = stride > 0 ? stride : -stride;
  return Selection{from, distance > 0 ? (distance + pace - 1) / pace : 0, stride};
}

Result<Value> slice_text(Arena& arena, std::string_view text, const Selection& selection) {
  if (selection.stride == 1) {
    text = text.substr(byte_of(text, selection.count > 0 ? selection.first : 0));
    return Value::string(text.substr(0, byte_of(text, selection.count)));
  }
  if (!arena.spend_characters(text.size()) || !arena.reserve(text.size(), sizeof(std::size_t))) return fail_exhausted(arena);
  const std::vector<std::size_t> starts = offsets(text);
  std::string result;
  for (std::int64_t i = 0; i < selection.count; ++i) {
    const std::size_t at = selection.at(i);
    result += text.substr(starts[at], starts[at + 1] - starts[at]);
  }
  return arena.text(std::move(result));
}

}  // namespace

Result<Value> attribute(Arena& arena, Value object, std::string_view name) {
  switch (object.kind()) {
    case Kind::undefined: return type_error(undefined_message(object));
    case Kind::loop: return loop_attribute(object, name);
    case Kind::name_space:
      if (const Value* member = object.as_dict()->find(name)) return *member;
      break;
    case Kind::function:
      if (name == "name") return Value::string(object.as_function()->name);
      break;
    default:
      if (const Native* method = find_method(object, name)) return bind_method(arena, object, *method);
      if (object.is(Kind::dict)) {
        if (const Value* value = object.as_dict()->find(name)) return *value;
      }
  }
  return Value::undefined(name, object.kind());
}

Result<Value> item(Arena& arena, Value object, Value key) {
  if (object.is(Kind::undefined)) return type_error(undefined_message(object));
  if (object.is(Kind::dict)) {
    arena.spend_key(key);
    if (is_hashable(key))
      if (const Value* value = object.as_dict()->find(key)) return *value;
  } else if ((object.is(Kind::list) || object.is(Kind::string)) && key.is_whole()) {
    if (object.is(Kind::string)) arena.spend_text(object.as_string().size());
    if (const auto found = element(object, key.as_int()))
      return Value::markup_like(object.is(Kind::string) ? object : *found, *found);
  }
  if (key.is(Kind::string)) return attribute(arena, object, key.as_string());
  return Value::undefined(to_text(arena, key).as_string(), object.kind());
}

Result<Value> slice(Arena& arena, Value object, std::optional<Value> start, std::optional<Value> stop,
                    std::optional<Value> step) {
  if (object.is(Kind::undefined)) return type_error(undefined_message(object));
  if (object.is(Kind::string)) {
    const std::string_view text = object.as_string();
    if (!arena.spend_text(text.size())) return fail_exhausted(arena);
    BATON_TRY(const Selection selection, select(static_cast<std::int64_t>(length(text)), start, stop, step));
    BATON_TRY(const Value result, slice_text(arena, text, selection));
    return Value::markup_like(object, result);
  }
  if (!object.is(Kind::list) || !object.as_list()->is_indexable()) return Value::undefined("slice", object.kind());
  const List& list = *object.as_list();
  BATON_TRY(const Selection selection, select(static_cast<std::int64_t>(list.items.size()), start, stop, step));
  if (!arena.reserve(static_cast<std::size_t>(selection.count), sizeof(Value))) return fail_exhausted(arena);
  std::vector<Value> items;
  for (std::int64_t i = 0; i < selection.count; ++i) items.push_back(list.items[selection.at(i)]);
  return arena.list(list.flavor, std::move(items));
}

Result<std::vector<Value>> elements(Arena& arena, Value value) {
  std::vector<Value> result;
  const std::size_t most = value.is(Kind::string) ? value.as_string().size()
                           : value.is(Kind::list) ? value.as_list()->items.size()
                           : value.is(Kind::dict) ? value.as_dict()->entries.size()
                                                  : 0;
  if (!arena.reserve(most, sizeof(Value)) || !arena.spend(most)) return fail_exhausted(arena);
  switch (value.kind()) {
    case Kind::undefined: return result;
    case Kind::string: {
      const std::string_view text = value.as_string();
      for (std::size_t i = 0; i < text.size(); i += char_size(text, i))
        result.push_back(Value::string(text.substr(i, char_size(text, i))));
      break;
    }
    case Kind::list:
      if (value.as_list()->is_generator())
        result = std::exchange(value.as_list()->items, {});
      else
        result = value.as_list()->items;
      break;
    case Kind::dict:
      for (const auto& [key, unused] : value.as_dict()->entries) result.push_back(key);
      break;
    default: return type_error("'" + std::string(type_name(value)) + "' object is not iterable");
  }
  return result;
}

std::optional<std::int64_t> length_of(Value value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return static_cast<std::int64_t>(length(value.as_string()));
    case Kind::dict: return static_cast<std::int64_t>(value.as_dict()->entries.size());
    case Kind::loop: return static_cast<std::int64_t>(value.as_loop()->items.size());
    case Kind::list:
      if (value.as_list()->is_generator()) return std::nullopt;
      return static_cast<std::int64_t>(value.as_list()->items.size());
    default: return std::nullopt;
  }
}

}  // namespace baton::jinja
