/// Decodes tokens, and handles the ways in which a choice ends.
#include "server/answer_choice.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace baton {

AnswerChoice::AnswerChoice(const GenerationRequest& request, const AnswerPrompt& prompt, const Tokenizer& tokenizer)
    : request_(request),
      decoder_(tokenizer, request.stop, request.include_stop, request.skip_special_tokens, request.sampling.min_tokens),
      text_(prompt.echo) {
  decoder_.follow(prompt.tokens);
}

void AnswerChoice::end(FinishReason reason, StopReason stop_reason) {
  check(!finish_, "a choice ends once");
  finish_ = reason;
  stop_reason_ = std::move(stop_reason);
}

void AnswerChoice::clear() {
  text_.clear();
  tokens_.clear();
  echoed_.reset();
}

/// Adds text; true if it met a stop string, which ends the choice.
bool AnswerChoice::add(StreamDecoder::Piece piece) {
  text_ += piece.text;
  if (!piece.stop) return false;
  end(FinishReason::stop, std::move(*piece.stop));
  return true;
}

/// Ends the choice as an event that ended the sequence says.
void AnswerChoice::finish(const Event& event) {
  n_tokens_ = event.stats.completion_tokens;
  if (event.stop_token) {
    tokens_.push_back(*event.stop_token);
    if (request_.include_stop && add(decoder_.push(event.stop_token->token))) return;
  }
  if (add(decoder_.finish())) return;
  // Clients do not know these reasons: the answer gives the nearest one, and `stop_reason` the real one.
  if (event.finished == FinishReason::deadline) return end(FinishReason::abort, "deadline");
  if (event.finished == FinishReason::abort) return end(FinishReason::abort, "shutdown");
  const SharedList<TokenId>& asked = request_.sampling.stop_ids;
  const bool is_asked_for = event.stop_token && std::ranges::find(asked, event.stop_token->token) != asked.end();
  end(*event.finished, is_asked_for ? StopReason(event.stop_token->token) : StopReason());
}

bool AnswerChoice::take(const Event& event) {
  if (has_ended()) return false;
  stats_ = event.stats;
  for (const TokenOutput& token : event.tokens) {
    ++n_tokens_;
    tokens_.push_back(token);
    if (add(decoder_.push(token.token))) return !event.finished;
  }
  if (event.finished) finish(event);
  return false;
}

}  // namespace baton
