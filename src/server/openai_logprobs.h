/// Log-probabilities in the two forms of the OpenAI dialect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "io/json.h"
#include "text/tokenizer.h"

namespace baton {

/// One entry of a chat choice's `logprobs.content`: {token, logprob, bytes, top_logprobs}.
json::Value chat_logprob(const Tokenizer& tokenizer, const TokenOutput& token);

/// Both of these are written token by token: as a Value a long prompt's would take many times the memory of their text.

/// The text of a completion choice's `logprobs`: four lists of the tokens of `echoed` and those of `tokens`; a token
/// without a log-probability has null. `text_offset` is where the first token's text begins, in characters, and is moved
/// behind the last one's.
std::string completion_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> echoed,
                                std::span<const TokenOutput> tokens, std::size_t& text_offset);

/// The text of `prompt_logprobs`: null for the first token of the prompt, then for each an object of {logprob, rank,
/// decoded_token} by token id: its own and the `n_top` most likely.
std::string prompt_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> scores, std::int32_t n_top);

}  // namespace baton
