/// The JSON of answers of the Anthropic dialect: the events of a stream, and a message in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "io/json.h"
#include "parsers/message_parser.h"
#include "server/answer/writer.h"

namespace baton {

/// What the writer of a message needs beside the answer.
struct MessagesPlan {
  std::int32_t n_marked = 0;  ///< tokens of the prompt up to the last `cache_control`
  bool has_context_management =
      false;                        ///< the request asks for edits of the conversation; the answer says that there were none
  std::function<void()> keep = {};  ///< called when the answer is complete and its prompt is in the cache; may be empty
};

/// Writes the answer to one request of /v1/messages, which has one choice. A stream is message_start, then for each block
/// content_block_start, deltas and content_block_stop, then message_delta and message_stop. Usage: `input_tokens` are those
/// that were neither read from the cache nor, below the last `cache_control`, put into it.
/// Thread: one at a time.
class MessagesWriter final : public AnswerWriter {
 public:
  /// The content must outlive it.
  MessagesWriter(const AnswerContent& content, MessagesPlan plan) : content_(content), plan_(std::move(plan)) {}

  std::string choice_frames(std::size_t index, bool is_last) override;
  std::string last_frames() override;
  std::string_view waiting_frame() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }
  std::string error_frames(int status, std::string_view message, std::string_view param) override;
  Resumable write_response(std::string& out) override;
  std::size_t response_bytes() const override;
  HttpResponse error(int status, std::string_view message, std::string_view param) override;

 private:
  json::Value usage() const;
  json::Value start_message() const;
  std::string begin_block(const parsers::MessagePiece& piece);
  std::string end_block();
  std::string piece_frames(const parsers::MessagePiece& piece);

  const AnswerContent& content_;
  const MessagesPlan plan_;
  bool has_begun_ = false;
  bool has_pinged_ = false;
  bool has_failed_ = false;
  // The block that is open, and how many there were before it.
  bool is_open_ = false;
  parsers::MessagePiece::Kind kind_ = parsers::MessagePiece::Kind::content;
  std::int32_t n_blocks_ = 0;
};

}  // namespace baton
