/// The JSON of answers to chat and plain completions: frames of a stream, and responses in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/resumable.h"
#include "engine/request.h"
#include "io/json.h"
#include "server/answer_choice.h"
#include "server/openai_request.h"
#include "text/tokenizer.h"

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

/// Writes an answer, whose choices may be added after the writer was made. The content and the tokenizer must outlive
/// it. Thread: one at a time.
class AnswerWriter {
 public:
  AnswerWriter(const AnswerContent& content, const Tokenizer& tokenizer);

  /// Frames for the unsent part of a choice: the role first, text, the finish reason. `is_last`: no other choice is
  /// open.
  std::string choice_frames(std::size_t index, bool is_last);
  /// The frames after those of all choices: the usage if asked for, and [DONE].
  std::string last_frames() const;
  /// The body of a response in one piece.
  std::string response();
  /// Appends the same to `out` in steps of at most 128 KiB. What is there between two steps may be taken out.
  Resumable write_response(std::string& out);
  /// An estimate of its length.
  std::size_t response_bytes() const;

  /// The frames of an error in a stream that has begun, and [DONE].
  static std::string error_frames(int status, std::string_view message);

 private:
  /// The state of a choice between frames.
  struct Written {
    bool has_begun = false;
    std::size_t text_offset = 0;  // of completions' log-probabilities, in characters
    // The parts of each of its frames before and after the text; made with the first frame.
    std::string front;
    std::string back;
  };

  Resumable write_logprobs(std::size_t index, std::string& out);
  Resumable write_choice(std::size_t index, std::string_view text, std::string& out);
  json::Value usage() const;
  json::Value stats() const;
  std::string frame(std::string_view choices, bool has_usage, bool has_stats) const;
  bool differs_in_text_alone() const;
  std::string first_frame(std::size_t index) const;
  std::string text_frame(std::size_t index);
  std::string finish_frame(std::size_t index, bool has_stats) const;

  const AnswerContent& content_;
  const Tokenizer& tokenizer_;
  std::vector<Written> written_;  // of each choice
};

}  // namespace baton
