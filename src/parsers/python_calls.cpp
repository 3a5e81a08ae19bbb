/// Names and keyword arguments; their literals become JSON.
#include "parsers/python_calls.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/utf8.h"
#include "parsers/json_scanner.h"
#include "parsers/marker_scan.h"

namespace baton::parsers {

namespace {

bool is_quote(char c) { return c == '"' || c == '\''; }
bool is_word_byte(char c) { return ascii::is_letter(c) || ascii::is_digit(c) || c == '_'; }

/// The letters that may stand in front of a string's quote: raw, bytes, format, Unicode.
bool is_prefix_letter(char c) { return std::string_view("rRbBfFuU").find(c) != std::string_view::npos; }
bool is_string_prefix(std::string_view word) {
  return !word.empty() && word.size() <= 2 && std::all_of(word.begin(), word.end(), is_prefix_letter);
}
bool is_raw_prefix(std::string_view word) { return word.find_first_of("rR") != std::string_view::npos; }

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

/// Whether the whole text is one number of JSON.
bool is_json_number(std::string_view text) {
  JsonScanner scanner(JsonScanner::Form::exact);
  for (const char c : text)
    if (scanner.take(c) != JsonScanner::Step::inside) return false;
  return scanner.take(' ') == JsonScanner::Step::ended_before;
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
  is_key_ = is_raw_ = false;
  if (is_quote(c)) {
    json += '"';
    begin_string(c);
    return Step::inside;
  }
  if (!is_word_byte(c) && c != '-' && c != '+' && c != '.') return Step::fault;
  word_ = c;
  state_ = State::word;
  return Step::inside;
}

void PythonLiteral::begin_string(char quote) {
  quote_ = quote;
  is_triple_ = false;
  is_empty_ = true;
  n_quotes_ = 0;
  state_ = State::string;
}

PythonLiteral::Step PythonLiteral::begin_key(char c, std::string& json) {
  is_key_ = true;
  is_raw_ = false;
  if (is_quote(c)) {
    json += '"';
    begin_string(c);
    return Step::inside;
  }
  if (!is_prefix_letter(c)) return Step::fault;
  word_ = c;
  state_ = State::key_prefix;
  return Step::inside;
}

/// A number, a name, or what stands in front of a string.
PythonLiteral::Step PythonLiteral::take_word(char c, std::string& json) {
  constexpr std::size_t kMaxWord = 1024;
  if (is_quote(c) && is_string_prefix(word_)) {
    if (state_ != State::next_prefix) json += '"';
    is_raw_ = is_raw_prefix(word_);
    word_.clear();
    begin_string(c);
    return Step::inside;
  }
  if (state_ != State::word) {
    if (!is_string_prefix(word_ + c)) return Step::fault;
    word_ += c;
    return Step::inside;
  }
  if (is_word_byte(c) || c == '.' || ((c == '-' || c == '+') && (word_.ends_with('e') || word_.ends_with('E')))) {
    if (word_.size() == kMaxWord) return Step::fault;
    word_ += c;
    return Step::inside;
  }
  if (!write_word(json)) return Step::fault;
  state_ = State::after;
  return take_after(c, json);
}

PythonLiteral::Step PythonLiteral::take_after_string(char c, std::string& json) {
  if (is_space(c)) return Step::inside;
  if (is_quote(c)) {
    is_raw_ = false;
    begin_string(c);
    return Step::inside;
  }
  if (is_prefix_letter(c)) {
    word_ = c;
    state_ = State::next_prefix;
    return Step::inside;
  }
  json += '"';
  state_ = is_key_ ? State::colon : State::after;
  return take(c, json);
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
    if (!is_json_number(number)) return false;
    json += number;
  }
  word_.clear();
  return true;
}

void PythonLiteral::write_lone_surrogate(std::string& json) {
  if (high_ != 0) append_code_point(json, 0xFFFD);
  high_ = 0;
}

/// Its closing quote is written when no other string follows.
PythonLiteral::Step PythonLiteral::end_string(std::string& json) {
  write_lone_surrogate(json);
  n_quotes_ = 0;
  state_ = State::after_string;
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
  if (c == '\\' && !is_raw_) {
    state_ = State::escape;
    return Step::inside;
  }
  write_lone_surrogate(json);
  append_json_escaped(json, std::string_view(&c, 1));
  if (c == '\\') state_ = State::raw_escape;
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
    const int digit = ascii::hex_digit(c);
    if (digit < 0) {
      write_lone_surrogate(json);
      json += "\\\\" + escape_;
      state_ = State::string;
      return take_string(c, json);
    }
    escape_ += c;
    code_ = code_ * 16 + static_cast<unsigned>(digit);
    return --n_digits_ == 0 ? end_code(json) : Step::inside;
  }
  if (c == 'x' || c == 'u' || c == 'U') {
    n_digits_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    code_ = 0;
    escape_ = c;
    state_ = State::code;
    return Step::inside;
  }
  write_lone_surrogate(json);
  state_ = State::string;
  if (c == '\n') return Step::inside;  // the line continues
  if (const std::size_t name = kNames.find(c); name != std::string_view::npos) {
    append_json_escaped(json, kCharacters.substr(name, 1));
  } else {  // no escape: the backslash stands for itself
    json += "\\\\";
    append_json_escaped(json, std::string_view(&c, 1));
  }
  return Step::inside;
}

