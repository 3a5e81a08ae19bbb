/// Tags one by one; values until their closing tag.
#include "parsers/xml_calls.h"

#include <algorithm>
#include <array>
#include <utility>

#include "io/json.h"
#include "parsers/json_scanner.h"
#include "parsers/marker_scan.h"

namespace baton::parsers {

namespace {

constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kEndOfFunction = "</function>";
constexpr std::string_view kEndOfCall = "</tool_call>";
// What ends a value. Models leave the closing tag out sometimes.
constexpr std::string_view kNextParameter = "\n<parameter=";
constexpr std::string_view kNextEndOfFunction = "\n</function>";
constexpr std::array<std::string_view, 4> kEndsOfValue{"</parameter>", "\n</parameter>", kNextParameter, kNextEndOfFunction};

unsigned kind_of_type(std::string_view type) {
  if (type == "string") return kAllowsString;
  if (type == "integer" || type == "number") return kAllowsNumber;
  if (type == "boolean") return kAllowsBoolean;
  if (type == "null") return kAllowsNull;
  if (type == "object") return kAllowsObject;
  return type == "array" ? unsigned{kAllowsArray} : 0U;
}

unsigned kind_of_value(const json::Value& value) {
  if (value.is_string()) return kAllowsString;
  if (value.is_number()) return kAllowsNumber;
  if (value.is_boolean()) return kAllowsBoolean;
  if (value.is_null()) return kAllowsNull;
  return value.is_object() ? kAllowsObject : kAllowsArray;
}

/// 0: the schema says nothing about kinds. `depth` bounds references that lead to themselves.
unsigned kinds_of_schema(const json::Value& root, const json::Value& schema, int depth) {
  constexpr int kMaxDepth = 16;
  if (!schema.is_object() || depth == kMaxDepth) return 0;
  unsigned kinds = 0;
  if (const json::Value* type = json::find(schema, "type"); type != nullptr) {
    if (type->is_string()) kinds |= kind_of_type(type->get<std::string>());
    if (type->is_array())
      for (const json::Value& one : *type)
        if (one.is_string()) kinds |= kind_of_type(one.get<std::string>());
    if (kinds != 0) return kinds;
  }
  if (const json::Value* value = json::find(schema, "const"); value != nullptr) return kind_of_value(*value);
  if (const json::Value* values = json::find(schema, "enum"); values != nullptr && values->is_array())
    for (const json::Value& one : *values) kinds |= kind_of_value(one);
  for (const std::string_view key : {"anyOf", "oneOf", "allOf"})
    if (const json::Value* all = json::find(schema, key); all != nullptr && all->is_array())
      for (const json::Value& one : *all) kinds |= kinds_of_schema(root, one, depth + 1);
  if (const json::Value* ref = json::find(schema, "$ref"); ref != nullptr && ref->is_string()) {
    const std::string& name = ref->get_ref<const std::string&>();
    for (const std::string_view defs : {"$defs", "definitions"})
      if (const std::string front = "#/" + std::string(defs) + "/"; name.starts_with(front))
        if (const json::Value* all = json::find(root, defs); all != nullptr)
          if (const json::Value* one = json::find(*all, name.substr(front.size())); one != nullptr)
            kinds |= kinds_of_schema(root, *one, depth + 1);
  }
  return kinds;
}

std::string json_quoted(std::string_view text) {
  std::string json = "\"";
  append_json_escaped(json, text);
  return json + "\"";
}

}  // namespace

unsigned kinds_of_parameter(const Tool& tool, std::string_view parameter) {
  const json::Value* properties = json::find(tool.parameters, "properties");
  const json::Value* schema = properties == nullptr ? nullptr : json::find(*properties, parameter);
  const unsigned kinds = schema == nullptr ? 0 : kinds_of_schema(tool.parameters, *schema, 0);
  return kinds == 0 ? unsigned{kAllowsString} : kinds;
}

std::string typed_value(std::string_view text, unsigned kinds) {
  std::string_view trimmed = text;
  while (!trimmed.empty() && is_space(trimmed.front())) trimmed.remove_prefix(1);
  while (!trimmed.empty() && is_space(trimmed.back())) trimmed.remove_suffix(1);
  if (trimmed == "True") trimmed = "true";
  if (trimmed == "False") trimmed = "false";
  if (trimmed == "None") trimmed = "null";
  if (trimmed.find('\0') != std::string_view::npos) return json_quoted(text);  // json::parse stops there
  const auto value = json::parse(trimmed, "the value of a parameter");
  if (!value || (kind_of_value(*value) & kinds & ~unsigned{kAllowsString}) == 0) return json_quoted(text);
  return std::string(trimmed);
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
  writer.close_call();
}

CallStep XmlCalls::take_token(char c, CallWriter& writer) {
  static constexpr std::array<std::string_view, 1> kBefore{kFunction};
  static constexpr std::array<std::string_view, 3> kInBody{kParameter, kEndOfFunction, kEndOfCall};
  static constexpr std::array<std::string_view, 2> kBehind{kFunction, kEndOfCall};
  if (token_.empty() && is_space(c)) return CallStep::more;
  const std::span<const std::string_view> tags = state_ == State::before ? std::span<const std::string_view>(kBefore)
                                                 : state_ == State::body ? std::span<const std::string_view>(kInBody)
                                                                         : std::span<const std::string_view>(kBehind);
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
  } else if (token_ == kEndOfCall) {
    if (state_ == State::body) end_function(writer);
    return CallStep::done;
  }
  return CallStep::more;
}

CallStep XmlCalls::take_name(char c, CallWriter& writer) {
  if (c == '>' && !name_.empty()) {
    if (!writer.open_call(name_, "")) return CallStep::fault;
    writer.arguments("{");
    tool_ = nullptr;
    if (tools_ != nullptr)
      for (const Tool& tool : *tools_)
        if (tool.name == name_) tool_ = &tool;
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
  kinds_ = tool_ == nullptr ? unsigned{kAllowsString} : kinds_of_parameter(*tool_, name_);
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

/// A value that is cut off stays so: its text is written, without a closing quote.
void XmlCalls::end(CallWriter& writer) {
  if (state_ != State::value || !writer.is_open()) return;
  if (is_string_) write_value(tail_, writer);
}

}  // namespace baton::parsers
