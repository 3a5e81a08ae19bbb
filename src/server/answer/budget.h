/// What a request and its answer will take, counted before anything is computed, and their shares of the budgets.
#pragma once

#include <cstdint>
#include <span>

#include "core/result.h"
#include "server/answer/choice.h"
#include "server/limits/budget.h"
#include "server/request/generation.h"

namespace baton {

/// Log-probabilities that an answer keeps until it is complete (tokens x (1 + alternatives) x choices), and what each choice
/// repeats of its prompt, which is counted as log-probabilities of as many bytes.
struct ScoreCount {
  std::int64_t of_prompts = 0;
  std::int64_t of_answers = 0;  ///< at most
  std::int64_t of_copies = 0;   ///< of prompts' texts (echo) and token ids
  std::int64_t total() const { return of_prompts + of_answers + of_copies; }
};
ScoreCount count_scores(const GenerationRequest& request, bool is_chat, std::span<const AnswerPrompt> prompts,
                        std::int32_t max_model_len);

/// A stream's frames have no more of them than this before the first token: they are written at once, and wait for the
/// client. An answer that is no stream is written in pieces.
inline constexpr std::int64_t kMaxScoresBeforeStream = 16 << 10;

/// Takes from the budget of scores. Errors: invalid_request if an answer may not have as many, unavailable if there is no
/// room now.
Result<BudgetShare> take_scores(Budgets& budgets, const GenerationRequest& request, bool is_chat,
                                std::span<const AnswerPrompt> prompts, std::int32_t max_model_len);

/// Bytes that engine and answer keep for a request while it waits: each prompt and each list once, and what each
/// sequence has of its own. Log-probabilities are counted by count_scores.
std::int64_t request_bytes(const GenerationRequest& request, std::span<const AnswerPrompt> prompts);

/// Takes these bytes from the budget of requests. Errors: too_large for a request that finds no room even in an empty
/// server, unavailable if there is no room now.
Result<BudgetShare> take_request_bytes(Budget& budget, const GenerationRequest& request, std::span<const AnswerPrompt> prompts);

}  // namespace baton
