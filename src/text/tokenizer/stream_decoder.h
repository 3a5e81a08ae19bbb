/// Decodes the token ids of one sequence as they are generated, into the text that may already be sent to the client.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/shared_list.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

/// Takes ids and returns whole UTF-8 characters. It holds back incomplete characters, text that may be the beginning
/// of a stop string, and text that later tokens can still change (a run of <0xNN> tokens is UTF-8 as a whole or not at
/// all).
///
/// Invariant: without a stop string, the joined pieces equal `tokenizer.decode` of all ids (after a prompt: what the
/// ids add to it). With one, the text ends where the first completed stop string begins (or ends, with include_stop),
/// however the text is divided into tokens. If one byte completes several stop strings, the longest counts. The
/// tokenizer must outlive the decoder. Thread: one at a time.
class StreamDecoder {
 public:
  struct Piece {
    std::string text;
    std::optional<std::string> stop;  ///< the stop string that was hit: nothing is emitted after it
  };

  /// Decoders may share stop strings. Empty ones are ignored, and so are ones that begin in the text of the first
  /// `min_tokens` tokens.
  StreamDecoder(const Tokenizer& tokenizer, SharedList<std::string> stop_strings, bool include_stop, bool skip_special_tokens,
                std::int32_t min_tokens = 0);

  /// Tells the decoder which ids precede the first token. After other text, a token keeps the leading space that a
  /// tokenizer drops at the beginning of a text. Call it before the first push, if at all.
  void follow(std::span<const TokenId> prompt);

  /// Special tokens whose text appears although special tokens are skipped.
  void show(SharedList<TokenId> ids) { shown_ = std::move(ids); }

  /// Adds a token and returns the text that is final from now on.
  Piece push(TokenId id);
  /// Returns the text that was held back; incomplete bytes become U+FFFD. This is the last call.
  Piece finish();

 private:
  bool is_skipped(TokenId id) const;
  Piece take(bool is_last);
  std::size_t length_to_hold() const;

  const Tokenizer& tokenizer_;
  TokenDecoder::Stream stream_;
  SharedList<std::string> stop_strings_;
  bool include_stop_ = false;
  bool skip_special_tokens_ = false;
  SharedList<TokenId> shown_;
  std::int32_t n_before_stops_ = 0;  // number of tokens whose text is not searched for stop strings
  bool may_stop_ = false;            // a token after those has given text
  bool is_stopped_ = false;
  std::string pending_;  // decoded, not emitted
};

}  // namespace baton
