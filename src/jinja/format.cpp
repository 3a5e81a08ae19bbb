/// "%s" % x and "{}".format(x).
#include "jinja/format.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/strings.h"

namespace baton::jinja {
namespace {

constexpr int kMaxWidth = 4096;  // of one field, in characters

struct Spec {
  std::string fill = " ";
  char align = '\0';  ///< < > ^ or none
  bool plus = false, blank = false, comma = false;
  int width = 0;
  int precision = -1;
  char type = '\0';
};

/// Digits at `at`, which moves behind them; nothing over kMaxWidth.
Result<int> take_number(std::string_view text, std::size_t& at) {
  int value = 0;
  while (at < text.size() && is_decimal(static_cast<unsigned char>(text[at]))) {
    value = value * 10 + (text[at++] - '0');
    if (value > kMaxWidth) return type_error("a format width or precision is over " + std::to_string(kMaxWidth));
  }
  return value;
}

std::string with_commas(const std::string& number) {
  const std::size_t sign = number.starts_with('-') || number.starts_with('+') ? 1 : 0;
  std::size_t end = std::min(number.find_first_of(".e"), number.size());
  std::string result = number;
  while (end > sign + 3) {
    end -= 3;
    result.insert(end, ",");
  }
  return result;
}

std::string pad(const std::string& text, const Spec& spec, bool is_number) {
  if (text.size() >= 4 * static_cast<std::size_t>(spec.width)) return text;  // a character has at most four bytes
  const auto size = static_cast<int>(length(text));
  if (size >= spec.width) return text;
  const int missing = spec.width - size;
  const char align = spec.align != '\0' ? spec.align : is_number ? '>' : '<';
  const int left = align == '<' || align == '=' ? 0 : align == '>' ? missing : missing / 2;
  std::string result;
  const auto fill = [&](int n) {
    for (int i = 0; i < n; ++i) result += spec.fill;
  };
  if (align == '=') {  // between the sign and the digits
    const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
    result = text.substr(0, sign);
    fill(missing);
    return result + text.substr(sign);
  }
  fill(left);
  result += text;
  fill(missing - left);
  return result;
}

/// Keeps the first `precision` characters; all of them where it is negative.
void cut(std::string& text, int precision) {
  std::size_t at = 0;
  for (int i = 0; i < precision && at < text.size(); ++i) at += char_size(text, at);
  if (precision >= 0) text.resize(at);
}

Result<std::string> number_text(Value value, const Spec& spec) {
  const char type = spec.type;
  std::array<char, kMaxWidth + 400> buffer;
  std::string text;
  if (type == 'x' || type == 'X' || type == 'o') {
    if (!value.is_whole())
      return type_error(std::string("format '") + type + "' needs an integer, not " + std::string(type_name(value)));
    const std::int64_t number = value.as_int();
    const auto magnitude = number < 0 ? ~static_cast<unsigned long>(number) + 1 : static_cast<unsigned long>(number);
    std::snprintf(buffer.data(), buffer.size(), type == 'x' ? "%lx" : type == 'X' ? "%lX" : "%lo", magnitude);
    text = (number < 0 ? "-" : "") + std::string(buffer.data());
  } else if (std::string_view("feEgG%").find(type) != std::string_view::npos && type != '\0') {
    const int precision = spec.precision < 0 ? 6 : spec.precision;
    const char* format = type == 'e' ? "%.*e" : type == 'E' ? "%.*E" : type == 'g' ? "%.*g" : type == 'G' ? "%.*G" : "%.*f";
    std::snprintf(buffer.data(), buffer.size(), format, precision, type == '%' ? 100 * value.as_double() : value.as_double());
    text = buffer.data();
    if (type == '%') text += '%';
  } else if (value.is(Kind::floating)) {
    if (type == 'd') return type_error("format 'd' needs an integer, not float");
    if (spec.precision >= 0) {
      std::snprintf(buffer.data(), buffer.size(), "%.*g", spec.precision, value.as_double());
      text = buffer.data();
    } else {
      text = float_text(value.as_double());
    }
  } else {
    text = std::to_string(value.as_int());
  }
  if (spec.comma) text = with_commas(text);
  if (!text.starts_with('-') && (spec.plus || spec.blank)) text.insert(0, spec.plus ? "+" : " ");
  return text;
}

class PercentFormat {
 public:
  PercentFormat(Arena& arena, std::string_view format, const std::vector<Value>& operands)
      : arena_(arena), format_(format), operands_(operands) {}

