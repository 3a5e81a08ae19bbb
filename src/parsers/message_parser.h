/// The seam of parsers: from the text of an assistant's answer, as it streams, to content, reasoning and tool calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton::parsers {

/// A piece of an assistant's message, in the order of its text. The pieces of one kind and call, joined, do not depend
/// on how the text was cut.
struct MessagePiece {
  enum class Kind : std::uint8_t { content, reasoning, call, arguments };
  Kind kind = Kind::content;
  std::int32_t call = 0;  ///< of call and arguments: 0, 1, ... in the order of the calls
  std::string text =
      {};  ///< content, reasoning, or the next piece of a call's arguments (JSON text); of `call`: the function's name
  std::string id = {};  ///< of `call`: the id that the model wrote; mostly empty, then the server makes one

  friend bool operator==(const MessagePiece&, const MessagePiece&) = default;
};

/// Parses one answer. Text that may begin a marker is held back until that is decided, and all other text is returned
/// at once. Text that looks like a call and is none becomes content. Memory is bounded by the longest call; time is
/// linear in the text. Thread: one at a time.
class MessageParser {
 public:
  virtual ~MessageParser() = default;
  /// Appends the pieces that the next text makes certain. `text` may be cut anywhere, also inside of a character.
  virtual void take(std::string_view text, std::vector<MessagePiece>& pieces) = 0;
  /// Appends what was held back. The text has ended; nothing may be called behind it.
  virtual void end(std::vector<MessagePiece>& pieces) = 0;
};

}  // namespace baton::parsers
