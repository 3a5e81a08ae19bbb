/// Tags one by one; values until their closing tag.
#include "parsers/xml_calls.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "parsers/json_scanner.h"
#include "parsers/marker_scan.h"
#include "parsers/python_calls.h"

namespace baton::parsers {

namespace {

constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kEndOfFunction = "</function>";
// What ends a value. Models leave the closing tag out sometimes.
constexpr std::string_view kNextParameter = "\n<parameter=";
constexpr std::string_view kNextEndOfFunction = "\n</function>";
constexpr std::array<std::string_view, 4> kEndsOfValue{"</parameter>", "\n</parameter>", kNextParameter, kNextEndOfFunction};

std::string json_quoted(std::string_view text) {
  std::string json = "\"";
  append_json_escaped(json, text);
  return json + "\"";
}

unsigned kind_of_json(std::string_view json) {
  switch (json.front()) {
    case '"': return kAllowsString;
    case 't':
    case 'f': return kAllowsBoolean;
    case 'n': return kAllowsNull;
    case '{': return kAllowsObject;
    case '[': return kAllowsArray;
    default: return kAllowsNumber;
  }
}

}  // namespace

std::string typed_value(std::string_view text, unsigned kinds) {
  const unsigned others = kinds & ~unsigned{kAllowsString};
  for (const auto& read : {mended_json, json_of_python}) {
    const std::optional<std::string> value = read(text);
    if (value && (kind_of_json(*value) & others) != 0) return *value;
  }
  return json_quoted(text);
}

void XmlCalls::begin(std::string_view marker) {
  name_.clear();
  token_ = marker == kFunction ? kFunction : "";
  state_ = marker == kFunction ? State::name : State::before;
}

/// In an open call: closes it; the tag that was begun is content.
CallStep XmlCalls::fail(CallWriter& writer) {
  if (writer.is_open()) {
    end_function(writer);
    writer.hold(token_);
  }
  return CallStep::fault;
}

void XmlCalls::end_function(CallWriter& writer) {
  writer.arguments("}");
  writer.complete_arguments();
  writer.close_call();
}

CallStep XmlCalls::take_token(char c, CallWriter& writer) {
  static constexpr std::array<std::string_view, 1> kBefore{kFunction};
  const std::array<std::string_view, 3> in_body{kParameter, kEndOfFunction, end_of_call_};
  const std::array<std::string_view, 2> behind{kFunction, end_of_call_};
  if (token_.empty() && is_space(c)) return CallStep::more;
  const std::span<const std::string_view> tags = state_ == State::before ? std::span<const std::string_view>(kBefore)
                                                 : state_ == State::body ? std::span<const std::string_view>(in_body)
                                                                         : std::span<const std::string_view>(behind);
  token_ += c;
  if (!begins_marker(tags, token_)) return fail(writer);
  if (token_ == kFunction) {
    name_.clear();
    state_ = State::name;
  } else if (token_ == kParameter) {
    name_.clear();
    state_ = State::key;
  } else if (token_ == kEndOfFunction) {
    end_function(writer);
    token_.clear();
    state_ = State::behind;
  } else if (token_ == end_of_call_) {
    if (state_ == State::body) end_function(writer);
    return CallStep::done;
  }
  return CallStep::more;
}

CallStep XmlCalls::take_name(char c, CallWriter& writer) {
  if (c == '>' && !name_.empty()) {
    if (!writer.open_call(name_, "")) return CallStep::fault;
    writer.arguments("{");
    arguments_ = tools_ == nullptr ? nullptr : tools_->find(name_);
    n_parameters_ = 0;
    token_.clear();
    state_ = State::body;
    return CallStep::more;
  }
  if (is_space(c) || c == '<' || c == '>' || name_.size() == kMaxName) return CallStep::fault;
  name_ += c;
  return CallStep::more;
}

CallStep XmlCalls::take_key(char c, CallWriter& writer) {
  token_ += c;
  if (c != '>') {
    if (c == '\n' || c == '<' || name_.size() == kMaxName) return fail(writer);
    name_ += c;
    return CallStep::more;
  }
  if (name_.empty()) return fail(writer);
  writer.arguments((n_parameters_++ == 0 ? "" : ", ") + json_quoted(name_) + ": ");
  kinds_ = arguments_ == nullptr ? unsigned{kAllowsString} : arguments_->of(name_);
  is_string_ = kinds_ == kAllowsString;
  if (is_string_) writer.arguments("\"");
  value_.clear();
  tail_.clear();
  state_ = State::value_begin;
  return CallStep::more;
}

void XmlCalls::write_value(std::string_view text, CallWriter& writer) {
  constexpr std::size_t kMaxValue = CallWriter::kMaxHeld;
  if (!is_string_) {
    value_ += text;
    if (value_.size() <= kMaxValue) return;
    is_string_ = true;  // too long to be looked at
    writer.arguments("\"");
    write_value(std::exchange(value_, {}), writer);
    return;
  }
  std::string json;
  append_json_escaped(json, text);
  writer.arguments(json);
}

void XmlCalls::end_value(CallWriter& writer) { writer.arguments(is_string_ ? "\"" : typed_value(value_, kinds_)); }

CallStep XmlCalls::take_value(char c, CallWriter& writer) {
  if (state_ == State::value_begin) {
    state_ = State::value;
    if (c == '\n') return CallStep::more;
  }
  tail_ += c;
  while (!tail_.empty() && !begins_marker(kEndsOfValue, tail_)) {
    write_value(tail_.substr(0, 1), writer);
    tail_.erase(0, 1);
  }
  if (std::find(kEndsOfValue.begin(), kEndsOfValue.end(), tail_) == kEndsOfValue.end()) return CallStep::more;
  end_value(writer);
  if (tail_ == kNextParameter) {
    token_ = kParameter;
    name_.clear();
    state_ = State::key;
  } else if (tail_ == kNextEndOfFunction) {
    end_function(writer);
    token_.clear();
    state_ = State::behind;
  } else {
    token_.clear();
    state_ = State::body;
  }
  tail_.clear();
  return CallStep::more;
}

CallStep XmlCalls::take(char c, CallWriter& writer) {
  switch (state_) {
    case State::name: return take_name(c, writer);
    case State::key: return take_key(c, writer);
    case State::value_begin:
    case State::value: return take_value(c, writer);
    default: return take_token(c, writer);
  }
}

/// A value that is cut off stays so: its text is written, without a closing quote. A closing tag that the model has left out is
/// forgiven.
void XmlCalls::end(TextEnd how, CallWriter& writer) {
  if (!writer.is_open()) return;
  if (state_ == State::value && is_string_) write_value(tail_, writer);
  if (state_ == State::body && token_.empty() && how == TextEnd::natural) end_function(writer);
}

}  // namespace baton::parsers
