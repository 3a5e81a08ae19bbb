/// Log-probabilities in the two shapes of the OpenAI dialect.
#pragma once

#include <cstddef>
#include <string_view>

#include "engine/request.h"
#include "io/json.h"
#include "text/tokenizer.h"

namespace baton {

/// One entry of a chat choice's `logprobs.content`: {token, logprob, bytes, top_logprobs}.
json::Value chat_logprob(const Tokenizer& tokenizer, const TokenOutput& token);

/// A completion choice's `logprobs`: four lists as long as `tokens`. `text_offset` is where the first token's text begins, in
/// characters, and is moved behind the last one's.
json::Value completion_logprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> tokens, std::size_t& text_offset);

}  // namespace baton
