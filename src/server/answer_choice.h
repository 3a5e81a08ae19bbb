/// One choice of an answer: turns a sequence's events into text, tokens and the reason of its end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/shared_list.h"
#include "engine/request.h"
#include "server/openai_request.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

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

  /// Adds an event's tokens, and their text to the text, up to a stop string. The stop token has an id and
  /// log-probabilities like the others; its text appears with `include_stop_str_in_output` only. True if the text met
  /// a stop string before the sequence ended: the engine must be told. Once it has ended, events change nothing.
  bool take(const Event& event);
  /// Ends it without an event. Call it once.
  void end(FinishReason reason, StopReason stop_reason);
  /// Puts the prompt's tokens, which the choices of a prompt share, before its own, so that their log-probabilities are
  /// shown.
  void echo(std::shared_ptr<const std::vector<TokenOutput>> prompt_tokens) { echoed_ = std::move(prompt_tokens); }
  /// Forgets text and tokens that have been sent.
  void clear();

  /// Since the last `clear`: the final text, the sequence's tokens with the stop token, the prompt's tokens.
  const std::string& text() const { return text_; }
  const std::vector<TokenOutput>& tokens() const { return tokens_; }
  std::span<const TokenOutput> echoed() const {
    return echoed_ ? std::span<const TokenOutput>(*echoed_) : std::span<const TokenOutput>();
  }

  std::int32_t n_tokens() const { return n_tokens_; }  ///< of all that was generated
  bool has_ended() const { return finish_.has_value(); }
  std::optional<FinishReason> finish() const { return finish_; }
  const StopReason& stop_reason() const { return stop_reason_; }
  const SequenceStats& stats() const { return stats_; }  ///< as of the last event

 private:
  bool add(StreamDecoder::Piece piece);
  void finish(const Event& event);

  const GenerationRequest& request_;
  StreamDecoder decoder_;
  std::string text_;
  std::vector<TokenOutput> tokens_;
  std::shared_ptr<const std::vector<TokenOutput>> echoed_;
  std::int32_t n_tokens_ = 0;
  std::optional<FinishReason> finish_;
  StopReason stop_reason_;
  SequenceStats stats_;
};

}  // namespace baton
