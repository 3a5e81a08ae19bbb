/// Methods of strings.
#include <algorithm>

#include "jinja/format.h"
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

template <bool from_right>
Result<Value> split_text(const NativeCall& call) {
  std::optional<std::string_view> separator;
  if (call[0] && !call[0]->is(Kind::none)) {
    BATON_TRY(separator, text_argument(call, 0));
    if (separator->empty()) return type_error("empty separator");
  }
  BATON_TRY(const std::int64_t most, integer_argument(call, 1, -1));
  BATON_TRY_VOID(separator ? count_search(call) : count_characters(call));
  Parts parts = counted_parts(call);
  if (from_right)
    split_from_right(self_of(call), separator, most, parts);
  else
    split(self_of(call), separator, most, parts);
  return list_of(call, parts);
}

Result<Value> split_into_lines(const NativeCall& call) {
  BATON_TRY_VOID(count_characters(call));
  Parts lines = counted_parts(call);
  split_lines(self_of(call), call[0] && truthy(*call[0]), lines);
  return list_of(call, lines);
}

template <bool from_right>
Result<Value> partition(const NativeCall& call) {
  BATON_TRY(const std::string_view separator, text_argument(call, 0));
  if (separator.empty()) return type_error("empty separator");
  const std::string_view text = self_of(call);
  if (!call.arena.spend_text(text.size() + separator.size())) return fail_exhausted(call.arena);
  const std::size_t at = from_right ? find_last(text, separator) : find_first(text, separator, 0);
  std::array<std::string_view, 3> parts = {text, "", ""};
  if (from_right) std::swap(parts[0], parts[2]);
  if (at != std::string_view::npos) parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  return call.arena.list(List::Flavor::tuple, {Value::string(parts[0]), Value::string(parts[1]), Value::string(parts[2])});
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

template <bool at_end>
Result<Value> remove_affix(const NativeCall& call) {
  BATON_TRY(const std::string_view affix, text_argument(call, 0));
  call.arena.spend_text(affix.size());
  std::string_view text = self_of(call);
  if (at_end && !affix.empty() && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return Value::string(text);
}

template <bool from_right, bool must_exist>
Result<Value> find_text(const NativeCall& call) {
  BATON_TRY(const std::string_view wanted, text_argument(call, 0));
  BATON_TRY(const Value part, part_of(call, 1));
  const std::string_view text = part.as_string();
  if (!call.arena.spend_text(self_of(call).size() + wanted.size())) return fail_exhausted(call.arena);
  const std::size_t at = from_right ? find_last(text, wanted) : find_first(text, wanted, 0);
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

enum class Align { left, right, center };
template <Align align>
Result<Value> pad(const NativeCall& call) {
  BATON_TRY(const std::int64_t width, integer_argument(call, 0, 0));
  const std::string_view fill = call[1] ? to_text(call.arena, *call[1]).as_string() : " ";
  if (fill.empty() || char_size(fill, 0) != fill.size())
    return type_error("the fill character must be exactly one character long");
  BATON_TRY_VOID(count_characters(call));
  const std::int64_t missing = width - static_cast<std::int64_t>(length(self_of(call)));
  if (missing <= 0) return call.self;
  if (!call.arena.reserve(self_of(call).size() + static_cast<std::size_t>(missing), fill.size()))
    return fail_exhausted(call.arena);
  const std::int64_t before = align == Align::left ? 0 : align == Align::right ? missing : missing / 2 + (missing & width & 1);
  std::string result;
  for (std::int64_t i = 0; i < before; ++i) result += fill;
  result += self_of(call);
  for (std::int64_t i = before; i < missing; ++i) result += fill;
  return made(call, std::move(result));
}

Result<Value> fill_zeros(const NativeCall& call) {
  BATON_TRY(const std::int64_t width, integer_argument(call, 0, 0));
  BATON_TRY_VOID(count_characters(call));
  const std::int64_t missing = width - static_cast<std::int64_t>(length(self_of(call)));
  if (missing <= 0) return call.self;
  if (!call.arena.reserve(self_of(call).size() + static_cast<std::size_t>(missing))) return fail_exhausted(call.arena);
  const std::size_t sign = self_of(call).starts_with('-') || self_of(call).starts_with('+') ? 1 : 0;
  return made(call, std::string(self_of(call).substr(0, sign)) + std::string(static_cast<std::size_t>(missing), '0') +
                        std::string(self_of(call).substr(sign)));
}

Result<Value> format(const NativeCall& call) { return format_braces(call.arena, self_of(call), call.all); }

/// Not empty, and every character is `wanted`.
template <bool (*wanted)(char32_t)>
Result<Value> all_are(const NativeCall& call) {
  const std::string_view text = self_of(call);
  BATON_TRY_VOID(count_characters(call));
  bool all = !text.empty();
  for (std::size_t i = 0; i < text.size() && all; i += char_size(text, i)) all = wanted(char_at(text, i));
  return Value::boolean(all);
}
bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_decimal(c); }

template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Result<Value> all_cased(const NativeCall& call) {
  const std::string_view text = self_of(call);
  BATON_TRY_VOID(count_characters(call));
  bool any = false;
  for (std::size_t i = 0; i < text.size(); i += char_size(text, i)) {
    if (unwanted(char_at(text, i))) return Value::boolean(false);
    any = any || wanted(char_at(text, i));
  }
  return Value::boolean(any);
}

constexpr Native kMethods[] = {
    {"strip", strip_ends<true, true>, {"chars"}},
    {"lstrip", strip_ends<true, false>, {"chars"}},
    {"rstrip", strip_ends<false, true>, {"chars"}},
    {"split", split_text<false>, {"sep", "maxsplit"}},
    {"rsplit", split_text<true>, {"sep", "maxsplit"}},
    {"splitlines", split_into_lines, {"keepends"}},
    {"partition", partition<false>, {"sep"}, 1},
    {"rpartition", partition<true>, {"sep"}, 1},
    {"startswith", has_affix<false>, {"prefix", "start", "end"}, 1},
    {"endswith", has_affix<true>, {"suffix", "start", "end"}, 1},
    {"removeprefix", remove_affix<false>, {"prefix"}, 1},
    {"removesuffix", remove_affix<true>, {"suffix"}, 1},
    {"find", find_text<false, false>, {"sub", "start", "end"}, 1},
    {"rfind", find_text<true, false>, {"sub", "start", "end"}, 1},
    {"index", find_text<false, true>, {"sub", "start", "end"}, 1},
    {"rindex", find_text<true, true>, {"sub", "start", "end"}, 1},
    {"count", count_text, {"sub", "start", "end"}, 1},
    {"replace", replace_text, {"old", "new", "count"}, 2},
    {"join", join, {"iterable"}, 1},
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"casefold", changed<lower>},
    {"title", changed<title>},
    {"capitalize", changed<capitalize>},
    {"swapcase", changed<swap_case>},
    {"ljust", pad<Align::left>, {"width", "fillchar"}, 1},
    {"rjust", pad<Align::right>, {"width", "fillchar"}, 1},
    {"center", pad<Align::center>, {"width", "fillchar"}, 1},
    {"zfill", fill_zeros, {"width"}, 1},
    {"format", format, {}, 0, true},
    {"isdigit", all_are<is_decimal>},
    {"isdecimal", all_are<is_decimal>},
    {"isnumeric", all_are<is_decimal>},
    {"isalpha", all_are<is_alphabetic>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isspace", all_are<is_space>},
    {"isupper", all_cased<is_upper, is_lower>},
    {"islower", all_cased<is_lower, is_upper>},
};

}  // namespace

std::span<const Native> string_methods() { return kMethods; }

}  // namespace baton::jinja
