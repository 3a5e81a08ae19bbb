/// Values of arguments that stand as text in a call, as JSON of the kinds that the tool's schema allows.
#pragma once

#include <string>
#include <string_view>

#include "parsers/argument_kinds.h"
#include "parsers/call_writer.h"

namespace baton::parsers {

/// `text` as a JSON string.
std::string json_quoted(std::string_view text);

/// The value of a parameter as JSON: what `text` says in JSON, which is mended, or as a list or dict of Python, if `kinds` allow that
/// kind, and otherwise a string.
std::string typed_value(std::string_view text, unsigned kinds);

/// Writes one value after the other. Strings are written as they come, other values when they are complete.
class TypedValueWriter {
 public:
  /// A value of `kinds` begins.
  void begin(unsigned kinds, CallWriter& writer);
  void write(std::string_view text, CallWriter& writer);
  void end(CallWriter& writer);
  /// Whether what was written so far has gone to the writer.
  bool is_string() const { return is_string_; }

 private:
  unsigned kinds_ = kAllowsString;
  bool is_string_ = true;
  std::string text_;  // of one that is not
};

}  // namespace baton::parsers
