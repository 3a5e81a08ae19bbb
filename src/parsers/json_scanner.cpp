/// An automaton with a stack for JSON.
#include "parsers/json_scanner.h"

#include <fmt/format.h>

#include "core/utf8.h"
#include "parsers/marker_scan.h"

namespace baton::parsers {

namespace {

using ascii::is_digit;
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }

/// Whether four hexadecimal digits begin with D and one of `second`, which says a half of a pair of surrogates.
bool is_half(std::string_view hex, std::string_view second) {
  return (hex[0] == 'd' || hex[0] == 'D') && second.find(hex[1]) != std::string_view::npos;
}
bool is_high_half(std::string_view hex) { return is_half(hex, "89abAB"); }
bool is_low_half(std::string_view hex) { return is_half(hex, "cdefCDEF"); }

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (is_control(c))
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
}

/// In place of the byte.
void JsonScanner::write_instead(std::string_view text) {
  written_ += text;
  writes_itself_ = false;
}

void JsonScanner::write_lone_surrogate() {
  if (high_.empty()) return;
  written_ += "\\ufffd";
  high_.clear();
}

JsonScanner::Step JsonScanner::end_value(Step at_end) {
  if (is_top()) return at_end;
  state_ = State::after;
  return Step::inside;
}

JsonScanner::Step JsonScanner::close(char c) {
  if (is_top() || open_.back() != (c == ']' ? '[' : '{')) return Step::fault;
  open_.pop_back();
  return end_value(Step::ends);
}

JsonScanner::Step JsonScanner::begin_word(char c) {
  if (c == 'T' || c == 'F') {
    write_instead(c == 'T' ? "t" : "f");
  } else if (c == 'N') {
    write_instead("null");
    is_none_ = true;
  }
  word_ = c == 't' || c == 'T' ? "rue" : c == 'f' || c == 'F' ? "alse" : c == 'n' ? "ull" : "one";
  state_ = State::word;
  return Step::inside;
}

JsonScanner::Step JsonScanner::begin_value(char c) {
  if (c == '{' || c == '[') {
    if (open_.size() == kMaxDepth) return Step::fault;
    open_ += c;
    state_ = c == '{' ? State::key_or_end : State::value_or_end;
    return Step::inside;
  }
  if (c == '"') {
    is_key_ = false;
    state_ = State::string;
  } else if (c == '-') {
    state_ = State::minus;
  } else if (c == '0') {
    state_ = State::zero;
  } else if (is_digit(c)) {
    state_ = State::integer;
  } else if (c == 't' || c == 'f' || c == 'n' || (is_mended() && (c == 'T' || c == 'F' || c == 'N'))) {
    return begin_word(c);
  } else {
    return Step::fault;
  }
  return Step::inside;
}

JsonScanner::Step JsonScanner::take_after(char c) {
  if (is_space(c)) return Step::inside;
  if (c == ',') {
    state_ = open_.back() == '{' ? State::key : State::value;
    if (!is_mended()) return Step::inside;
    has_comma_ = true;
    spaces_.clear();
    write_instead("");
    return Step::inside;
  }
  return c == '}' || c == ']' ? close(c) : Step::fault;
}

/// After a comma that is written when something follows that is no closing bracket.
JsonScanner::Step JsonScanner::take_comma_or_next(char c) {
  constexpr std::size_t kMaxSpaces = 256;
  if (is_space(c)) {
    if (spaces_.size() < kMaxSpaces) spaces_ += c;
    write_instead("");
    return Step::inside;
  }
  has_comma_ = false;
  const bool closes = c == '}' || c == ']';
  if (!closes) written_ += ',';
  written_ += spaces_;
  return closes ? close(c) : step_of(c);
}

JsonScanner::Step JsonScanner::take_number(char c) {
  const bool is_e = c == 'e' || c == 'E';
  bool may_end = false;
  State next = state_;
  switch (state_) {
    case State::minus: next = c == '0' ? State::zero : is_digit(c) ? State::integer : state_; break;
    case State::zero:
    case State::integer:
      may_end = true;
      if (c == '.') next = State::dot;
      if (is_e) next = State::exponent;
      if (state_ == State::integer && is_digit(c)) return Step::inside;
      break;
    case State::dot: next = is_digit(c) ? State::fraction : state_; break;
    case State::fraction:
      may_end = true;
      if (is_digit(c)) return Step::inside;
      if (is_e) next = State::exponent;
      break;
    case State::exponent:
      next = is_digit(c) ? State::exponent_digits : c == '+' || c == '-' ? State::exponent_sign : state_;
      break;
    case State::exponent_sign: next = is_digit(c) ? State::exponent_digits : state_; break;
    default:  // exponent_digits
      may_end = true;
      if (is_digit(c)) return Step::inside;
  }
  if (next != state_) {
    state_ = next;
    return Step::inside;
  }
  if (!may_end) return Step::fault;
  if (is_top()) return Step::ended_before;
  state_ = State::after;
  return take_after(c);
}

