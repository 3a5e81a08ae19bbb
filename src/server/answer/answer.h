/// An unfinished answer to one request: takes events of its sequences and returns frames or one response.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/resumable.h"
#include "engine/request/request.h"
#include "server/answer/writer.h"
#include "server/http/message.h"
#include "server/limits/budget.h"
#include "server/request/generation.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

/// Knows which choices are open and what may be sent; its writer knows the dialect. With `stream` there are frames as text
/// becomes certain; without, one response when all sequences have ended. A stream that echoes log-probabilities begins when
/// those of the whole prompt are known.
///
/// Thread: one at a time. The tokenizer must outlive it.
class Answer {
 public:
  Answer(AnswerHeader header, GenerationRequest request, std::vector<AnswerPrompt> prompts, const Tokenizer& tokenizer,
         const MakeAnswerWriter& make_writer);
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  /// The results of an event.
  struct Reaction {
    std::string frames;         ///< frames of a stream, to be sent; empty otherwise
    bool has_met_stop = false;  ///< the sequence's text met a stop string: the engine must be told
  };
  Reaction take(std::size_t prompt, const Event& event);

  /// Ends the answer because memory ran out: its response is a 503. Returns the last frames of a stream.
  std::string give_up();

  /// The answer if nothing is to be generated: the prompts themselves (max_tokens 0 with echo).
  std::string take_nothing();

  /// Keeps what its log-probabilities and its request take of budgets until its end.
  void keep(BudgetShare scores, BudgetShare request_bytes) {
    scores_share_ = std::move(scores);
    request_share_ = std::move(request_bytes);
  }

  /// See AnswerWriter.
  std::string_view waiting_frame() const { return writer_->waiting_frame(); }

  bool is_stream() const { return content_.request.is_stream; }
  bool is_done() const { return n_open_ == 0; }
  /// Whether an error has ended it; other sequences may still run.
  bool has_failed() const { return has_failed_; }
  /// The whole response of a finished answer that is not a stream.
  HttpResponse response();
  /// Whether that response takes so long to write that it is to be written in pieces, by another thread.
  bool is_large() const;
  /// A part of the body of a large response.
  struct Piece {
    std::string bytes;  ///< 128 to 256 KiB; the last one fewer
    bool is_last = false;
  };
  /// The next part. Not called after the last one.
  Piece next_piece();
  const AnswerHeader& header() const { return content_.header; }
  /// Its current `key=value` pairs for the log.
  std::string log_line() const;

 private:
  bool waits_for_scores(std::size_t prompt) const;
  void begin_echo(std::size_t prompt);
  std::string frames_of(std::size_t choice);
  struct Failure {
    int status = 500;
    std::string message;
    std::string param;  ///< the field whose mistake it is, or empty
  };
  Failure failure_of(const Event& event) const;
  std::string end_with_error(Failure failure);

  AnswerContent content_;
  std::vector<bool> has_echoed_;  // of each prompt: its choices have their echo, or need none
  std::size_t n_open_ = 0;        // choices
  bool has_failed_ = false;
  Failure failure_;  // of an answer that has failed
  bool was_aborted_ = false;
  BudgetShare scores_share_;
  BudgetShare request_share_;
  std::unique_ptr<AnswerWriter> writer_;
  std::string body_;                  // what is written of a large response, and not taken
  std::optional<Resumable> writing_;  // refers to body_ and *writer_
};

}  // namespace baton
