/// The answer to one request in the making: events of its sequences in, frames or one response out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "io/json.h"
#include "server/http_message.h"
#include "server/openai_request.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace baton {

/// What an answer says about itself and its prompts.
struct AnswerHeader {
  bool is_chat = false;
  std::string id;            ///< "chatcmpl-..." or "cmpl-..."
  std::int64_t created = 0;  ///< Unix time in seconds
  std::string model;
  std::string system_fingerprint;
};

/// One prompt of the request, as the engine gets it.
struct AnswerPrompt {
  std::vector<TokenId> tokens;
  std::string echo;  ///< text that each of its choices begins with
};

/// Choice `prompt * n + index` is the prompt's sequence `index`. With `stream` the frames are server-sent events: for each chat
/// choice one with the role, then text as it becomes certain, one with the finish reason; after all of them the usage if asked
/// for, and [DONE], which also follows an error. Without, one response when all sequences have ended. A stream that echoes
/// log-probabilities begins when those of the whole prompt are known.
///
/// Thread: one at a time. The tokenizer must outlive it.
class Answer {
 public:
  Answer(AnswerHeader header, GenerationRequest request, std::vector<AnswerPrompt> prompts, const Tokenizer& tokenizer);

  /// What follows from an event.
  struct Reaction {
    std::string frames;         ///< of a stream, to be sent; empty otherwise
    bool has_met_stop = false;  ///< the sequence's text met a stop string: the engine must be told
  };
  Reaction take(std::size_t prompt, const Event& event);

  /// The answer where nothing is to be generated: the prompts themselves (max_tokens 0 with echo).
  std::string take_nothing();

  bool is_stream() const { return request_.is_stream; }
  bool is_done() const { return n_open_ == 0; }
  /// Whether an engine error ended it while other sequences may still run.
  bool has_failed() const { return has_failed_; }
  /// The whole response of an answer that is done and no stream.
  HttpResponse response();
  const AnswerHeader& header() const { return header_; }
  /// What the log is told of it: `key=value`, as of now.
  std::string log_line() const;

 private:
  struct Choice {
    Choice(StreamDecoder decoder, std::string echo) : decoder(std::move(decoder)), text(std::move(echo)) {}

    StreamDecoder decoder;
    std::string text;                 // all of it; of a stream only what the current event added
    std::vector<TokenOutput> tokens;  // the same; with the stop token
    std::vector<TokenOutput> echoed;  // of the prompt, to stand before them where log-probabilities are shown
    std::size_t text_offset = 0;      // of completions' log-probabilities
    std::int32_t n_tokens = 0;
    std::optional<FinishReason> finish;
    json::Value stop_reason = nullptr;
    SequenceStats stats;
    bool has_begun = false;
    // What stands before and behind the text in each of its frames; made with the first.
    std::string frame_front;
    std::string frame_back;
  };

  void decode(Choice& choice, const Event& event, Reaction& reaction);
  bool waits_for_scores(std::size_t prompt) const;
  void begin_echo(std::size_t prompt);
  void end(Choice& choice, FinishReason reason, json::Value stop_reason);
  std::string end_with_error();
  json::Value logprobs(Choice& choice) const;
  json::Value text_choice(Choice& choice, std::size_t index) const;
  json::Value usage() const;
  json::Value stats() const;
  std::string frame(json::Value choices, bool has_usage, bool has_stats) const;
  bool differs_in_text_alone() const;
  std::string text_frame(std::size_t index);
  std::string choice_frames(std::size_t index);
  std::string last_frames() const;

  AnswerHeader header_;
  GenerationRequest request_;
  std::vector<AnswerPrompt> prompts_;
  const Tokenizer& tokenizer_;
  std::vector<Choice> choices_;
  std::vector<std::vector<TokenOutput>> scores_;  ///< of each prompt's tokens but the first
  std::vector<bool> has_echoed_;                  ///< of each prompt: its choices have their echo, or need none
  std::size_t n_open_ = 0;
  bool has_failed_ = false;
  bool was_aborted_ = false;
};

}  // namespace baton
