/// Decodes tokens until a stop string or the engine ends the sequence.
#include "load/sequence_text.h"

#include <utility>

namespace baton {

SequenceText::SequenceText(const Tokenizer& tokenizer, const SequenceTextOptions& options, std::span<const TokenId> prompt)
    : include_stop_(options.include_stop) {
  if (!options.detokenize) return;
  decoder_.emplace(tokenizer, options.stop, options.include_stop, options.skip_special_tokens, options.min_tokens);
  decoder_->follow(prompt);
}

/// Adds text; true if a stop string ends it.
bool SequenceText::add(StreamDecoder::Piece piece, News& news) {
  news.text += piece.text;
  if (!piece.stop) return false;
  news.stop = std::move(piece.stop);
  end(FinishReason::stop, news);
  return true;
}

void SequenceText::end(FinishReason reason, News& news) {
  has_ended_ = true;
  news.finished = reason;
}

SequenceText::News SequenceText::take(const Event& event) {
  News news;
  if (has_ended_) return news;
  for (const TokenOutput& token : event.tokens) {
    news.tokens.push_back(token);
    if (decoder_ && add(decoder_->push(token.token), news)) {
      news.is_ahead_of_engine = !event.finished;
      return news;
    }
  }
  if (!event.finished) return news;
  if (event.stop_token) {
    news.tokens.push_back(*event.stop_token);
    if (decoder_ && include_stop_ && add(decoder_->push(event.stop_token->token), news)) return news;
  }
  if (decoder_ && add(decoder_->finish(), news)) return news;
  end(*event.finished, news);
  return news;
}

}  // namespace baton
