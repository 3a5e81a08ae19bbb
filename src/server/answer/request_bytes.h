/// The memory that a request takes from its arrival in the queue to the end of its answer.
#pragma once

#include <cstdint>
#include <span>

#include "core/result.h"
#include "server/answer/choice.h"
#include "server/limits/budget.h"
#include "server/request/generation.h"

namespace baton {

/// Bytes that engine and answer keep for a request while it waits: each prompt and each list once, and what each
/// sequence has of its own. Log-probabilities are counted by count_scores.
std::int64_t request_bytes(const GenerationRequest& request, std::span<const AnswerPrompt> prompts);

/// Takes these bytes from the budget of requests. Errors: too_large for a request that finds no room even in an empty
/// server, unavailable if there is no room now.
Result<BudgetShare> take_request_bytes(Budget& budget, const GenerationRequest& request, std::span<const AnswerPrompt> prompts);

}  // namespace baton
