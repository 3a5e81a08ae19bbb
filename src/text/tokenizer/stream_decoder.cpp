/// Decodes the token ids of one sequence as they are generated.
#include "text/tokenizer/stream_decoder.h"

#include <algorithm>

namespace baton {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, SharedList<std::string> stop_strings, bool include_stop,
                             bool skip_special_tokens, std::int32_t min_tokens)
    : tokenizer_(tokenizer),
      stream_(tokenizer.decoder()),
      stop_strings_(std::move(stop_strings)),
      include_stop_(include_stop),
      skip_special_tokens_(skip_special_tokens),
      n_before_stops_(min_tokens) {
  if (std::ranges::find(stop_strings_, std::string()) == stop_strings_.end()) return;
  std::vector<std::string> given(stop_strings_.begin(), stop_strings_.end());
  std::erase(given, std::string());
  stop_strings_ = std::move(given);
}

void StreamDecoder::follow(std::span<const TokenId> prompt) {
  // Special tokens are not text, and a byte token may be half a character. The first piece is joined to neither.
  const auto is_text = [&](TokenId id) {
    return tokenizer_.contains(id) && !tokenizer_.is_special(id) && !tokenizer_.token_text(id).starts_with("<0x");
  };
  const auto last = std::find_if(prompt.rbegin(), prompt.rend(), is_text);
  if (last == prompt.rend()) return;
  std::string before;
  stream_.push(tokenizer_.token_text(*last), before);
  stream_.drop_held();
}

bool StreamDecoder::is_skipped(TokenId id) const {
  return skip_special_tokens_ && tokenizer_.is_special(id) && std::ranges::find(shown_, id) == shown_.end();
}

StreamDecoder::Piece StreamDecoder::push(TokenId id) {
  const bool may_stop = n_before_stops_ <= 0;
  if (!may_stop) --n_before_stops_;
  if (is_stopped_ || !tokenizer_.contains(id) || is_skipped(id)) return {};
  stream_.push(tokenizer_.token_text(id), pending_);
  may_stop_ = may_stop;
  if (!may_stop || stop_strings_.empty()) return {std::exchange(pending_, {}), {}};
  return take(false);
}

StreamDecoder::Piece StreamDecoder::finish() {
  if (is_stopped_) return {};
  stream_.finish(pending_);
  if (!may_stop_) return {std::exchange(pending_, {}), {}};
  return take(true);
}

/// Number of bytes at the end of the pending text that may be the beginning of a stop string.
std::size_t StreamDecoder::length_to_hold() const {
  std::size_t held = 0;
  for (const std::string& stop : stop_strings_) {
    std::size_t length = std::min(pending_.size(), stop.size() - 1);
    while (length > held && !pending_.ends_with(std::string_view(stop).substr(0, length))) --length;
    held = std::max(held, length);
  }
  return held;
}

/// Emits the part of the pending text that is final.
StreamDecoder::Piece StreamDecoder::take(bool is_last) {
  const std::string* first = nullptr;
  std::size_t first_end = 0;
  for (const std::string& stop : stop_strings_) {
    const std::size_t at = pending_.find(stop);
    if (at == std::string::npos) continue;
    const std::size_t end = at + stop.size();
    const bool is_better = first == nullptr || end < first_end || (end == first_end && stop.size() > first->size());
    if (!is_better) continue;
    first = &stop;
    first_end = end;
  }
  Piece piece;
  if (first != nullptr) {
    is_stopped_ = true;
    piece.text = pending_.substr(0, include_stop_ ? first_end : first_end - first->size());
    piece.stop = *first;
    pending_.clear();
    return piece;
  }
  const std::size_t n_certain = is_last ? pending_.size() : pending_.size() - length_to_hold();
  piece.text = pending_.substr(0, n_certain);
  pending_.erase(0, n_certain);
  return piece;
}

}  // namespace baton
