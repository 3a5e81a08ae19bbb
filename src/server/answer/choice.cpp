/// Decodes and parses tokens, and handles the ways in which a choice ends.
#include "server/answer/choice.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "server/request/stamp.h"

namespace baton {

using parsers::MessagePiece;
using parsers::TextEnd;

AnswerChoice::AnswerChoice(const GenerationRequest& request, const AnswerPrompt& prompt, const Tokenizer& tokenizer)
    : request_(request),
      decoder_(tokenizer, request.stop, request.include_stop, request.skip_special_tokens, request.sampling.min_tokens),
      is_reasoning_(request.reading.begins_in_reasoning) {
  decoder_.follow(prompt.tokens);
  const MessageReading& reading = request.reading;
  if (reading.format != nullptr) {
    decoder_.show(reading.markers);
    parser_ = reading.format->parser({.tools = reading.tools,
                                      .begins_in_reasoning = reading.begins_in_reasoning,
                                      .begins_in_content = reading.begins_in_content,
                                      .has_calls_first = reading.has_calls_first,
                                      .demands_calls = reading.demands_calls,
                                      .is_whole = !request.is_stream,
                                      .is_parallel = reading.is_parallel});
  }
  if (!prompt.echo.empty()) append({.text = prompt.echo});
}

const std::string& AnswerChoice::text() const {
  static const std::string kNone;
  return pieces_.empty() ? kNone : pieces_.front().text;
}

std::string_view AnswerChoice::finish_word() const {
  const bool ends_with_calls = *finish_ == FinishReason::stop && has_complete_calls() && !request_.reading.is_named;
  return ends_with_calls ? "tool_calls" : to_string(*finish_);
}

void AnswerChoice::end(FinishReason reason, StopReason stop_reason) {
  check(!finish_, "a choice ends once");
  finish_ = reason;
  stop_reason_ = std::move(stop_reason);
}

void AnswerChoice::clear() {
  pieces_.clear();
  tokens_.clear();
  echoed_.reset();
}

/// Appends a piece, to the last one if both are of one kind and call.
void AnswerChoice::append(MessagePiece piece) {
  const bool continues = !pieces_.empty() && piece.kind != MessagePiece::Kind::call && pieces_.back().kind == piece.kind &&
                         pieces_.back().call == piece.call;
  if (!continues) {
    pieces_.push_back(std::move(piece));
    return;
  }
  pieces_.back().text += piece.text;
  pieces_.back().is_complete |= piece.is_complete;
}

/// Counts the tokens since the last pieces as what the first new piece is.
void AnswerChoice::count_reasoning(std::span<const MessagePiece> pieces) {
  if (pieces.empty()) return;
  if (pieces.front().kind == MessagePiece::Kind::reasoning) n_reasoning_tokens_ += n_undecided_tokens_;
  n_undecided_tokens_ = 0;
  is_reasoning_ = pieces.back().kind == MessagePiece::Kind::reasoning;
}

/// Adds what the parser has made of the text; true if that ends the choice.
bool AnswerChoice::add_pieces(std::vector<MessagePiece> pieces) {
  const MessageReading& reading = request_.reading;
  count_reasoning(pieces);
  for (MessagePiece& piece : pieces) {
    if (piece.kind == MessagePiece::Kind::reasoning && !reading.shows_reasoning) continue;
    if (piece.kind == MessagePiece::Kind::call) {
      if (piece.call > 0 && !reading.is_parallel) {
        end(FinishReason::stop, {});
        return true;
      }
      ++n_calls_;
      if (piece.id.empty()) piece.id = new_call_id(reading.has_short_ids);
    }
    if (piece.is_complete) ++n_complete_calls_;
    append(std::move(piece));
  }
  return false;
}

/// Adds text; true if it met a stop string or a call too many, which end the choice.
bool AnswerChoice::add(StreamDecoder::Piece piece) {
  if (parser_) {
    std::vector<MessagePiece> pieces;
    parser_->take(piece.text, pieces);
    if (add_pieces(std::move(pieces))) return true;
  } else if (!piece.text.empty()) {
    append({.text = std::move(piece.text)});
  }
  if (!piece.stop) return false;
  if (!end_message(TextEnd::cut)) end(FinishReason::stop, std::move(*piece.stop));
  return true;
}

/// Adds what the parser holds back; true if that ends the choice.
bool AnswerChoice::end_message(TextEnd how) {
  if (!parser_) return false;
  std::vector<MessagePiece> pieces;
  parser_->end(how, pieces);
  if (add_pieces(std::move(pieces))) return true;
  if (is_reasoning_) n_reasoning_tokens_ += n_undecided_tokens_;
  n_undecided_tokens_ = 0;
  return false;
}

/// Ends the choice as an event that ended the sequence says.
void AnswerChoice::finish(const Event& event) {
  n_tokens_ = event.stats.completion_tokens;
  if (event.stop_token) {
    tokens_.push_back(*event.stop_token);
    if (request_.include_stop && add(decoder_.push(event.stop_token->token))) return;
  }
  const TextEnd how = event.finished == FinishReason::stop ? TextEnd::natural : TextEnd::cut;
  if (add(decoder_.finish()) || end_message(how)) return;
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
    ++n_undecided_tokens_;
    tokens_.push_back(token);
    if (add(decoder_.push(token.token))) return !event.finished;
  }
  if (event.finished) finish(event);
  return false;
}

}  // namespace baton
