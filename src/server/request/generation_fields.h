/// The fields of the OpenAI dialect: which are known, and the ones that say how tokens are chosen and guessed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "engine/request/speculation.h"
#include "io/json.h"
#include "server/request/generation.h"

namespace baton {

/// The error for the first unsupported field that does not have its neutral value.
Result<void> refuse_fields_not_done(const json::Value& body);

/// The names of unknown fields, shortened for printing.
std::vector<std::string> unknown_fields(const json::Value& body);

/// Reads temperature, top_p, top_k, min_p, the penalties, logit_bias, bad_words, allowed_token_ids and seed into
/// `request`. Errors: invalid_request, with the field in `param`.
Result<void> parse_sampling_fields(const json::Value& body, const SamplingDefaults& defaults, const RequestBounds& limits,
                                   GenerationRequest& request);

/// Reads vLLM's object {"method": "ngram", "num_speculative_tokens": N, "prompt_lookup_max": N, "prompt_lookup_min":
/// N}, whose keys may all be left out: 4 tokens, by n-grams of 2 to 4. One of the two lengths alone is both, as in
/// vLLM. 0 tokens: no speculation. Errors (invalid_request, of the field `key`): another method, a key that is not of
/// these, a value out of range.
Result<SpeculationOptions> parse_speculative_config(const json::Value& config, std::string_view key);

}  // namespace baton
