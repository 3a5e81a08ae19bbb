/// Splits a template into tokens, with Jinja's whitespace control.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace baton::jinja {

enum class TokenKind : std::uint8_t {
  data,
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,
  integer,
  floating,
  op,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  ///< data, a name, an operator, a string after escapes, a number without underscores
};

/// How whitespace around tags is treated; Transformers sets both.
struct LexOptions {
  bool trim_blocks = true;    ///< the newline after a block or comment is dropped
  bool lstrip_blocks = true;  ///< blanks before a block or comment at the start of a line are dropped
};

/// The tokens of `source`, ended by one of kind `end`. Errors (invalid_data) name the line. Newlines become \n, one at
/// the end is dropped, as Jinja does.
Result<std::vector<Token>> tokenize(std::string_view source, LexOptions options);

}  // namespace baton::jinja
