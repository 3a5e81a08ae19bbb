/// Values as text: Python's str and repr, and JSON as Python's json.dumps writes it.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "jinja/value.h"

namespace baton::jinja {

/// str(value): a view of a string itself; anything else is written into the arena. Undefined is empty.
Value to_text(Arena& arena, Value value);
/// `text` with & < > " ' as HTML entities, marked as markup; markup stays as it is.
Value escape_html(Arena& arena, Value text);
/// repr(value), and repr of a string with Python's choice of quotes.
std::string represent(Arena& arena, Value value);
std::string represent(std::string_view text);
/// Python's repr of a float: the shortest digits that read back the same.
std::string float_text(double value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multi_line = false;  ///< one element per line, each level indented by `indent`
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// Errors (invalid_request) name a value that JSON cannot hold.
Result<Value> to_json(Arena& arena, Value value, const JsonStyle& style);

}  // namespace baton::jinja
