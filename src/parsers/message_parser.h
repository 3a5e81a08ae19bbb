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
  /// Of `arguments`: with them the call's arguments are a complete JSON object. No others follow.
  bool is_complete = false;

  friend bool operator==(const MessagePiece&, const MessagePiece&) = default;
};

/// Whether the model has ended the text, or something else has: a stop text, a length, a deadline, the server's end.
enum class TextEnd : std::uint8_t { natural, cut };

/// Parses one answer. Text that may begin a marker is held back until that is decided, and all other text is returned
/// at once. Text that looks like a call and is none becomes content. Memory is bounded by the longest call; time is
/// linear in the text. Thread: one at a time.
class MessageParser {
 public:
  virtual ~MessageParser() = default;
  /// Appends the pieces that the next text makes certain. `text` may be cut anywhere, also inside of a character.
  virtual void take(std::string_view text, std::vector<MessagePiece>& pieces) = 0;
  /// Appends what was held back. The text has ended; nothing may be called after it.
  virtual void end(TextEnd how, std::vector<MessagePiece>& pieces) = 0;
};

}  // namespace baton::parsers
