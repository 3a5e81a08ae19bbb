/// Tags, heads, and arguments in JSON.
#include "parsers/section_calls.h"

#include <algorithm>
#include <optional>

#include "core/utf8.h"
#include "parsers/json_calls.h"
#include "parsers/marker_scan.h"

namespace baton::parsers {
namespace {

constexpr std::string_view kTyped = "function";
constexpr std::string_view kNamespace = "functions.";

/// What no name holds: spaces, and what begins a tag, arguments or a fence.
bool ends_name(char c) { return is_space(c) || std::string_view("<>[]{}\"`").find(c) != std::string_view::npos; }

}  // namespace

void SectionCalls::begin(std::string_view marker) {
  tag_.clear();
  name_.clear();
  id_.clear();
  state_ = marker == style_.call ? State::head : State::before;
}

/// A tag before a call or after one. The backticks of a fence after arguments are passed over.
CallStep SectionCalls::take_tag(char c, CallWriter& writer) {
  const bool is_after_call = state_ == State::after_call;
  if (tag_.empty() && (is_space(c) || (is_after_call && c == '`'))) return CallStep::more;
  tag_ += c;
  const std::string_view tag = tag_;
  if (tag == style_.call) {
    begin(style_.call);
    return CallStep::more;
  }
  if (style_.call.starts_with(tag)) return CallStep::more;
  if (!is_after_call) return CallStep::fault;
  if (tag == style_.end_of_call) {
    tag_.clear();
    writer.release_held();
    return CallStep::more;
  }
  const auto is_begun = [&](std::string_view end) { return end.starts_with(tag); };
  const auto end = std::ranges::find_if(style_.section_ends, is_begun);
  if (end != style_.section_ends.end()) return *end == tag ? CallStep::done : CallStep::more;
  return style_.end_of_call.starts_with(tag) ? CallStep::more : CallStep::fault;
}

CallStep SectionCalls::take_head(char c) {
  if (tag_.empty() && !ends_name(c)) {
    if (state_ == State::head_tag || name_.size() == kMaxName) return CallStep::fault;
    name_ += c;
    return CallStep::more;
  }
  if (tag_.empty() && is_space(c)) {
    if (!name_.empty()) state_ = State::head_tag;
    return CallStep::more;
  }
  tag_ += c;
  if (name_.empty() || !style_.arguments.starts_with(tag_)) return CallStep::fault;
  state_ = State::head_tag;
  return tag_ == style_.arguments ? end_head() : CallStep::more;
}

CallStep SectionCalls::end_head() {
  tag_.clear();
  state_ = State::after_tag;
  if (!style_.is_numbered) return CallStep::more;
  state_ = State::before_arguments;
  const std::size_t colon = std::min(name_.rfind(':'), name_.size());
  const std::string_view number = std::string_view(name_).substr(std::min(colon + 1, name_.size()));
  if (!number.empty() && std::ranges::all_of(number, ascii::is_digit)) {
    id_ = name_;
    name_.resize(colon);
  }
  if (name_.starts_with(kNamespace)) name_.erase(0, kNamespace.size());
  return name_.empty() ? CallStep::fault : CallStep::more;
}

/// In the line after the word `function`.
CallStep SectionCalls::take_name(char c, CallWriter& writer) {
  if (!ends_name(c)) {
    if (name_.size() == kMaxName) return CallStep::fault;
    name_ += c;
    return CallStep::more;
  }
  state_ = State::before_arguments;
  return begin_arguments(c, writer);
}

/// Spaces, a fence or the first byte of the arguments.
CallStep SectionCalls::begin_arguments(char c, CallWriter& writer) {
  if (is_space(c)) return CallStep::more;
  switch (c) {
    case '{':
      if (!writer.open_call(name_, id_)) return CallStep::fault;
      scanner_.reset();
      state_ = State::arguments;
      return take_arguments(c, writer);
    case '"':
      quoted_.clear();
      scanner_.reset();
      state_ = State::quoted_arguments;
      return take_arguments(c, writer);
    case '`':
      n_fence_ = 1;
      state_ = State::fence;
      return CallStep::more;
    case '<':
      tag_ = c;
      state_ = State::empty_arguments;
      return CallStep::more;
    default:
      if (state_ != State::after_tag || name_ != kTyped || ends_name(c)) return CallStep::fault;
      name_ = c;
      state_ = State::name;
      return CallStep::more;
  }
}

/// Backticks and the name of a language.
CallStep SectionCalls::take_fence(char c, CallWriter& writer) {
  if (c == '{' || c == '"' || is_space(c)) {
    state_ = State::before_arguments;
    return begin_arguments(c, writer);
  }
  return ++n_fence_ > kMaxFence || c == '<' ? CallStep::fault : CallStep::more;
}

CallStep SectionCalls::take_arguments(char c, CallWriter& writer) {
  const JsonScanner::Step step = scanner_.take(c);
  if (step == JsonScanner::Step::fault) return CallStep::fault;
  const bool is_over = step == JsonScanner::Step::ends;
  if (state_ == State::arguments) {
    writer.arguments(scanner_.written());
    return is_over ? end_call(writer) : CallStep::more;
  }
  quoted_ += scanner_.written();
  if (!is_over) return CallStep::more;
  const auto object = object_in_string(quoted_);
  return object ? whole_call(*object, writer) : CallStep::fault;
}

CallStep SectionCalls::whole_call(std::string_view arguments, CallWriter& writer) {
  if (!writer.open_call(name_, id_)) return CallStep::fault;
  writer.arguments(arguments);
  return end_call(writer);
}

CallStep SectionCalls::end_call(CallWriter& writer) {
  writer.complete_arguments();
  writer.close_call();
  tag_.clear();
  state_ = State::after_call;
  return CallStep::more;
}

CallStep SectionCalls::take(char c, CallWriter& writer) {
  switch (state_) {
    case State::before:
    case State::after_call: return take_tag(c, writer);
    case State::head:
    case State::head_tag: return take_head(c);
    case State::name: return take_name(c, writer);
    case State::after_tag:
    case State::before_arguments: return begin_arguments(c, writer);
    case State::fence: return take_fence(c, writer);
    case State::arguments:
    case State::quoted_arguments: return take_arguments(c, writer);
    case State::empty_arguments: break;
  }
  tag_ += c;
  if (tag_ != style_.end_of_call) return style_.end_of_call.starts_with(tag_) ? CallStep::more : CallStep::fault;
  return whole_call("{}", writer);
}

/// The tags that the model has left out after a call.
void SectionCalls::end(TextEnd /*how*/, CallWriter& writer) {
  if (state_ == State::after_call && tag_.empty()) writer.release_held();
}

}  // namespace baton::parsers
