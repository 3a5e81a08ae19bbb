/// The name up to a line end or a tag, then keys and values in turn.
#include "parsers/glm_calls.h"

#include <array>
#include <span>

#include "parsers/marker_scan.h"

namespace baton::parsers {
namespace {

constexpr std::string_view kKey = "<arg_key>";
constexpr std::string_view kEndOfKey = "</arg_key>";
constexpr std::string_view kValue = "<arg_value>";
constexpr std::string_view kEndOfValue = "</arg_value>";
constexpr std::array<std::string_view, 2> kInBody{kKey, GlmCalls::kEndOfCall};
constexpr std::array<std::string_view, 1> kBeforeValue{kValue};

void close_call(CallWriter& writer) {
  writer.arguments("}");
  writer.complete_arguments();
  writer.close_call();
}

}  // namespace

void GlmCalls::begin(std::string_view /*marker*/) {
  name_.clear();
  tag_.clear();
  state_ = State::name;
}

/// Closes the call with the arguments that are complete; the tag that was begun is content.
CallStep GlmCalls::fail(CallWriter& writer) {
  close_call(writer);
  writer.hold(tag_);
  return CallStep::fault;
}

CallStep GlmCalls::take_name(char c, CallWriter& writer) {
  if (name_.empty() && is_space(c)) return CallStep::more;
  if (name_.empty() || (c != '\n' && c != '<')) {
    if (is_space(c) || std::string_view("<>[]{}\"").find(c) != std::string_view::npos || name_.size() == kMaxName)
      return CallStep::fault;
    name_ += c;
    return CallStep::more;
  }
  if (!writer.open_call(name_, "")) return CallStep::fault;
  writer.arguments("{");
  arguments_ = tools_ == nullptr ? nullptr : tools_->find(name_);
  n_arguments_ = 0;
  state_ = State::body;
  if (c == '<') tag_ = c;
  return CallStep::more;
}

/// A tag of the body, or the one before a value.
CallStep GlmCalls::take_tag(char c, CallWriter& writer) {
  if (tag_.empty() && is_space(c)) return CallStep::more;
  tag_ += c;
  const std::span<const std::string_view> tags =
      state_ == State::body ? std::span<const std::string_view>(kInBody) : std::span<const std::string_view>(kBeforeValue);
  if (!begins_marker(tags, tag_)) return fail(writer);
  if (tag_ == kEndOfCall) {
    close_call(writer);
    return CallStep::done;
  }
  if (tag_ == kKey) {
    name_.clear();
    state_ = State::key;
    tag_.clear();
  } else if (tag_ == kValue) {
    writer.arguments((n_arguments_++ == 0 ? "" : ", ") + json_quoted(name_) + ": ");
    value_.begin(arguments_ == nullptr ? unsigned{kAllowsString} : arguments_->of(name_), writer);
    state_ = State::value;
    tag_.clear();
  }
  return CallStep::more;
}

CallStep GlmCalls::take_key(char c, CallWriter& writer) {
  tag_ += c;
  if (kEndOfKey.starts_with(tag_)) {
    if (tag_ != kEndOfKey) return CallStep::more;
    if (name_.empty()) return fail(writer);
    state_ = State::before_value;
    tag_.clear();
    return CallStep::more;
  }
  if (tag_.size() > 1 || c == '\n' || c == '<' || name_.size() == kMaxName) return fail(writer);
  name_ += c;
  tag_.clear();
  return CallStep::more;
}

CallStep GlmCalls::take_value(char c, CallWriter& writer) {
  tag_ += c;
  while (!kEndOfValue.starts_with(tag_)) {
    value_.write(tag_.substr(0, 1), writer);
    tag_.erase(0, 1);
  }
  if (tag_ != kEndOfValue) return CallStep::more;
  value_.end(writer);
  tag_.clear();
  state_ = State::body;
  return CallStep::more;
}

CallStep GlmCalls::take(char c, CallWriter& writer) {
  switch (state_) {
    case State::name: return take_name(c, writer);
    case State::key: return take_key(c, writer);
    case State::value: return take_value(c, writer);
    default: return take_tag(c, writer);
  }
}

/// A value that is cut off stays so: its text is written, without a closing quote. A closing tag that the model has left out is
/// forgiven.
void GlmCalls::end(TextEnd how, CallWriter& writer) {
  if (!writer.is_open()) return;
  if (state_ == State::value && value_.is_string()) value_.write(tag_, writer);
  if (state_ == State::body && tag_.empty() && how == TextEnd::natural) close_call(writer);
}

}  // namespace baton::parsers