JsonScanner::Step JsonScanner::take_string(char c) {
  if (c == '\\') {
    state_ = State::escape;
    if (is_mended()) write_instead("");
    return Step::inside;
  }
  write_lone_surrogate();
  if (is_control(c)) {
    if (!is_mended()) return Step::fault;
    append_json_escaped(written_, std::string_view(&c, 1));
    write_instead("");
  }
  if (c != '"') return Step::inside;
  if (!is_key_) return end_value(Step::ends);
  state_ = State::colon;
  return Step::inside;
}

JsonScanner::Step JsonScanner::take_escape(char c) {
  const bool is_known = std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
  if (!is_known && !is_mended()) return Step::fault;
  if (c == 'u') {
    state_ = State::hex;
    hex_.clear();
    if (is_mended()) write_instead("");
    return Step::inside;
  }
  state_ = State::string;
  if (!is_mended()) return Step::inside;
  write_lone_surrogate();
  written_ += is_known ? "\\" : "\\\\";
  return is_known ? Step::inside : take_string(c);
}

JsonScanner::Step JsonScanner::take_hex(char c) {
  if (ascii::hex_digit(c) < 0) {
    if (!is_mended()) return Step::fault;
    write_lone_surrogate();
    written_ += "\\\\u" + hex_;
    state_ = State::string;
    return take_string(c);
  }
  hex_ += c;
  if (is_mended()) write_instead("");
  if (hex_.size() < 4) return Step::inside;
  state_ = State::string;
  if (!is_mended()) return Step::inside;
  if (is_low_half(hex_)) {
    written_ += high_.empty() ? "\\ufffd" : "\\u" + high_ + "\\u" + hex_;
    high_.clear();
    return Step::inside;
  }
  write_lone_surrogate();
  if (is_high_half(hex_))
    high_ = hex_;
  else
    written_ += "\\u" + hex_;
  return Step::inside;
}

JsonScanner::Step JsonScanner::step_of(char c) {
  if (has_comma_) return take_comma_or_next(c);
  switch (state_) {
    case State::value_or_end:
      if (c == ']') return close(c);
      [[fallthrough]];
    case State::value:
      if (is_space(c)) return Step::inside;
      return begin_value(c);
    case State::key_or_end:
      if (c == '}') return close(c);
      [[fallthrough]];
    case State::key:
      if (is_space(c)) return Step::inside;
      if (c != '"') return Step::fault;
      is_key_ = true;
      state_ = State::string;
      return Step::inside;
    case State::colon:
      if (c == ':') state_ = State::value;
      return c == ':' || is_space(c) ? Step::inside : Step::fault;
    case State::after: return take_after(c);
    case State::string: return take_string(c);
    case State::escape: return take_escape(c);
    case State::hex: return take_hex(c);
    case State::word:
      if (is_none_) write_instead("");
      if (c != word_.front()) return Step::fault;
      word_.remove_prefix(1);
      if (!word_.empty()) return Step::inside;
      is_none_ = false;
      return end_value(Step::ends);
    default: return take_number(c);
  }
}

JsonScanner::Step JsonScanner::take(char c) {
  const bool is_plain = state_ == State::string && high_.empty() && c != '"' && c != '\\' && !is_control(c);
  if (is_plain) {
    written_.assign(1, c);
    return Step::inside;
  }
  written_.clear();
  writes_itself_ = true;
  const Step step = step_of(c);
  if (writes_itself_) written_ += c;
  return step;
}

std::optional<std::string> mended_json(std::string_view text) {
  JsonScanner scanner(JsonScanner::Form::mended);
  std::string json;
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const JsonScanner::Step step = scanner.take(text[i]);
    const bool ends = step == JsonScanner::Step::ends || step == JsonScanner::Step::ended_before;
    if (step == JsonScanner::Step::fault) return std::nullopt;
    if (step != JsonScanner::Step::ended_before) json += scanner.written();
    if (!ends) continue;
    const std::string_view rest = text.substr(step == JsonScanner::Step::ends ? i + 1 : i);
    return rest.find_first_not_of(" \n\r\t") == std::string_view::npos ? std::optional(json) : std::nullopt;
  }
  const bool ends = !text.empty() && scanner.take(' ') == JsonScanner::Step::ended_before;
  return ends ? std::optional(json) : std::nullopt;
}

}  // namespace baton::parsers
