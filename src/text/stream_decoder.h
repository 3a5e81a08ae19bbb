/// Token ids of one sequence, as they are made, to the text that may be sent to its client already.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace baton {

/// Ids in, whole UTF-8 out. Holds back half characters, text that may be the beginning of a stop string, and what later tokens
/// can still change (a run of <0xNN> tokens is UTF-8 as a whole or not at all), nothing else.
///
/// Invariant: without a stop string the pieces, joined, equal `tokenizer.decode` of all ids (behind a prompt: what they add to
/// it). With one, they end where the first stop string to be completed begins (or ends, with include_stop), however the text
/// was cut into tokens; of several completed by the same byte the longest counts. The tokenizer must outlive the decoder.
/// Thread: one at a time.
class StreamDecoder {
 public:
  struct Piece {
    std::string text;
    std::optional<std::string> stop;  ///< the stop string that was hit: nothing is emitted after it
  };

  /// Empty stop strings are ignored, and so are those that begin in the text of the first `min_tokens` tokens.
  StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stop_strings, bool include_stop, bool skip_special_tokens,
                std::int32_t min_tokens = 0);

  /// Says what stands before the first token: text after text keeps the space that a tokenizer takes from the beginning of a
  /// text. Before the first push, if at all.
  void follow(std::span<const TokenId> prompt);

  /// The text that became certain with this token.
  Piece push(TokenId id);
  /// What was held back; incomplete bytes become U+FFFD. The last call.
  Piece finish();

 private:
  Piece take(bool is_last);
  std::size_t length_to_hold() const;

  const Tokenizer& tokenizer_;
  TokenDecoder::Stream stream_;
  std::vector<std::string> stop_strings_;
  bool include_stop_ = false;
  bool skip_special_tokens_ = false;
  std::int32_t n_before_stops_ = 0;  // tokens whose text stop strings are not looked for in
  bool is_stopped_ = false;
  std::string pending_;  // decoded, not emitted
};

}  // namespace baton
