/// Filters of single values: text, numbers, JSON.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/native.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/strings.h"

namespace baton::jinja {
namespace {

/// The filtered value as text; Jinja's filters of text take any value.
std::string_view text_of(const NativeCall& call) { return to_text(call.arena, call.self).as_string(); }
Value made(const NativeCall& call, std::string text) {
  call.arena.spend_text(text.size());
  return call.arena.text(std::move(text));
}
/// What `change` makes of the text, character by character.
template <class Change>
Result<Value> rewritten(const NativeCall& call, Change change) {
  const std::string_view text = text_of(call);
  if (!call.arena.spend_characters(text.size()) || !call.arena.reserve(text.size())) return fail_exhausted(call.arena);
  return made(call, change(text));
}
bool flag(const NativeCall& call, std::size_t parameter, bool fallback) {
  return call[parameter] ? truthy(*call[parameter]) : fallback;
}

Result<Value> fallback_value(const NativeCall& call) {
  const bool missing = call.self.is(Kind::undefined) || (flag(call, 1, false) && !truthy(call.self));
  if (!missing) return call.self;
  return call[0].value_or(Value::string(""));
}

Result<Value> to_upper(const NativeCall& call) { return rewritten(call, upper); }
Result<Value> to_lower(const NativeCall& call) { return rewritten(call, lower); }
Result<Value> to_capitalized(const NativeCall& call) { return rewritten(call, capitalize); }
Result<Value> to_string(const NativeCall& call) { return to_text(call.arena, call.self); }

/// Words start after blanks, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  std::string result;
  bool first = true;
  for (std::size_t i = 0; i < text.size(); i += char_size(text, i)) {
    const std::string_view character = text.substr(i, char_size(text, i));
    const bool splits = std::string_view("-({[<").find(character) != std::string_view::npos || is_space_at(character, 0);
    result += splits ? std::string(character) : first ? upper(character) : lower(character);
    first = splits;
  }
  return result;
}
Result<Value> to_title(const NativeCall& call) { return rewritten(call, title_words); }

Result<Value> trim(const NativeCall& call) {
  const std::string_view text = text_of(call);
  std::string_view rest;
  if (!call[0] || call[0]->is(Kind::none)) {
    rest = strip(text, true, true);
  } else {
    const std::string_view set = to_text(call.arena, *call[0]).as_string();
    if (!call.arena.spend_characters(set.size()) || !call.arena.reserve(set.size(), sizeof(char32_t)))
      return fail_exhausted(call.arena);
    rest = strip(text, set, true, true);
  }
  call.arena.spend_characters(text.size() - rest.size());
  return Value::string(rest);
}

Result<Value> replace_text(const NativeCall& call) {
  const std::string_view text = text_of(call);
  const std::string_view old_part = to_text(call.arena, *call[0]).as_string();
  const std::string_view new_part = to_text(call.arena, *call[1]).as_string();
  const std::int64_t most = call[2] && call[2]->is_whole() ? call[2]->as_int() : -1;
  if (old_part.empty() ? !call.arena.spend_characters(text.size()) : !call.arena.spend_text(text.size() + old_part.size()))
    return fail_exhausted(call.arena);
  if (!call.arena.reserve(text.size() + count(text, old_part) * new_part.size())) return fail_exhausted(call.arena);
  return made(call, replace(text, old_part, new_part, most));
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text, true, true);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end != text.data() + text.size() || (error != std::errc() && error != std::errc::result_out_of_range))
    return std::nullopt;
  return value;
}

Result<Value> truncated(double value) {
  if (!(value > -9.2e18 && value < 9.2e18)) return type_error("a float is too large for an integer, or not a number");
  return Value::integer(static_cast<std::int64_t>(value));
}

Result<Value> to_integer(const NativeCall& call) {
  const Value fallback = call[0].value_or(Value::integer(0));
  if (call.self.is(Kind::undefined)) return type_error(undefined_message(call.self));
  if (call.self.is_whole()) return Value::integer(call.self.as_int());
  if (call.self.is(Kind::floating)) return truncated(call.self.as_double());
  if (!call.self.is(Kind::string)) return fallback;
  if (!call.arena.spend_text(call.self.as_string().size())) return fail_exhausted(call.arena);
  const int base = call[1] && call[1]->is_whole() && call[1]->as_int() >= 2 && call[1]->as_int() <= 36
                       ? static_cast<int>(call[1]->as_int())
                       : 10;
  std::string text(strip(call.self.as_string(), true, true));
  std::erase(text, '_');
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (base == 16 && (digits.starts_with("0x") || digits.starts_with("0X"))) digits.remove_prefix(2);
  if (base == 8 && (digits.starts_with("0o") || digits.starts_with("0O"))) digits.remove_prefix(2);
  if (base == 2 && (digits.starts_with("0b") || digits.starts_with("0B"))) digits.remove_prefix(2);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (!digits.empty() && end == digits.data() + digits.size() && digits.front() != '-') {
    if (error != std::errc()) return type_error("an integer does not fit 64 bits");
    return Value::integer(negative ? -value : value);
  }
  if (const auto number = parse_float(call.self.as_string())) return truncated(*number);
  return fallback;
}

