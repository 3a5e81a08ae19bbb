/// The place of a parser in the text of a grammar or regular expression.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace baton::grammar {

/// The most bytes of a name in a message.
inline constexpr std::size_t kMaxQuotedBytes = 200;

/// A text of which the front is read, and errors that say where.
class SourceCursor {
 public:
  /// The message of an error: `read` is the text before it, `what` says what is wrong there ("has a '(' without ')'").
  using Message = std::string (*)(std::string_view read, std::string_view what);

  /// `text` must outlive it.
  SourceCursor(std::string_view text, Message message) : rest(text), text_(text), message_(message) {}

  /// What is not read yet; parsers shorten it from the front, or set it back.
  std::string_view rest;

  /// Reads `expected` if it stands here.
  bool take(std::string_view expected);
  /// Reads the decimal digits that stand here; at most kMaxRepeat + 1. nullopt where there is none.
  std::optional<int> take_count();
  /// Reads a code point of `n_digits` hexadecimal digits. Errors: invalid_request for other characters and large numbers.
  Result<char32_t> take_hex(std::size_t n_digits);

  tl::unexpected<Error> error(ErrorCode code, std::string_view what) const;
  tl::unexpected<Error> invalid(std::string_view what) const { return error(ErrorCode::invalid_request, what); }
  tl::unexpected<Error> unsupported(std::string_view what) const;

 private:
  const std::string_view text_;
  const Message message_;
};

}  // namespace baton::grammar
