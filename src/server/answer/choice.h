/// One choice of an answer: turns a sequence's events into the pieces of a message, tokens and the reason of its end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/shared_list.h"
#include "engine/request/request.h"
#include "parsers/message_parser.h"
#include "server/request/generation.h"
#include "text/tokenizer/stream_decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

/// One prompt of the request, as the engine gets it.
struct AnswerPrompt {
  SharedList<TokenId> tokens;
  std::string echo;  ///< the text with which each of its choices begins
};

/// Decodes one sequence. The request and the tokenizer must outlive it. Thread: one at a time.
class AnswerChoice {
 public:
  /// The reason of the end beside the finish reason: a stop string, a word, the requested stop token, or nothing.
  using StopReason = std::variant<std::monostate, std::string, TokenId>;

  AnswerChoice(const GenerationRequest& request, const AnswerPrompt& prompt, const Tokenizer& tokenizer);

  /// Adds an event's tokens, and the pieces of their text up to a stop string. The stop token has an id and
  /// log-probabilities like the others; its text appears with `include_stop_str_in_output` only. True if the text met
  /// a stop string, or a second call where one is allowed, before the sequence ended: the engine must be told. Once it
  /// has ended, events change nothing.
  bool take(const Event& event);
  /// Ends it without an event. Call it once.
  void end(FinishReason reason, StopReason stop_reason);
  /// Puts the prompt's tokens, which the choices of a prompt share, before its own, so that their log-probabilities are
  /// shown.
  void echo(std::shared_ptr<const std::vector<TokenOutput>> prompt_tokens) { echoed_ = std::move(prompt_tokens); }
  /// Forgets pieces and tokens that have been sent.
  void clear();

  /// Since the last `clear`: the message's pieces, neighbours of one kind and call as one, and each `call` with an id;
  /// the sequence's tokens with the stop token; the prompt's tokens. Without a parser there is one piece of content.
  std::span<const parsers::MessagePiece> pieces() const { return pieces_; }
  /// The content of an answer without a parser.
  const std::string& text() const;
  const std::vector<TokenOutput>& tokens() const { return tokens_; }
  std::span<const TokenOutput> echoed() const {
    return echoed_ ? std::span<const TokenOutput>(*echoed_) : std::span<const TokenOutput>();
  }

  std::int32_t n_tokens() const { return n_tokens_; }                      ///< of all that was generated
  std::int32_t n_reasoning_tokens() const { return n_reasoning_tokens_; }  ///< those of them that are reasoning
  std::int32_t n_calls() const { return n_calls_; }
  /// Whether it has calls, and the arguments of each are complete JSON.
  bool has_complete_calls() const { return n_calls_ > 0 && n_complete_calls_ == n_calls_; }
  /// Whether it has a call whose arguments were begun and do not end. It has ended.
  bool has_broken_call() const { return n_complete_calls_ < n_calls_; }
  bool has_ended() const { return finish_.has_value(); }
  std::optional<FinishReason> finish() const { return finish_; }
  /// The reason of the end as clients get it: "tool_calls" where a message that is complete has calls, which are complete too,
  /// unless the request named the tool. It has ended.
  std::string_view finish_word() const;
  const StopReason& stop_reason() const { return stop_reason_; }
  const SequenceStats& stats() const { return stats_; }  ///< as of the last event

 private:
  bool add(StreamDecoder::Piece piece);
  bool add_pieces(std::vector<parsers::MessagePiece> pieces);
  bool end_message(parsers::TextEnd how);
  void append(parsers::MessagePiece piece);
  void count_reasoning(std::span<const parsers::MessagePiece> pieces);
  void finish(const Event& event);

  const GenerationRequest& request_;
  StreamDecoder decoder_;
  std::unique_ptr<parsers::MessageParser> parser_;  // null: all text is content
  std::vector<parsers::MessagePiece> pieces_;
  std::int32_t n_calls_ = 0;
  std::int32_t n_complete_calls_ = 0;
  // A token belongs to the piece that it completes, and one after the last piece to that.
  bool is_reasoning_ = false;
  std::int32_t n_undecided_tokens_ = 0;
  std::int32_t n_reasoning_tokens_ = 0;
  std::vector<TokenOutput> tokens_;
  std::shared_ptr<const std::vector<TokenOutput>> echoed_;
  std::int32_t n_tokens_ = 0;
  std::optional<FinishReason> finish_;
  StopReason stop_reason_;
  SequenceStats stats_;
};

}  // namespace baton
