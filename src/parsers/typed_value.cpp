/// Chooses the kind of a value by its text.
#include "parsers/typed_value.h"

#include <optional>
#include <utility>

#include "parsers/json_scanner.h"
#include "parsers/python_calls.h"

namespace baton::parsers {
namespace {

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

std::string json_quoted(std::string_view text) {
  std::string json = "\"";
  append_json_escaped(json, text);
  return json + "\"";
}

std::string typed_value(std::string_view text, unsigned kinds) {
  const unsigned others = kinds & ~unsigned{kAllowsString};
  for (const auto& read : {mended_json, json_of_python}) {
    const std::optional<std::string> value = read(text);
    if (value && (kind_of_json(*value) & others) != 0) return *value;
  }
  return json_quoted(text);
}

void TypedValueWriter::begin(unsigned kinds, CallWriter& writer) {
  kinds_ = kinds;
  is_string_ = kinds_ == kAllowsString;
  if (is_string_) writer.arguments("\"");
  text_.clear();
}

void TypedValueWriter::write(std::string_view text, CallWriter& writer) {
  constexpr std::size_t kMaxValue = CallWriter::kMaxHeld;
  if (!is_string_) {
    text_ += text;
    if (text_.size() <= kMaxValue) return;
    is_string_ = true;  // too long to be looked at
    writer.arguments("\"");
    write(std::exchange(text_, {}), writer);
    return;
  }
  std::string json;
  append_json_escaped(json, text);
  writer.arguments(json);
}

void TypedValueWriter::end(CallWriter& writer) { writer.arguments(is_string_ ? "\"" : typed_value(text_, kinds_)); }

}  // namespace baton::parsers