  Result<Value> run() {
    std::string result;
    if (!arena_.spend_characters(format_.size()) || !arena_.reserve(format_.size())) return fail_exhausted(arena_);
    for (std::size_t at = 0; at < format_.size();) {
      if (format_[at] != '%') {
        result += format_[at++];
        continue;
      }
      ++at;
      BATON_TRY(const std::string piece, field(at));
      if (!arena_.spend_characters(piece.size()) || !arena_.reserve(result.size() + piece.size()))
        return fail_exhausted(arena_);
      result += piece;
    }
    const bool one_dict = operands_.size() == 1 && operands_[0].is(Kind::dict);
    if (next_ < operands_.size() && !one_dict) return type_error("not all arguments converted during string formatting");
    return arena_.text(std::move(result));
  }

 private:
  Result<std::string> field(std::size_t& at) {
    std::optional<Value> operand;
    if (at < format_.size() && format_[at] == '(') {
      const std::size_t end = format_.find(')', at);
      if (end == std::string_view::npos) return type_error("incomplete format key");
      if (operands_.size() != 1 || !operands_[0].is(Kind::dict)) return type_error("format requires a mapping");
      const std::string_view key = format_.substr(at + 1, end - at - 1);
      const Value* found = operands_[0].as_dict()->find(key);
      if (found == nullptr) return type_error("the format names the key '" + std::string(key) + "', which is not there");
      operand = *found;
      at = end + 1;
    }
    Spec spec;
    spec.align = '>';
    for (; at < format_.size() && std::string_view("-+ 0#").find(format_[at]) != std::string_view::npos; ++at) {
      if (format_[at] == '-') spec.align = '<';
      if (format_[at] == '+') spec.plus = true;
      if (format_[at] == ' ') spec.blank = true;
      if (format_[at] == '0' && spec.align != '<') {
        spec.fill = "0";
        spec.align = '=';
      }
    }
    BATON_TRY(spec.width, take_number(format_, at));
    if (at < format_.size() && format_[at] == '.') {
      BATON_TRY(spec.precision, take_number(format_, ++at));
    }
    if (at >= format_.size()) return type_error("incomplete format");
    spec.type = format_[at++];
    if (spec.type == '%') return std::string("%");
    if (!operand) {
      if (next_ >= operands_.size()) return type_error("not enough arguments for format string");
      operand = operands_[next_++];
    }
    return convert(*operand, spec);
  }

  Result<std::string> convert(Value value, Spec& spec) {
    if (spec.type == 's' || spec.type == 'r') {
      std::string text = spec.type == 's' ? std::string(to_text(arena_, value).as_string()) : represent(arena_, value);
      cut(text, spec.precision);
      spec.fill = " ";
      return pad(text, spec, spec.align != '<');
    }
    if (std::string_view("dixXofeEgG").find(spec.type) == std::string_view::npos)
      return type_error(std::string("unsupported format character '") + spec.type + "'");
    if (!value.is_number())
      return type_error(std::string("%") + spec.type + " format: a number is required, not " + std::string(type_name(value)));
    if (spec.type == 'd' || spec.type == 'i') {
      if (value.is(Kind::floating)) {
        const double number = value.as_double();
        if (!(number > -9e18 && number < 9e18)) return type_error("an integer result does not fit 64 bits");
        value = Value::integer(static_cast<std::int64_t>(number));
      }
      spec.type = 'd';
    }
    BATON_TRY(const std::string text, number_text(value, spec));
    return pad(text, spec, true);
  }

