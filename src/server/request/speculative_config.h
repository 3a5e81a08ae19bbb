/// `speculative_config`: how a request, or by the flag of that name the server, speculates.
#pragma once

#include <string_view>

#include "core/result.h"
#include "engine/request/speculation.h"
#include "io/json.h"

namespace baton {

/// Reads vLLM's object {"method": "ngram", "num_speculative_tokens": N, "prompt_lookup_max": N, "prompt_lookup_min":
/// N}, whose keys may all be left out: 4 tokens, by n-grams of 2 to 4. One of the two lengths alone is both, as in
/// vLLM. 0 tokens: no speculation. Errors (invalid_request, of the field `key`): another method, a key that is not of
/// these, a value out of range.
Result<SpeculationOptions> parse_speculative_config(const json::Value& config, std::string_view key);

}  // namespace baton
