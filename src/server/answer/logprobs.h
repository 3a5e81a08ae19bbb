/// Log-probabilities in the two forms of the OpenAI dialect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/resumable.h"
#include "engine/request/request.h"
#include "io/json.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

/// One entry of a chat choice's `logprobs.content`: {token, logprob, bytes, top_logprobs}.
json::Value chat_logprob(const Tokenizer& tokenizer, const TokenOutput& token);

/// Both of these are written token by token: as a Value a long prompt's would take many times the memory of their text.
/// They append to `out`, and pause after each step of about 1,000 log-probabilities. The views must outlive them.

/// The text of a completion choice's `logprobs`: four lists of the tokens of `echoed` and those of `tokens`; a token
/// without a log-probability has null. `text_offset` is where the first token's text begins, in characters, and is moved
/// after the last one's.
Resumable write_completion_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> echoed,
                                    std::span<const TokenOutput> tokens, std::size_t& text_offset, std::string& out);

/// The text of `prompt_logprobs`: null for the first token of the prompt, then for each an object of {logprob, rank,
/// decoded_token} by token id: its own and the `n_top` most likely.
Resumable write_prompt_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> scores, std::int32_t n_top,
                                std::string& out);

/// Counts what has been written, and says when a step has enough.
class StepSize {
 public:
  /// `n` more log-probabilities, or as much of something else. True if it is time to pause.
  bool add(std::size_t n) {
    n_ += n;
    if (n_ < kMost) return false;
    n_ = 0;
    return true;
  }

 private:
  static constexpr std::size_t kMost = 1000;
  std::size_t n_ = 0;
};

}  // namespace baton
