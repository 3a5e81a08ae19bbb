/// Appends JSON to a text without making values of it.
#pragma once

#include <string>
#include <string_view>

#include "core/resumable.h"
#include "io/json.h"

namespace baton {

/// Writes an object of JSON. Large parts of answers are appended to the text; as Values they would take many times as
/// much memory. The text must outlive it.
class JsonObjectWriter {
 public:
  explicit JsonObjectWriter(std::string& out) : out_(out) { out_ += '{'; }
  /// After this the member's value is to be appended. The name needs no escapes.
  void key(std::string_view name);
  void add(std::string_view name, const json::Value& value);
  void end() { out_ += '}'; }

 private:
  std::string& out_;
  bool is_empty_ = true;
};

/// Appends the characters of a string of JSON, without its quotes, in steps of 16 KiB. `text` is UTF-8; both must outlive
/// the function.
Resumable write_json_characters(std::string_view text, std::string& out);
/// Appends a string of JSON, in steps of 16 KiB. `text` is UTF-8; both must outlive the function.
Resumable write_json_string(std::string_view text, std::string& out);

}  // namespace baton
