/// The formats of JSON Schema as regular expressions.
#pragma once

#include <string>
#include <string_view>

namespace baton::grammar {

enum class FormatUse {
  checked,     ///< there is an expression for it
  refused,     ///< defined by JSON Schema, and not supported
  annotation,  ///< any other name: it says nothing about the text
};

struct StringFormat {
  FormatUse use = FormatUse::annotation;
  std::string regex = {};  ///< of the whole text
};

/// date (with leap years), time and date-time (any minute may have a 60th second), duration, email (no quoted local
/// parts), hostname (labels of at most 63 characters, not checked as IDNA), ipv4, ipv6, uri, uri-reference, uuid,
/// json-pointer, relative-json-pointer.
StringFormat string_format(std::string_view name);

}  // namespace baton::grammar
