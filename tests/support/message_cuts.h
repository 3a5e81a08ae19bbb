/// Messages parsed in pieces, for comparison with the whole.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/message_format.h"

namespace baton::testing {

/// Pieces, where neighbours of one kind and call are one.
inline std::vector<parsers::MessagePiece> merged(const std::vector<parsers::MessagePiece>& pieces) {
  std::vector<parsers::MessagePiece> all;
  for (const parsers::MessagePiece& piece : pieces) {
    if (!all.empty() && piece.kind != parsers::MessagePiece::Kind::call && all.back().kind == piece.kind &&
        all.back().call == piece.call) {
      all.back().text += piece.text;
      all.back().is_complete |= piece.is_complete;
    } else {
      all.push_back(piece);
    }
  }
  return all;
}

/// What a parser makes of the texts.
inline std::vector<parsers::MessagePiece> parsed(std::unique_ptr<parsers::MessageParser> parser,
                                                 const std::vector<std::string_view>& texts,
                                                 parsers::TextEnd end = parsers::TextEnd::natural) {
  std::vector<parsers::MessagePiece> pieces;
  for (const std::string_view text : texts) parser->take(text, pieces);
  parser->end(end, pieces);
  return merged(pieces);
}

}  // namespace baton::testing