Result<Value> to_float(const NativeCall& call) {
  const Value fallback = call[0].value_or(Value::floating(0));
  if (call.self.is(Kind::undefined)) return type_error(undefined_message(call.self));
  if (call.self.is_number()) return Value::floating(call.self.as_double());
  if (!call.self.is(Kind::string)) return fallback;
  if (!call.arena.spend_text(call.self.as_string().size())) return fail_exhausted(call.arena);
  const auto number = parse_float(call.self.as_string());
  return number ? Value::floating(*number) : fallback;
}

Result<Value> absolute(const NativeCall& call) {
  if (!call.self.is_number()) return type_error("bad operand type for abs(): '" + std::string(type_name(call.self)) + "'");
  if (call.self.is(Kind::floating)) return Value::floating(std::fabs(call.self.as_double()));
  return call.self.as_int() < 0 ? negate(call.self) : Value::integer(call.self.as_int());
}

Result<Value> to_markup(const NativeCall& call) { return Value::markup(to_text(call.arena, call.self)); }
Result<Value> escape(const NativeCall& call) { return escape_html(call.arena, to_text(call.arena, call.self)); }

Result<Value> indent_lines(const NativeCall& call) {
  std::string indent;
  if (call[0] && call[0]->is(Kind::string)) {
    indent = call[0]->as_string();
  } else {
    const std::int64_t width = call[0] && call[0]->is_whole() ? call[0]->as_int() : 4;
    if (width > 1000) return type_error("an indent is over 1000 characters");
    indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' ');
  }
  const bool blank = flag(call, 2, false);
  const std::string_view given = text_of(call);
  if (!call.arena.spend_characters(given.size()) || !call.arena.reserve(given.size())) return fail_exhausted(call.arena);
  const std::string text = std::string(given) + "\n";  // as Jinja does, so that a last empty line counts
  const std::size_t n_bytes = sizeof(std::string_view) + indent.size() + 1;
  std::size_t n_lines = 0;
  Parts split{.parts = {}, .may_add = [&] { return call.arena.reserve(++n_lines, n_bytes); }};
  split_lines(text, split);
  if (!call.arena.reserve(text.size() + n_lines * n_bytes)) return fail_exhausted(call.arena);
  const auto& lines = split.parts;
  std::string result;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += '\n';
    if (i == 0 ? flag(call, 1, false) : blank || !lines[i].empty()) result += indent;
    result += lines[i];
  }
  return made(call, std::move(result));
}

Result<Value> write_json(const NativeCall& call) {
  JsonStyle style;
  style.ensure_ascii = flag(call, 0, false);
  style.sort_keys = flag(call, 3, false);
  if (call[1] && !call[1]->is(Kind::none)) {
    style.multi_line = true;
    style.item_separator = ",";
    if (call[1]->is(Kind::string)) {
      style.indent = call[1]->as_string();
    } else {
      BATON_TRY(const std::int64_t width, integer_argument(call, 1, 0));
      if (width > 1000) return type_error("an indent is over 1000 characters");
      style.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' ');
    }
  }
  if (call[2] && !call[2]->is(Kind::none)) {
    BATON_TRY(const std::vector<Value> pair, elements(call.arena, *call[2]));
    if (pair.size() != 2 || !pair[0].is(Kind::string) || !pair[1].is(Kind::string))
      return type_error("separators must be two strings");
    style.item_separator = pair[0].as_string();
    style.key_separator = pair[1].as_string();
  }
  return to_json(call.arena, call.self, style);
}

/// Not in Jinja or Transformers: some published templates ask for it, and other engines have it.
Result<Value> read_json(const NativeCall& call) {
  if (!call.self.is(Kind::string)) return type_error("from_json needs a string, not " + std::string(type_name(call.self)));
  constexpr std::size_t kBytesInMemory = 32;  // that a byte of JSON may take as a value
  const std::string_view text = call.self.as_string();
  if (!call.arena.spend(text.size()) || !call.arena.reserve(text.size(), kBytesInMemory)) return fail_exhausted(call.arena);
  return call.arena.read_json()(call.arena, text);
}

constexpr Native kFilters[] = {
    {"default", fallback_value, {"default_value", "boolean"}},
    {"d", fallback_value, {"default_value", "boolean"}},
    {"upper", to_upper, {}, 0, false, true},
    {"lower", to_lower, {}, 0, false, true},
    {"title", to_title},
    {"capitalize", to_capitalized, {}, 0, false, true},
    {"trim", trim, {"chars"}, 0, false, true},
    {"replace", replace_text, {"old", "new", "count"}, 2},
    {"string", to_string},
    {"safe", to_markup},
    {"int", to_integer, {"default", "base"}},
    {"float", to_float, {"default"}},
    {"abs", absolute},
    {"escape", escape},
    {"e", escape},
    {"indent", indent_lines, {"width", "first", "blank"}, 0, false, true},
    {"tojson", write_json, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"from_json", read_json},
};

