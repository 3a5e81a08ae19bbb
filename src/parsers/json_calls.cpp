/// Objects with name and arguments, in lists, one after another, or after a name.
#include "parsers/json_calls.h"

#include <utility>

#include "io/json.h"
#include "parsers/marker_scan.h"

namespace baton::parsers {

namespace {

/// The string of a JSON text; nullopt for other values.
std::optional<std::string> string_of(const std::string& json) {
  const auto value = json::parse(json, "a field of a call");
  if (!value || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

}  // namespace

std::optional<std::string> object_in_string(const std::string& json) {
  const auto text = string_of(json);
  if (!text) return std::nullopt;
  if (text->empty()) return "{}";
  auto object = mended_json(*text);
  return object && object->starts_with('{') ? std::move(object) : std::nullopt;
}

CallObject::Field CallObject::field_of(std::string_view key) const {
  if ((key == "name" || key == "tool_name") && name_.empty()) return Field::name;
  if ((key == "arguments" || key == "parameters") && !has_arguments_) return Field::arguments;
  return key == "id" && id_.empty() ? Field::id : Field::other;
}

void CallObject::begin() { *this = CallObject(); }

CallStep CallObject::take(char c, CallWriter& writer) {
  switch (state_) {
    case State::open: state_ = State::key_or_end; return c == '{' ? CallStep::more : CallStep::fault;
    case State::key_or_end:
    case State::key: return take_key(c, writer);
    case State::colon:
      if (is_space(c)) return CallStep::more;
      state_ = State::value;
      is_begun_ = false;
      scanner_.reset();
      value_.clear();
      return c == ':' ? CallStep::more : CallStep::fault;
    case State::value: return take_value(c, writer);
    case State::after:
      if (is_space(c)) return CallStep::more;
      if (c == '}') return finish(writer);
      state_ = State::key;
      is_begun_ = false;
      return c == ',' ? CallStep::more : CallStep::fault;
  }
  return CallStep::fault;
}

std::string_view CallObject::begun_name() const {
  if (!name_.empty()) return name_;
  const bool is_in_name = state_ == State::value && field_ == Field::name && value_.starts_with('"');
  return is_in_name ? std::string_view(value_).substr(1) : std::string_view();
}

/// A comma in front of the closing bracket is forgiven.
CallStep CallObject::take_key(char c, CallWriter& writer) {
  if (is_begun_) {
    const JsonScanner::Step step = scanner_.take(c);
    key_ += scanner_.written();
    if (step == JsonScanner::Step::inside) return key_.size() > kMaxKey ? CallStep::fault : CallStep::more;
    const std::string key = string_of(key_).value_or("");
    field_ = field_of(key);
    state_ = State::colon;
    return step == JsonScanner::Step::ends ? CallStep::more : CallStep::fault;
  }
  if (is_space(c)) return CallStep::more;
  if (c == '}') return finish(writer);
  if (c != '"') return CallStep::fault;
  scanner_.reset();
  scanner_.take(c);
  key_ = c;
  is_begun_ = true;
  return CallStep::more;
}

CallStep CallObject::take_value(char c, CallWriter& writer) {
  if (!is_begun_) {
    if (is_space(c)) return CallStep::more;
    is_begun_ = true;
    if (field_ == Field::arguments && c == '{') {
      has_arguments_ = true;
      is_streamed_ = !name_.empty();
      if (is_streamed_ && !writer.open_call(name_, id_)) return CallStep::fault;
    }
  }
  const JsonScanner::Step step = scanner_.take(c);
  if (step == JsonScanner::Step::fault) return CallStep::fault;
  if (step != JsonScanner::Step::ended_before) {
    if (is_streamed_ && field_ == Field::arguments)
      writer.arguments(scanner_.written());
    else if (field_ != Field::other)
      value_ += scanner_.written();
  }
  if (step == JsonScanner::Step::inside) return CallStep::more;
  if (!finish_value()) return CallStep::fault;
  if (is_streamed_ && field_ == Field::arguments) writer.complete_arguments();
  state_ = State::after;
  return step == JsonScanner::Step::ended_before ? take(c, writer) : CallStep::more;
}

/// false: the value is not what its key asks for.
bool CallObject::finish_value() {
  if (field_ == Field::name) {
    name_ = string_of(value_).value_or("");
    return !name_.empty();
  }
  if (field_ == Field::id) id_ = string_of(value_).value_or("");
  if (field_ != Field::arguments || is_streamed_) return true;
  if (value_.starts_with('{')) {
    arguments_ = std::move(value_);
  } else if (value_ != "null") {
    const auto object = object_in_string(value_);
    if (!object) return false;
    has_arguments_ = true;
    arguments_ = *object;
  }
  return true;
}

CallStep CallObject::finish(CallWriter& writer) {
  if (name_.empty()) return CallStep::fault;
  if (!is_streamed_) {
    if (!writer.open_call(name_, id_)) return CallStep::fault;
    writer.arguments(arguments_.empty() ? "{}" : arguments_);
    writer.complete_arguments();
  }
  writer.close_call();
  return CallStep::done;
}

void JsonCalls::begin(std::string_view /*marker*/) {
  state_ = State::before;
  is_in_list_ = false;
  has_calls_ = false;
  name_.clear();
  id_.clear();
}

std::string_view JsonCalls::begun_name() const {
  return state_ == State::object ? object_.begun_name() : std::string_view(name_);
}

CallStep JsonCalls::begin_object(char c, CallWriter& writer) {
  object_.begin();
  has_calls_ = true;
  state_ = State::object;
  return object_.take(c, writer);
}

/// A closing marker in place of the object's closing bracket is forgiven.
CallStep JsonCalls::take_object(char c, CallWriter& writer) {
  const bool lacks_bracket = !is_in_list_ && style_.close.starts_with(c) && object_.may_end();
  const CallStep step = lacks_bracket ? object_.finish(writer) : object_.take(c, writer);
  if (step != CallStep::done) return step;
  state_ = is_in_list_ ? State::after_in_list : State::behind;
  return lacks_bracket ? take_behind(c, writer) : CallStep::more;
}

/// A comma in front of the closing bracket is forgiven.
CallStep JsonCalls::take_list(char c, CallWriter& writer) {
  if (is_space(c)) return CallStep::more;
  if (state_ == State::in_list && (c != ']' || !has_calls_)) return c == '{' ? begin_object(c, writer) : CallStep::fault;
  if (c == ']') {
    state_ = State::behind;
    return style_.close.empty() ? CallStep::done : CallStep::more;
  }
  state_ = State::in_list;
  return c == ',' ? CallStep::more : CallStep::fault;
}

CallStep JsonCalls::take_behind(char c, CallWriter& writer) {
  if (state_ == State::behind) {
    if (is_space(c)) return CallStep::more;
    if (c == '}' && style_.is_object && !style_.close.empty()) return CallStep::more;  // one bracket too many
    if (style_.close.empty()) {
      if (c == '{') return begin_object(c, writer);
      if (style_.separator == '\0' || c != style_.separator) return CallStep::fault;
      state_ = State::before;
      return CallStep::more;
    }
    state_ = State::close;
    n_close_ = 0;
  }
  if (c != style_.close[n_close_]) return CallStep::fault;
  return ++n_close_ == style_.close.size() ? CallStep::done : CallStep::more;
}

CallStep JsonCalls::take_named(char c, CallWriter& writer) {
  constexpr std::size_t kMaxName = 256;
  const auto begin_arguments = [&] {
    if (!writer.open_call(name_, id_)) return CallStep::fault;
    scanner_.reset();
    state_ = State::arguments;
    scanner_.take(c);
    writer.arguments("{");
    return CallStep::more;
  };
  switch (state_) {
    case State::name:
    case State::id: {
      std::string& text = state_ == State::name ? name_ : id_;
      if (c == '[' && !text.empty()) {
        tag_ = c;
        state_ = State::tag;
        return CallStep::more;
      }
      if (c == '{' && state_ == State::name && !text.empty()) return begin_arguments();
      if (is_space(c) || std::string_view("[]{}\"").find(c) != std::string_view::npos || text.size() == kMaxName)
        return CallStep::fault;
      text += c;
      return CallStep::more;
    }
    case State::tag:
      tag_ += c;
      if (tag_ == "[ARGS]") {
        state_ = State::before_arguments;
      } else if (tag_ == "[CALL_ID]" && id_.empty()) {
        state_ = State::id;
      } else if (!std::string_view("[ARGS]").starts_with(tag_) && !std::string_view("[CALL_ID]").starts_with(tag_)) {
        return CallStep::fault;
      }
      return CallStep::more;
    case State::before_arguments:
      if (is_space(c)) return CallStep::more;
      return c == '{' ? begin_arguments() : CallStep::fault;
    default: {  // arguments
      const JsonScanner::Step step = scanner_.take(c);
      if (step == JsonScanner::Step::fault) return CallStep::fault;
      writer.arguments(scanner_.written());
      if (step == JsonScanner::Step::inside) return CallStep::more;
      writer.complete_arguments();
      writer.close_call();
      return CallStep::done;
    }
  }
}

CallStep JsonCalls::take(char c, CallWriter& writer) {
  switch (state_) {
    case State::before:
      if (is_space(c)) return CallStep::more;
      if (c == '[' && style_.is_list) {
        is_in_list_ = true;
        state_ = State::in_list;
        return CallStep::more;
      }
      if (c == '{' && style_.is_object) return begin_object(c, writer);
      if (!style_.is_named) return CallStep::fault;
      state_ = State::name;
      return take_named(c, writer);
    case State::object: return take_object(c, writer);
    case State::in_list:
    case State::after_in_list: return take_list(c, writer);
    case State::behind:
    case State::close: return take_behind(c, writer);
    default: return take_named(c, writer);
  }
}

}  // namespace baton::parsers
