/// Reading from the front of a text.
#include "grammar/automaton/source_cursor.h"

#include <algorithm>

#include <fmt/format.h>

#include "grammar/automaton/char_ranges.h"
#include "grammar/automaton/expression.h"

namespace baton::grammar {

bool SourceCursor::take(std::string_view expected) {
  if (!rest.starts_with(expected)) return false;
  rest.remove_prefix(expected.size());
  return true;
}

std::optional<int> SourceCursor::take_count() {
  std::optional<int> value;
  for (; !rest.empty() && rest[0] >= '0' && rest[0] <= '9'; rest.remove_prefix(1))
    value = std::min(value.value_or(0) * 10 + (rest[0] - '0'), kMaxRepeat + 1);
  return value;
}

Result<char32_t> SourceCursor::take_hex(std::size_t n_digits) {
  char32_t value = 0;
  for (std::size_t i = 0; i < n_digits; ++i) {
    const auto digit = rest.empty() ? std::string_view::npos : std::string_view("0123456789abcdef").find(rest[0] | 0x20);
    if (digit == std::string_view::npos) return invalid("has an escape without its hexadecimal digits");
    value = value * 16 + static_cast<char32_t>(digit);
    rest.remove_prefix(1);
  }
  if (value > kLastCodePoint) return invalid("has a code point over U+10FFFF");
  return value;
}

tl::unexpected<Error> SourceCursor::error(ErrorCode code, std::string_view what) const {
  return fail(code, message_(text_.substr(0, text_.size() - rest.size()), what));
}

tl::unexpected<Error> SourceCursor::unsupported(std::string_view what) const {
  return error(ErrorCode::unsupported, fmt::format("has {}, which is not supported", what));
}

}  // namespace baton::grammar
