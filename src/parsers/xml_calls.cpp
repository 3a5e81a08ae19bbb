/// Tags one by one; values until their closing tag.
#include "parsers/xml_calls.h"

#include <algorithm>
#include <array>

#include "parsers/marker_scan.h"

namespace baton::parsers {

namespace {

constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kEndOfFunction = "</function>";
// What ends a value. Models leave the closing tag out sometimes.
constexpr std::string_view kNextParameter = "\n<parameter=";
constexpr std::string_view kNextEndOfFunction = "\n</function>";
constexpr std::array<std::string_view, 4> kEndsOfValue{"</parameter>", "\n</parameter>", kNextParameter, kNextEndOfFunction};

}  // namespace

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
  value_.begin(arguments_ == nullptr ? unsigned{kAllowsString} : arguments_->of(name_), writer);
  tail_.clear();
  state_ = State::value_begin;
  return CallStep::more;
}

CallStep XmlCalls::take_value(char c, CallWriter& writer) {
  if (state_ == State::value_begin) {
    state_ = State::value;
    if (c == '\n') return CallStep::more;
  }
  tail_ += c;
  while (!tail_.empty() && !begins_marker(kEndsOfValue, tail_)) {
    value_.write(tail_.substr(0, 1), writer);
    tail_.erase(0, 1);
  }
  if (std::find(kEndsOfValue.begin(), kEndsOfValue.end(), tail_) == kEndsOfValue.end()) return CallStep::more;
  value_.end(writer);
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
  if (state_ == State::value && value_.is_string()) value_.write(tail_, writer);
  if (state_ == State::body && token_.empty() && how == TextEnd::natural) end_function(writer);
}

}  // namespace baton::parsers