  Arena& arena_;
  std::string_view format_;
  const std::vector<Value>& operands_;
  std::size_t next_ = 0;
};

Result<Spec> parse_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t i) {
    return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
  };
  if (!text.empty() && is_align(char_size(text, 0))) {
    at = char_size(text, 0);
    spec.fill = text.substr(0, at);
    spec.align = text[at++];
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  if (at < text.size() && (text[at] == '+' || text[at] == ' ' || text[at] == '-')) {
    spec.plus = text[at] == '+';
    spec.blank = text[at] == ' ';
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    ++at;
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  BATON_TRY(spec.width, take_number(text, at));
  if (at < text.size() && text[at] == ',') {
    spec.comma = true;
    ++at;
  }
  if (at < text.size() && text[at] == '.') {
    BATON_TRY(spec.precision, take_number(text, ++at));
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size() || (spec.type != '\0' && std::string_view("sdxXofeEgG%").find(spec.type) == std::string_view::npos))
    return type_error("the format '" + std::string(text) + "' is not supported");
  return spec;
}

Result<std::string> format_value(Arena& arena, Value value, std::string_view spec_text) {
  BATON_TRY(const Spec spec, parse_spec(spec_text));
  const bool as_number = value.is(Kind::boolean) ? spec.type != '\0' && spec.type != 's' : value.is_number();
  if (as_number) {
    if (spec.type == 's') return type_error("format 's' needs a string, not " + std::string(type_name(value)));
    BATON_TRY(const std::string text, number_text(value, spec));
    return pad(text, spec, true);
  }
  if (spec.type != '\0' && spec.type != 's')
    return type_error(std::string("format '") + spec.type + "' needs a number, not " + std::string(type_name(value)));
  std::string text(to_text(arena, value).as_string());
  cut(text, spec.precision);
  return pad(text, spec, false);
}

/// The argument that a field names: its head, then .attribute and [key] parts.
Result<Value> field_value(Arena& arena, std::string_view path, const Arguments& arguments, std::size_t& automatic) {
  const std::size_t head_end = std::min(path.find_first_of(".["), path.size());
  const std::string_view head = path.substr(0, head_end);
  std::optional<Value> value;
  if (head.empty() || std::all_of(head.begin(), head.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    std::size_t at = 0, index = automatic;
    if (head.empty()) {
      ++automatic;
    } else {
      BATON_TRY(const int number, take_number(head, at));
      index = static_cast<std::size_t>(number);
    }
    if (index >= arguments.positional.size())
      return type_error("the format uses argument " + std::to_string(index) + " of " +
                        std::to_string(arguments.positional.size()));
    value = arguments.positional[index];
  } else {
    for (const auto& [name, named] : arguments.named)
      if (name == head) value = named;
    if (!value) return type_error("the format names the argument '" + std::string(head) + "', which is not given");
  }
  for (std::string_view rest = path.substr(head_end); !rest.empty();) {
    const bool is_item = rest.front() == '[';
    const std::size_t end = is_item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
    if (end == std::string_view::npos || end == 1) return type_error("a field of the format is incomplete");
    const std::string_view key = rest.substr(1, end - 1);
    std::size_t at = 0;
    const bool is_index = is_item && std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_index) {
      BATON_TRY(const int number, take_number(key, at));
      BATON_TRY(value, item(arena, *value, Value::integer(number)));
    } else {
      BATON_TRY(value, is_item ? item(arena, *value, Value::string(key)) : attribute(arena, *value, key));
    }
    rest = rest.substr(std::min(rest.size(), end + (is_item ? 1 : 0)));
    if (!rest.empty() && rest.front() != '.' && rest.front() != '[') return type_error("a field of the format is incomplete");
  }
  return *value;
}

}  // namespace

Result<Value> format_percent(Arena& arena, std::string_view format, const std::vector<Value>& operands) {
  return PercentFormat(arena, format, operands).run();
}

Result<Value> format_braces(Arena& arena, std::string_view format, const Arguments& arguments) {
  std::string result;
  std::size_t automatic = 0;
  if (!arena.spend_characters(format.size()) || !arena.reserve(format.size())) return fail_exhausted(arena);
  for (std::size_t at = 0; at < format.size(); ++at) {
    const char c = format[at];
    if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
      result += c;
      ++at;
      continue;
    }
    if (c == '}') return type_error("single '}' encountered in format string");
    if (c != '{') {
      result += c;
      continue;
    }
    const std::size_t end = format.find('}', at);
    if (end == std::string_view::npos) return type_error("expected '}' before end of string");
    std::string_view field = format.substr(at + 1, end - at - 1);
    const std::size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = field.substr(std::min(field.size(), colon + 1));
    field = field.substr(0, colon);
    const bool is_repr = field.ends_with("!r");
    if (is_repr || field.ends_with("!s")) field.remove_suffix(2);
    if (!arena.spend(1 + arguments.named.size())) return fail_exhausted(arena);
    BATON_TRY(Value value, field_value(arena, field, arguments, automatic));
    if (is_repr) value = arena.text(represent(arena, value));
    BATON_TRY(const std::string piece, format_value(arena, value, spec));
    if (!arena.spend_characters(piece.size()) || !arena.reserve(result.size() + piece.size())) return fail_exhausted(arena);
    result += piece;
    at = end;
  }
  return arena.text(std::move(result));
}

}  // namespace baton::jinja
