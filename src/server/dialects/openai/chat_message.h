/// The JSON of a chat answer's message: whole, and as the deltas of a stream.
#pragma once

#include <set>
#include <span>
#include <string>

#include "core/resumable.h"
#include "parsers/message_parser.h"

namespace baton {

/// Appends the message that the pieces of a whole answer make: {"role", "content", "refusal"}, and as far as there are any
/// `reasoning_content`, the same as `reasoning` (vLLM's newer name), and `tool_calls`. `content` is null where there is
/// none beside calls or reasoning. Calls of tools in `custom` (null: none) have a text as `input`. All arguments must outlive the
/// function.
Resumable write_chat_message(std::span<const parsers::MessagePiece> pieces, const std::set<std::string>* custom,
                             std::string& out);

/// Appends the delta of a piece: {"content"}, {"reasoning_content", "reasoning"}, or {"tool_calls"} with the id and the
/// name of a call, or with the next piece of its arguments. `is_custom`: they are the text of a custom tool.
Resumable write_chat_delta(const parsers::MessagePiece& piece, bool is_custom, std::string& out);

}  // namespace baton