Result<Value> answer(bool value) { return Value::boolean(value); }

bool is_sequence(Value value) {
  return value.is(Kind::undefined) || value.is(Kind::string) || value.is(Kind::dict) ||
         (value.is(Kind::list) && value.as_list()->is_indexable());
}
bool is_iterable(Value value) {
  return value.is(Kind::undefined) || value.is(Kind::string) || value.is(Kind::dict) || value.is(Kind::list) ||
         value.is(Kind::loop);
}

/// value % divisor == remainder.
Result<Value> leaves(const NativeCall& call, Value divisor, std::int64_t remainder) {
  BATON_TRY(const Value rest, apply(call.arena, Operator::modulo, call.self, divisor));
  return answer(equal(call.arena, rest, Value::integer(remainder)));
}

/// At least one letter of the value's text has a case, and every one that has is `wanted`.
bool all_cased(const NativeCall& call, bool (*wanted)(char32_t), bool (*unwanted)(char32_t)) {
  const std::string_view text = to_text(call.arena, call.self).as_string();
  if (!call.arena.spend_characters(text.size())) return false;
  bool any = false;
  for (std::size_t i = 0; i < text.size(); i += char_size(text, i)) {
    if (unwanted(char_at(text, i))) return false;
    any = any || wanted(char_at(text, i));
  }
  return any;
}

template <Operator op>
Result<Value> compare(const NativeCall& call) {
  return apply(call.arena, op, call.self, *call[0]);
}

constexpr Native kTests[] = {
    {"defined", [](const NativeCall& call) { return answer(!call.self.is(Kind::undefined)); }},
    {"undefined", [](const NativeCall& call) { return answer(call.self.is(Kind::undefined)); }},
    {"none", [](const NativeCall& call) { return answer(call.self.is(Kind::none)); }},
    {"boolean", [](const NativeCall& call) { return answer(call.self.is(Kind::boolean)); }},
    {"true", [](const NativeCall& call) { return answer(call.self.is(Kind::boolean) && call.self.as_bool()); }},
    {"false", [](const NativeCall& call) { return answer(call.self.is(Kind::boolean) && !call.self.as_bool()); }},
    {"string", [](const NativeCall& call) { return answer(call.self.is(Kind::string)); }},
    {"number", [](const NativeCall& call) { return answer(call.self.is_number()); }},
    {"integer", [](const NativeCall& call) { return answer(call.self.is(Kind::integer)); }},
    {"float", [](const NativeCall& call) { return answer(call.self.is(Kind::floating)); }},
    {"mapping", [](const NativeCall& call) { return answer(call.self.is(Kind::dict)); }},
    {"iterable", [](const NativeCall& call) { return answer(is_iterable(call.self)); }},
    {"sequence", [](const NativeCall& call) { return answer(is_sequence(call.self)); }},
    {"callable",
     [](const NativeCall& call) {
       return answer(call.self.is(Kind::function) || call.self.is(Kind::loop) || call.self.is(Kind::undefined));
     }},
    {"odd", [](const NativeCall& call) { return leaves(call, Value::integer(2), 1); }},
    {"even", [](const NativeCall& call) { return leaves(call, Value::integer(2), 0); }},
    {"divisibleby", [](const NativeCall& call) { return leaves(call, *call[0], 0); }, {"num"}, 1},
    {"upper", [](const NativeCall& call) { return answer(all_cased(call, is_upper, is_lower)); }},
    {"lower", [](const NativeCall& call) { return answer(all_cased(call, is_lower, is_upper)); }},
    {"in", [](const NativeCall& call) { return apply(call.arena, Operator::in, call.self, *call[0]); }, {"seq"}, 1},
    {"eq", compare<Operator::equal>, {"b"}, 1},
    {"equalto", compare<Operator::equal>, {"b"}, 1},
    {"==", compare<Operator::equal>, {"b"}, 1},
    {"ne", compare<Operator::not_equal>, {"b"}, 1},
    {"!=", compare<Operator::not_equal>, {"b"}, 1},
    {"lt", compare<Operator::less>, {"b"}, 1},
    {"lessthan", compare<Operator::less>, {"b"}, 1},
    {"<", compare<Operator::less>, {"b"}, 1},
    {"le", compare<Operator::less_equal>, {"b"}, 1},
    {"<=", compare<Operator::less_equal>, {"b"}, 1},
    {"gt", compare<Operator::greater>, {"b"}, 1},
    {"greaterthan", compare<Operator::greater>, {"b"}, 1},
    {">", compare<Operator::greater>, {"b"}, 1},
    {"ge", compare<Operator::greater_equal>, {"b"}, 1},
    {">=", compare<Operator::greater_equal>, {"b"}, 1},
};

}  // namespace

const Native* find_test(std::string_view name) { return find_row(kTests, name); }

std::span<const Native> text_filters() { return kFilters; }

}  // namespace baton::jinja
