/// How an answer is written for its client: the interface that each dialect implements, and what it writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/resumable.h"
#include "engine/request/request.h"
#include "server/answer/choice.h"
#include "server/http/message.h"
#include "server/request/generation.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

/// The fields that describe an answer.
struct AnswerHeader {
  bool is_chat = false;
  std::string id;            ///< "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;  ///< Unix time in seconds
  std::string model;
  std::string system_fingerprint;
};

/// The content of an answer. Choice `prompt * n + index` is the prompt's sequence `index`.
struct AnswerContent {
  AnswerHeader header;
  GenerationRequest request;
  std::vector<AnswerPrompt> prompts;
  std::vector<std::vector<TokenOutput>> scores;  ///< of each prompt's tokens except the first
  std::vector<AnswerChoice> choices;

  std::size_t n_choices() const { return prompts.size() * static_cast<std::size_t>(request.n); }
  std::size_t prompt_of(std::size_t choice) const { return choice / static_cast<std::size_t>(request.n); }
};

/// Writes one answer, either as the frames of a stream (server-sent events) or as the body of a response in one piece.
/// Thread: one at a time.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  /// Frames for the unsent part of a choice. `is_last`: no other choice is open.
  virtual std::string choice_frames(std::size_t index, bool is_last) = 0;
  /// The frames after those of all choices.
  virtual std::string last_frames() = 0;
  /// What a stream says while it waits, so that no proxy takes it for dead: a comment, which clients skip.
  virtual std::string_view waiting_frame() const { return ": waiting\n\n"; }
  /// The frames of an error in a stream that has begun. They end it. `param`: the field whose mistake it is, or empty.
  virtual std::string error_frames(int status, std::string_view message, std::string_view param) = 0;

  /// Appends the body of a response in one piece to `out`, in steps of at most 128 KiB. What is there between two steps
  /// may be taken out.
  virtual Resumable write_response(std::string& out) = 0;
  /// An estimate of its length.
  virtual std::size_t response_bytes() const = 0;
  /// The response to a request that failed before anything was sent.
  virtual HttpResponse error(int status, std::string_view message, std::string_view param) = 0;
};

/// Makes the writer of an answer's dialect. The content, whose choices may be added later, and the tokenizer outlive the
/// writer.
using MakeAnswerWriter = std::function<std::unique_ptr<AnswerWriter>(const AnswerContent& content, const Tokenizer& tokenizer)>;

}  // namespace baton
