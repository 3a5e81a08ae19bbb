/// The JSON of answers to chat and plain completions: frames of a stream, and responses in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/resumable.h"
#include "io/json.h"
#include "parsers/message_parser.h"
#include "server/answer/writer.h"
#include "server/request/tool_fields.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

/// Writes answers to chat and plain completions. A stream has for each chat choice a frame with the role, then one for
/// each piece of the message, the finish reason, and after those of all choices the usage if asked for, and [DONE],
/// which also follows an error. Thread: one at a time.
class OpenaiWriter final : public AnswerWriter {
 public:
  /// The content, whose choices may be added later, and the tokenizer must outlive it.
  OpenaiWriter(const AnswerContent& content, const Tokenizer& tokenizer);
  /// The same, for an Answer.
  static std::unique_ptr<AnswerWriter> make(const AnswerContent& content, const Tokenizer& tokenizer);

  std::string choice_frames(std::size_t index, bool is_last) override;
  std::string last_frames() override;
  std::string error_frames(int status, std::string_view message, std::string_view param) override;
  Resumable write_response(std::string& out) override;
  std::size_t response_bytes() const override;
  HttpResponse error(int status, std::string_view message, std::string_view param) override;

 private:
  /// The state of a choice between frames.
  struct Written {
    bool has_begun = false;
    std::size_t text_offset = 0;  // of completions' log-probabilities, in characters
    // The parts of each of its frames of content before and after the text; made with the first of them.
    std::string front;
    std::string back;
    std::map<std::int32_t, CustomInput> custom = {};  // of its calls of custom tools, by their places
  };

  Resumable write_logprobs(std::size_t index, std::string& out);
  Resumable write_message(std::size_t index, const parsers::MessagePiece& piece, std::string& out) const;
  Resumable write_choice(std::size_t index, const parsers::MessagePiece& piece, bool has_tokens, std::string& out);
  json::Value usage() const;
  json::Value stats() const;
  std::string frame(std::string_view choices, bool has_usage, bool has_stats) const;
  bool differs_in_text_alone() const;
  std::string first_frame(std::size_t index) const;
  std::string custom_frames(std::size_t index, const parsers::MessagePiece& piece, bool& has_tokens);
  std::string piece_frame(std::size_t index, const parsers::MessagePiece& piece, bool has_tokens);
  std::string finish_frame(std::size_t index, bool has_stats) const;

  const AnswerContent& content_;
  const Tokenizer& tokenizer_;
  std::vector<Written> written_;  // of each choice
};

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
