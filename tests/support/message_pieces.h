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

/// Ends the program unless the arguments of a call are the begin of a JSON object, and a whole one if they are complete.
inline void check_arguments(const parsers::MessagePiece& piece) {
  parsers::JsonScanner scanner(parsers::JsonScanner::Form::exact);
  auto last = parsers::JsonScanner::Step::inside;
  for (const char c : piece.text) {
    check(last == parsers::JsonScanner::Step::inside, "text after arguments");
    last = scanner.take(c);
    check(last == parsers::JsonScanner::Step::inside || last == parsers::JsonScanner::Step::ends, "arguments that are no JSON");
  }
  check(piece.text.starts_with('{'), "arguments that are not an object");
  check(piece.is_complete == (last == parsers::JsonScanner::Step::ends),
        "arguments are complete that are not, or are not that are");
}

/// How an answer was parsed, as far as it bounds what there may be.
struct CheckedAnswer {
  std::string_view text;
  bool may_reason = false;
  bool is_natural = true;
  bool demands_calls = false;
  bool is_whole = false;
  bool is_harmony = false;
};

/// Ends the program unless the pieces are those of an answer: reasoning first and only where there may be some, calls in their order,
/// arguments as above, complete ones in an answer in one piece that the model has ended, no content beside demanded calls, and, without
/// calls and reasoning, the text. In harmony reasoning may come later, and the text has headers.
inline void check_pieces(const std::vector<parsers::MessagePiece>& pieces, const CheckedAnswer& answer) {
  constexpr std::size_t kMaxHeld = std::size_t{1} << 20;
  std::int32_t n_calls = 0;
  bool has_reasoning = false;
  std::string content;
  for (const parsers::MessagePiece& piece : pieces) {
    switch (piece.kind) {
      case parsers::MessagePiece::Kind::content: content += piece.text; break;
      case parsers::MessagePiece::Kind::reasoning:
        check(answer.is_harmony || (content.empty() && n_calls == 0), "reasoning after content");
        has_reasoning = true;
        break;
      case parsers::MessagePiece::Kind::call:
        check(piece.call == n_calls++ && !piece.text.empty(), "a call out of order or without a name");
        break;
      case parsers::MessagePiece::Kind::arguments:
        check(piece.call + 1 == n_calls, "arguments of no call");
        check_arguments(piece);
        check(piece.is_complete || !answer.is_whole || !answer.is_natural || piece.text.size() > kMaxHeld / 2,
              "a broken call in one piece");
    }
  }
  check(!has_reasoning || answer.may_reason, "reasoning without a format");
  check(content.empty() || !answer.demands_calls, "content beside demanded calls");
  if (n_calls == 0 && !answer.is_harmony && !answer.may_reason && answer.is_natural && !answer.demands_calls)
    check(content == answer.text, "a text without calls has changed");
}

}  // namespace baton::testing
