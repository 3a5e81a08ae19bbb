/// Names and keyword arguments; their literals become JSON.
#include "parsers/python_calls.h"

#include <fmt/format.h>

#include "parsers/json_scanner.h"
#include "parsers/marker_scan.h"

namespace baton::parsers {

namespace {

bool is_word_byte(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// A number of Python as one of JSON: without a sign in front, underscores, and with digits around the point.
std::string json_number(const std::string& word) {
  std::string number;
  for (const char c : word) {
    if (c == '_' || (c == '+' && number.empty())) continue;
    if (c == '.' && (number.empty() || number == "-")) number += '0';
    if ((c == 'e' || c == 'E') && number.ends_with('.')) number += '0';
    number += c;
  }
  if (number.ends_with('.')) number += '0';
  return number;
}

void append_code_point(std::string& json, unsigned code) {
  if (code < 0x80) {
    const char c = static_cast<char>(code);
    append_json_escaped(json, std::string_view(&c, 1));
  } else if (code < 0x10000) {
    json += fmt::format("\\u{:04x}", code);
  } else {
    json += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
  }
}

}  // namespace

PythonLiteral::Step PythonLiteral::begin_value(char c, std::string& json) {
  if (c == '[' || c == '(' || c == '{') {
    if (open_.size() == kMaxDepth) return Step::fault;
    open_ += c;
    json += c == '{' ? '{' : '[';
    state_ = c == '{' ? State::key : State::value;
    may_close_ = true;
    return Step::inside;
  }
  if (c == '"' || c == '\'') {
    quote_ = c;
    json += '"';
    is_key_ = is_triple_ = false;
    is_empty_ = true;
    state_ = State::string;
    return Step::inside;
  }
  if (!is_word_byte(c) && c != '-' && c != '+' && c != '.') return Step::fault;
  word_ = c;
  state_ = State::word;
  return Step::inside;
}

PythonLiteral::Step PythonLiteral::take_after(char c, std::string& json) {
  if (open_.empty()) return Step::ended_before;
  if (is_space(c)) return Step::inside;
  if (c == ',') {
    state_ = open_.back() == '{' ? State::key : State::value;
    may_close_ = false;
    is_empty_ = false;
    return Step::inside;
  }
  const char open = c == ']' ? '[' : c == ')' ? '(' : c == '}' ? '{' : '\0';
  if (open_.back() != open) return Step::fault;
  json += c == '}' ? '}' : ']';
  open_.pop_back();
  state_ = State::after;
  return Step::inside;
}

bool PythonLiteral::write_word(std::string& json) {
  if (word_ == "True" || word_ == "true") {
    json += "true";
  } else if (word_ == "False" || word_ == "false") {
    json += "false";
  } else if (word_ == "None" || word_ == "null") {
    json += "null";
  } else {
    const std::string number = json_number(word_);
    JsonScanner scanner;
    for (const char c : number)
      if (scanner.take(c) != JsonScanner::Step::inside) return false;
    if (scanner.take(' ') != JsonScanner::Step::ended_before) return false;
    json += number;
  }
  word_.clear();
  return true;
}

PythonLiteral::Step PythonLiteral::end_string(std::string& json) {
  if (high_ != 0) append_code_point(json, 0xFFFD);
  high_ = 0;
  json += '"';
  state_ = is_key_ ? State::colon : State::after;
  return Step::inside;
}

PythonLiteral::Step PythonLiteral::take_string(char c, std::string& json) {
  if (c == quote_) {
    if (is_triple_) {
      if (++n_quotes_ == 3) return end_string(json);
      return Step::inside;
    }
    if (is_empty_) {
      state_ = State::maybe_triple;
      return Step::inside;
    }
    return end_string(json);
  }
  is_empty_ = false;
  for (; n_quotes_ > 0; --n_quotes_) append_json_escaped(json, std::string_view(&quote_, 1));
  if (c == '\\') {
    state_ = State::escape;
    return Step::inside;
  }
  if (high_ != 0) append_code_point(json, 0xFFFD);
  high_ = 0;
  append_json_escaped(json, std::string_view(&c, 1));
  return Step::inside;
}

PythonLiteral::Step PythonLiteral::end_code(std::string& json) {
  state_ = State::string;
  const bool is_low = code_ >= 0xDC00 && code_ < 0xE000;
  if (high_ != 0) {
    append_code_point(json, is_low ? 0x10000 + ((high_ - 0xD800) << 10) + (code_ - 0xDC00) : 0xFFFD);
    high_ = 0;
    if (is_low) return Step::inside;
  }
  if (code_ >= 0xD800 && code_ < 0xDC00)
    high_ = code_;
  else
    append_code_point(json, is_low || code_ > 0x10FFFF ? 0xFFFD : code_);
  return Step::inside;
}

PythonLiteral::Step PythonLiteral::take_escape(char c, std::string& json) {
  constexpr std::string_view kNames = "nrtabfv\\'\"";
  constexpr std::string_view kCharacters = "\n\r\t\a\b\f\v\\'\"";
  if (state_ == State::code) {
    const int digit = hex_digit(c);
    if (digit < 0) return Step::fault;
    code_ = code_ * 16 + static_cast<unsigned>(digit);
    return --n_digits_ == 0 ? end_code(json) : Step::inside;
  }
  if (c == 'x' || c == 'u' || c == 'U') {
    n_digits_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    code_ = 0;
    state_ = State::code;
    return Step::inside;
  }
  if (high_ != 0) append_code_point(json, 0xFFFD);
  high_ = 0;
  state_ = State::string;
  if (c == '\n') return Step::inside;  // the line goes on
  if (const std::size_t name = kNames.find(c); name != std::string_view::npos) {
    append_json_escaped(json, kCharacters.substr(name, 1));
  } else {  // no escape: the backslash stands for itself
    json += "\\\\";
    append_json_escaped(json, std::string_view(&c, 1));
  }
  return Step::inside;
}

PythonLiteral::Step PythonLiteral::take(char c, std::string& json) {
  constexpr std::size_t kMaxWord = 1024;
  switch (state_) {
    case State::value:
    case State::key: {
      if (is_space(c)) return Step::inside;
      if (!open_.empty() && (c == ']' || c == ')' || c == '}'))
        return state_ == State::value && open_.back() == '{' ? Step::fault : take_after(c, json);
      if (!open_.empty() && !may_close_) json += ", ";
      may_close_ = true;
      if (state_ == State::value) return begin_value(c, json);
      if (c != '"' && c != '\'') return Step::fault;
      const Step step = begin_value(c, json);
      is_key_ = true;
      return step;
    }
    case State::colon:
      if (is_space(c)) return Step::inside;
      if (c != ':') return Step::fault;
      json += ": ";
      state_ = State::value;
      may_close_ = true;
      return Step::inside;
    case State::after: return take_after(c, json);
    case State::word:
      if (is_word_byte(c) || c == '.' || ((c == '-' || c == '+') && (word_.ends_with('e') || word_.ends_with('E')))) {
        word_ += c;
        return word_.size() > kMaxWord ? Step::fault : Step::inside;
      }
      if (!write_word(json)) return Step::fault;
      state_ = State::after;
      return take_after(c, json);
    case State::maybe_triple:
      if (c == quote_) {
        is_triple_ = true;
        n_quotes_ = 0;
        state_ = State::string;
        return Step::inside;
      }
      end_string(json);
      return take(c, json);
    case State::string: return take_string(c, json);
    case State::escape:
    case State::code: return take_escape(c, json);
  }
  return Step::fault;
}

void PythonCalls::begin(std::string_view marker) {
  state_ = State::before;
  is_marked_ = !marker.empty();
  name_.clear();
}

CallStep PythonCalls::finish_call(CallWriter& writer) {
  if (is_first_ && !writer.open_call(name_, "")) return CallStep::fault;
  writer.arguments(is_first_ ? "{}" : "}");
  writer.close_call();
  state_ = State::behind_call;
  return CallStep::more;
}

CallStep PythonCalls::take_key(char c, CallWriter& writer) {
  if (state_ == State::equals || !key_.empty()) {
    if (state_ == State::key && is_word_byte(c)) {
      key_ += c;
      return key_.size() > kMaxName ? CallStep::fault : CallStep::more;
    }
    state_ = State::equals;
    if (is_space(c)) return CallStep::more;
    if (c != '=') return CallStep::fault;
    if (is_first_ && !writer.open_call(name_, "")) return CallStep::fault;
    writer.arguments(fmt::format("{}\"{}\": ", is_first_ ? "{" : ", ", key_));
    is_first_ = false;
    literal_.begin();
    state_ = State::value;
    return CallStep::more;
  }
  if (is_space(c)) return CallStep::more;
  if (c == ')') return finish_call(writer);
  if (!is_word_byte(c) || (c >= '0' && c <= '9')) return CallStep::fault;
  key_ = c;
  return CallStep::more;
}

CallStep PythonCalls::take_value(char c, CallWriter& writer) {
  std::string json;
  const PythonLiteral::Step step = literal_.take(c, json);
  writer.arguments(json);
  if (step == PythonLiteral::Step::inside) return CallStep::more;
  if (step == PythonLiteral::Step::ended_before) {
    if (is_space(c)) return CallStep::more;
    if (c == ')') return finish_call(writer);
    if (c == ',') {
      key_.clear();
      state_ = State::key;
      return CallStep::more;
    }
  }
  return CallStep::fault;
}

CallStep PythonCalls::take(char c, CallWriter& writer) {
  const CallStep step = take_byte(c, writer);
  if (step != CallStep::fault || !writer.is_open()) return step;
  writer.close_call();  // and what is not written of it is content
  writer.hold(state_ == State::value ? literal_.word() : key_);
  writer.hold(std::string_view(&c, 1));
  return step;
}

CallStep PythonCalls::take_byte(char c, CallWriter& writer) {
  switch (state_) {
    case State::before:
      if (is_space(c)) return CallStep::more;
      state_ = State::name;
      return c == '[' ? CallStep::more : CallStep::fault;
    case State::name:
      if (c == '(' && !name_.empty()) {
        key_.clear();
        is_first_ = true;
        state_ = State::key;
        return CallStep::more;
      }
      if (is_space(c) && name_.empty()) return CallStep::more;
      if (!is_word_byte(c) && c != '.' && c != '-') return CallStep::fault;
      name_ += c;
      return name_.size() > kMaxName ? CallStep::fault : CallStep::more;
    case State::behind_call:
      if (is_space(c)) return CallStep::more;
      if (c == ',') {
        name_.clear();
        state_ = State::name;
        return CallStep::more;
      }
      if (c != ']') return CallStep::fault;
      if (!is_marked_) return CallStep::done;
      n_close_ = 0;
      state_ = State::close;
      return CallStep::more;
    case State::close:
      if (n_close_ == 0 && is_space(c)) return CallStep::more;
      if (c != kEnd[n_close_]) return CallStep::fault;
      return ++n_close_ == kEnd.size() ? CallStep::done : CallStep::more;
    case State::value: return take_value(c, writer);
    default: return take_key(c, writer);
  }
}

}  // namespace baton::parsers