PythonLiteral::Step PythonLiteral::take(char c, std::string& json) {
  switch (state_) {
    case State::value:
    case State::key: {
      if (is_space(c)) return Step::inside;
      if (!open_.empty() && (c == ']' || c == ')' || c == '}'))
        return state_ == State::value && open_.back() == '{' ? Step::fault : take_after(c, json);
      if (!open_.empty() && !may_close_) json += ", ";
      may_close_ = true;
      return state_ == State::value ? begin_value(c, json) : begin_key(c, json);
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
    case State::key_prefix:
    case State::next_prefix: return take_word(c, json);
    case State::after_string: return take_after_string(c, json);
    case State::maybe_triple:
      if (c == quote_) {
        is_triple_ = true;
        n_quotes_ = 0;
        state_ = State::string;
        return Step::inside;
      }
      end_string(json);
      return take(c, json);
    case State::raw_escape:
      state_ = State::string;
      append_json_escaped(json, std::string_view(&c, 1));
      return Step::inside;
    case State::string: return take_string(c, json);
    case State::escape:
    case State::code: return take_escape(c, json);
  }
  return Step::fault;
}

std::optional<std::string> json_of_python(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  if (text.empty() || std::string_view("[({").find(text.front()) == std::string_view::npos) return std::nullopt;
  PythonLiteral literal;
  literal.begin();
  std::string json;
  for (const char c : text)
    if (literal.take(c, json) != PythonLiteral::Step::inside) return std::nullopt;
  return literal.take(' ', json) == PythonLiteral::Step::ended_before ? std::optional(json) : std::nullopt;
}

void PythonCalls::begin(std::string_view marker) {
  state_ = State::before;
  is_marked_ = !marker.empty();
  has_calls_ = false;
  name_.clear();
}

CallStep PythonCalls::finish_call(CallWriter& writer) {
  if (is_first_ && !writer.open_call(name_, "")) return CallStep::fault;
  writer.arguments(is_first_ ? "{}" : "}");
  writer.complete_arguments();
  writer.close_call();
  has_calls_ = true;
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
  if (!is_word_byte(c) || ascii::is_digit(c)) return CallStep::fault;
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
  writer.break_call((state_ == State::value ? literal_.word() : key_) + c);
  return step;
}

/// After the call's list.
CallStep PythonCalls::end_list() {
  if (!is_marked_) return CallStep::done;
  n_close_ = 0;
  state_ = State::close;
  return CallStep::more;
}

/// A comma in front of the closing bracket is forgiven.
CallStep PythonCalls::take_name(char c) {
  if (c == '(' && !name_.empty()) {
    key_.clear();
    is_first_ = true;
    state_ = State::key;
    return CallStep::more;
  }
  if (name_.empty() && is_space(c)) return CallStep::more;
  if (name_.empty() && c == ']' && has_calls_) return end_list();
  if (!is_word_byte(c) && c != '.' && c != '-') return CallStep::fault;
  name_ += c;
  return name_.size() > kMaxName ? CallStep::fault : CallStep::more;
}

CallStep PythonCalls::take_byte(char c, CallWriter& writer) {
  switch (state_) {
    case State::before:
      if (is_space(c)) return CallStep::more;
      state_ = State::name;
      return c == '[' ? CallStep::more : CallStep::fault;
    case State::name: return take_name(c);
    case State::behind_call:
      if (is_space(c)) return CallStep::more;
      if (c == ',') {
        name_.clear();
        state_ = State::name;
        return CallStep::more;
      }
      return c == ']' ? end_list() : CallStep::fault;
    case State::close:
      if (n_close_ == 0 && is_space(c)) return CallStep::more;
      if (c != close_[n_close_]) return CallStep::fault;
      return ++n_close_ == close_.size() ? CallStep::done : CallStep::more;
    case State::value: return take_value(c, writer);
    default: return take_key(c, writer);
  }
}

}  // namespace baton::parsers
