/// One sequence's events as text: for programs that take answers from an engine without a server.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/shared_list.h"
#include "engine/request/request.h"
#include "text/tokenizer/stream_decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

/// Which part of the tokens is text, and what ends it.
struct SequenceTextOptions {
  SharedList<std::string> stop = {};  ///< strings that end the text
  bool include_stop = false;          ///< the stop string, or the stop token's text, is part of the text
  bool skip_special_tokens = true;
  std::int32_t min_tokens = 0;  ///< see StreamDecoder
  bool detokenize = true;       ///< false: there is no text, and nothing is searched for stop strings
};

/// Takes the events of a sequence in order. The tokenizer must outlive it. Thread: one at a time.
class SequenceText {
 public:
  /// What an event brings.
  struct News {
    std::string text;                 ///< to be appended
    std::vector<TokenOutput> tokens;  ///< to be appended; the stop token included
    std::optional<FinishReason> finished;
    std::optional<std::string> stop;  ///< the stop string that ended the text
    /// A stop string came before the engine's last event of the sequence: the caller ends it there (Engine::finish).
    bool is_ahead_of_engine = false;
  };

  /// The text follows that of `prompt`.
  SequenceText(const Tokenizer& tokenizer, const SequenceTextOptions& options, std::span<const TokenId> prompt);

  /// Events after the end bring nothing.
  News take(const Event& event);
  bool has_ended() const { return has_ended_; }

 private:
  bool add(StreamDecoder::Piece piece, News& news);
  void end(FinishReason reason, News& news);

  std::optional<StreamDecoder> decoder_;  ///< absent: no text
  bool include_stop_ = false;
  bool has_ended_ = false;
};

}  // namespace baton
