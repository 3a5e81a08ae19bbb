/// Methods of strings.
#include <algorithm>

#include "jinja/native.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/strings.h"

namespace baton::jinja {
namespace {

using Values = std::vector<Value>;

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

}  // namespace baton::jinja
