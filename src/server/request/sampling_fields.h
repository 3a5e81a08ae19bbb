/// The fields of a request that say how each token is chosen.
#pragma once

#include "core/result.h"
#include "io/json.h"
#include "server/request/generation.h"

namespace baton {

/// Reads temperature, top_p, top_k, min_p, the penalties, logit_bias, bad_words, allowed_token_ids and seed into
/// `request`. Errors: invalid_request, with the field in `param`.
Result<void> parse_sampling_fields(const json::Value& body, const SamplingDefaults& defaults, const RequestBounds& limits,
                                   GenerationRequest& request);

}  // namespace baton
