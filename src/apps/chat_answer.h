/// An answer as `baton chat` shows it and keeps it: text at once, calls of tools as calls.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "parsers/message_parser.h"

namespace baton {

/// Writes the pieces of one answer as they come. Text appears as it is. Reasoning stands in front of it, after
/// "[reasoning] ". A call takes a line of its own, `[call] plan_trip(city="Paris", days=3)`: the name appears at once, and
/// the arguments when they are complete. Thread: one at a time.
class ChatAnswer {
 public:
  using Write = std::function<void(std::string_view text)>;

  explicit ChatAnswer(Write write) : write_(std::move(write)) {}

  void take(std::span<const parsers::MessagePiece> pieces);
  /// Ends the last call and the last line. Call it once, after the last piece.
  void end();

  /// The assistant's message, for the next turn. Calls whose arguments the end of the answer has cut are left out.
  json::Value message() const;

 private:
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
    bool is_complete = false;
  };
  void begin(parsers::MessagePiece::Kind kind);
  void end_call();

  const Write write_;
  std::string text_;
  std::string reasoning_;
  std::vector<Call> calls_;
  bool has_shown_ = false;
  parsers::MessagePiece::Kind shown_ = parsers::MessagePiece::Kind::content;  // the kind of the last piece
};

}  // namespace baton
