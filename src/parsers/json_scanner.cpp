/// An automaton with a stack for JSON.
#include "parsers/json_scanner.h"

#include <fmt/format.h>

#include "parsers/marker_scan.h"

namespace baton::parsers {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

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
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
}

std::string_view JsonScanner::escaped(char c) {
  escaped_.clear();
  if (was_in_string_ && static_cast<unsigned char>(c) < 0x20)
    append_json_escaped(escaped_, std::string_view(&c, 1));
  else
    escaped_ = c;
  return escaped_;
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
  } else if (c == 't' || c == 'f' || c == 'n') {
    word_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
    state_ = State::word;
  } else {
    return Step::fault;
  }
  return Step::inside;
}

JsonScanner::Step JsonScanner::take_after(char c) {
  if (is_space(c)) return Step::inside;
  if (c == ',') {
    state_ = open_.back() == '{' ? State::key : State::value;
    return Step::inside;
  }
  return c == '}' || c == ']' ? close(c) : Step::fault;
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

JsonScanner::Step JsonScanner::take(char c) {
  was_in_string_ = state_ == State::string;
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
    case State::string:
      if (c == '\\') state_ = State::escape;
      if (c != '"') return Step::inside;
      if (!is_key_) return end_value(Step::ends);
      state_ = State::colon;
      return Step::inside;
    case State::escape:
      if (std::string_view("\"\\/bfnrtu").find(c) == std::string_view::npos) return Step::fault;
      state_ = c == 'u' ? State::hex : State::string;
      n_hex_ = 4;
      return Step::inside;
    case State::hex:
      if (!is_hex_digit(c)) return Step::fault;
      if (--n_hex_ == 0) state_ = State::string;
      return Step::inside;
    case State::word:
      if (c != word_.front()) return Step::fault;
      word_.remove_prefix(1);
      return word_.empty() ? end_value(Step::ends) : Step::inside;
    default: return take_number(c);
  }
}

}  // namespace baton::parsers
