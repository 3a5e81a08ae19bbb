/// What holds for the pieces of every answer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "parsers/json_scanner.h"
#include "parsers/message_parser.h"

namespace baton::testing {

/// The text in parts of one to seven bytes, chosen by `seed`.
inline std::vector<std::string_view> cut(std::string_view text, std::size_t seed) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const std::size_t n_bytes = 1 + (seed >> 33) % 7;
    parts.push_back(text.substr(0, n_bytes));
    text.remove_prefix(std::min(text.size(), n_bytes));
  }
  return parts;
}

/// Ends the program unless the pieces are those of an answer: reasoning first and only where there may be some, calls in their order,
/// arguments that are the begin of a JSON text, and, without calls and reasoning, the text.
inline void check_pieces(const std::vector<parsers::MessagePiece>& pieces, std::string_view text, bool may_reason) {
  std::int32_t n_calls = 0;
  bool has_reasoning = false;
  std::string content;
  for (const parsers::MessagePiece& piece : pieces) {
    switch (piece.kind) {
      case parsers::MessagePiece::Kind::content: content += piece.text; break;
      case parsers::MessagePiece::Kind::reasoning:
        check(content.empty() && n_calls == 0, "reasoning behind content");
        has_reasoning = true;
        break;
      case parsers::MessagePiece::Kind::call:
        check(piece.call == n_calls++ && !piece.text.empty(), "a call out of order or without a name");
        break;
      case parsers::MessagePiece::Kind::arguments: {
        check(piece.call + 1 == n_calls, "arguments of no call");
        parsers::JsonScanner scanner;
        for (std::size_t i = 0; i < piece.text.size(); ++i) {
          const auto step = scanner.take(piece.text[i]);
          check(step == parsers::JsonScanner::Step::inside ||
                    (step == parsers::JsonScanner::Step::ends && i + 1 == piece.text.size()),
                "arguments that are no JSON");
        }
      }
    }
  }
  check(has_reasoning ? may_reason : true, "reasoning without a format");
  if (n_calls == 0 && !may_reason) check(content == text, "a text without calls has changed");
}

}  // namespace baton::testing
