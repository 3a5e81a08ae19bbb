/// The lexer: text between tags, then names, numbers, strings and operators inside them.
#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/utf8.h"
#include "jinja/strings.h"

namespace baton::jinja {
namespace {

using ascii::hex_digit;
using ascii::is_digit;

bool is_name_start(char c) { return ascii::is_letter(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80; }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// \r\n and \r become \n; one newline at the end goes.
std::string normalize_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, LexOptions options) : source_(normalize_newlines(source)), options_(options) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) BATON_TRY_VOID(root());
    emit(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  void emit(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  tl::unexpected<Error> error(const std::string& message) const { return error(line_, message); }
  static tl::unexpected<Error> error(int line, const std::string& message) {
    return fail(ErrorCode::invalid_data, "chat template line " + std::to_string(line) + ": " + message);
  }

  void skip_space() {
    std::size_t to = at_;
    while (to < source_.size() && is_space_at(source_, to)) to += char_size(source_, to);
    advance(to);
  }

  /// Text up to the next tag, and that tag.
  Result<void> root() {
    std::size_t tag = at_;
    while ((tag = source_.find('{', tag)) != std::string::npos && tag + 1 < source_.size() && source_[tag + 1] != '{' &&
           source_[tag + 1] != '%' && source_[tag + 1] != '#')
      ++tag;
    if (tag == std::string::npos || tag + 1 >= source_.size()) {
      emit(TokenKind::data, source_.substr(at_));
      advance(source_.size());
      return {};
    }
    const char type = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    data(tag, sign, type != '{');
    const int line = line_;
    const std::size_t inside = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
    if (type == '#') return comment(inside, line);
    if (type == '%') {
      if (const auto end = raw_begin(inside)) return raw(*end, line);
    }
    emit(type == '%' ? TokenKind::block_begin : TokenKind::variable_begin, "");
    advance(inside);
    return expression(type, line);
  }

  /// Emits the text before a tag, stripped as the tag asks.
  void data(std::size_t tag, char sign, bool is_block) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') {
      text = strip(text, false, true);
    } else if (sign != '+' && options_.lstrip_blocks && is_block) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      const bool line_starting = at_ == 0 || source_[at_ - 1] == '\n';
      if ((line_start > 0 || line_starting) && strip(text.substr(line_start), true, false).empty())
        text = text.substr(0, line_start);
    }
    if (!text.empty()) emit(TokenKind::data, std::string(text));
    advance(tag);
  }

  /// After %} or #}: what whitespace the end takes with it.
  void end_of_tag(std::size_t to, char sign, bool trims) {
    advance(to);
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && trims && options_.trim_blocks && at_ < source_.size() && source_[at_] == '\n') {
      advance(at_ + 1);
    }
  }

  Result<void> comment(std::size_t inside, int line) {
    const std::size_t end = source_.find("#}", inside);
    if (end == std::string::npos) return error(line, "missing end of comment tag '#}'");
    const char sign = end > inside ? source_[end - 1] : '\0';
    end_of_tag(end + 2, sign, true);
    return {};
  }

  /// Whether `word` and the end of a block tag follow `from`: the place of its '%}' (or of the sign before).
  std::optional<std::size_t> tag_of(std::string_view word, std::size_t from) const {
    while (from < source_.size() && is_blank(source_[from])) ++from;
    if (std::string_view(source_).substr(from, word.size()) != word) return std::nullopt;
    from += word.size();
    while (from < source_.size() && is_blank(source_[from])) ++from;
    const std::string_view end = std::string_view(source_).substr(from, 3);
    if (end.starts_with("%}") || end == "-%}" || end == "+%}") return from;
    return std::nullopt;
  }
  std::optional<std::size_t> raw_begin(std::size_t inside) const { return tag_of("raw", inside); }

  Result<void> raw(std::size_t end, int line) {
    const bool strips = source_[end] == '-';
    end_of_tag(end + (source_[end] == '%' ? 2 : 3), strips ? '-' : '+', false);
    for (std::size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const auto closing = tag_of("endraw", tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (!closing) continue;
      data(tag, sign, true);
      end_of_tag(*closing + (source_[*closing] == '%' ? 2 : 3), source_[*closing], true);
      return {};
    }
    return error(line, "missing end of raw block '{% endraw %}'");
  }

  /// The inside of {% %} or {{ }}, through its end.
  Result<void> expression(char type, int opened_on) {
    const std::string_view end = type == '%' ? "%}" : "}}";
    std::vector<char> open;
    while (true) {
      skip_space();
      if (at_ >= source_.size())
        return error(opened_on, std::string("this tag is never closed with '") + std::string(end) + "'");
      if (open.empty()) {
        const bool has_sign = source_[at_] == '-' || (type == '%' && source_[at_] == '+');
        if (rest().substr(has_sign ? 1 : 0).starts_with(end)) {
          const char sign = has_sign ? source_[at_] : '\0';
          emit(type == '%' ? TokenKind::block_end : TokenKind::variable_end, "");
          end_of_tag(at_ + end.size() + (has_sign ? 1 : 0), sign, type == '%');
          return {};
        }
      }
      BATON_TRY_VOID(token(open));
    }
  }

  Result<void> token(std::vector<char>& open) {
    const char c = source_[at_];
    if (is_digit(c)) return number();
    if (is_name_start(c)) {
      std::size_t to = at_;
      while (to < source_.size() && (is_name_start(source_[to]) || is_digit(source_[to]))) ++to;
      emit(TokenKind::name, source_.substr(at_, to - at_));
      at_ = to;
      return {};
    }
    if (c == '\'' || c == '"') return string(c);
    static constexpr std::array<std::string_view, 6> two = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view op : two) {
      if (!rest().starts_with(op)) continue;
      emit(TokenKind::op, std::string(op));
      at_ += 2;
      return {};
    }
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos)
      return error(std::string("unexpected character '") + c + "'");
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) return error(std::string("unexpected '") + c + "'");
      if (open.back() != c) return error(std::string("unexpected '") + c + "', expected '" + open.back() + "'");
      open.pop_back();
    }
    emit(TokenKind::op, std::string(1, c));
    ++at_;
    return {};
  }

  Result<void> number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    std::string digits;
    std::size_t to = at_;
    if (source_[at_] == '0' && at_ + 2 < source_.size() &&
        std::string_view("xXoObB").find(source_[at_ + 1]) != std::string_view::npos)
      return based_number();
    const auto take_digits = [&] {
      while (to < source_.size() &&
             (is_digit(source_[to]) || (source_[to] == '_' && to + 1 < source_.size() && is_digit(source_[to + 1])))) {
        if (source_[to] != '_') digits += source_[to];
        ++to;
      }
    };
    take_digits();
    bool floating = false;
    if (!after_dot && to + 1 < source_.size() && source_[to] == '.' && is_digit(source_[to + 1])) {
      floating = true;
      digits += source_[to++];
      take_digits();
    }
    if (!after_dot && to + 1 < source_.size() && (source_[to] == 'e' || source_[to] == 'E')) {
      const std::size_t sign = source_[to + 1] == '+' || source_[to + 1] == '-' ? 1 : 0;
      if (to + 1 + sign < source_.size() && is_digit(source_[to + 1 + sign])) {
        floating = true;
        digits += source_.substr(to, 1 + sign);
        to += 1 + sign;
        take_digits();
      }
    }
    emit(floating ? TokenKind::floating : TokenKind::integer, std::move(digits));
    at_ = to;
    return {};
  }

  /// 0x, 0o, 0b: emitted in decimal.
  Result<void> based_number() {
    const char letter = static_cast<char>(source_[at_ + 1] | 0x20);
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
    std::size_t to = at_ + 2;
    std::int64_t value = 0;
    bool any = false;
    for (; to < source_.size(); ++to) {
      if (source_[to] == '_') continue;
      const int digit = hex_digit(source_[to]);
      if (digit < 0 || digit >= base) break;
      any = true;
      if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value))
        return error("an integer does not fit 64 bits");
    }
    if (!any) return error("a number without digits");
    emit(TokenKind::integer, std::to_string(value));
    at_ = to;
    return {};
  }

  Result<void> string(char quote) {
    const int line = line_;
    std::string text;
    std::size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] != '\\') {
        text += source_[i++];
      } else {
        if (i + 1 >= source_.size()) break;
        BATON_TRY(i, escape(i + 1, text));
      }
    }
    if (i >= source_.size()) return error(line, "a string is never closed");
    emit(TokenKind::string, std::move(text));
    advance(i + 1);
    return {};
  }

  /// Appends what the escape whose letter stands at `i` means, as Python does; returns the place after it.
  Result<std::size_t> escape(std::size_t i, std::string& text) {
    const char c = source_[i];
    static constexpr std::string_view letters = "ntrabfv\\'\"";
    static constexpr std::string_view meanings = "\n\t\r\a\b\f\v\\'\"";
    if (const auto at = letters.find(c); at != std::string_view::npos) {
      text += meanings[at];
      return i + 1;
    }
    if (c == '\n') return i + 1;
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      std::size_t n = 0;
      for (; n < 3 && i + n < source_.size() && source_[i + n] >= '0' && source_[i + n] <= '7'; ++n)
        value = value * 8 + static_cast<char32_t>(source_[i + n] - '0');
      append_utf8(text, value);
      return i + n;
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      if (c == 'N') return error("the string escape \\N{...} is not supported");
      text += '\\';
      return i;
    }
    char32_t value = 0;
    for (std::size_t n = 1; n <= digits; ++n) {
      const int digit = i + n < source_.size() ? hex_digit(source_[i + n]) : -1;
      if (digit < 0) return error(std::string("truncated string escape \\") + c);
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return error("a string escape names no character");
    append_utf8(text, value);
    return i + digits + 1;
  }

  std::string source_;
  LexOptions options_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source, LexOptions options) { return Lexer(source, options).run(); }

}  // namespace baton::jinja
