/// The endpoints /tokenize and /detokenize.
#pragma once

#include "core/result.h"
#include "io/json.h"
#include "server/prefixes/prefixes.h"
#include "server/prompt/prompts.h"
#include "server/served/served_model.h"

namespace baton {

/// {prompt or messages, model?, prefix?, add_special_tokens?, add_generation_prompt?, return_token_strs?} ->
/// {count, max_model_len, tokens, token_strs}: the ids that a completion with the same fields would get.
/// `conversations_at`: see RequestBounds.
Result<json::Value> tokenize_request(const ServedModel& model, const Prefixes& prefixes, const json::Value& body,
                                     const IsCancelled& is_cancelled = {}, std::string_view conversations_at = {});

/// {tokens, model?} -> {prompt}
Result<json::Value> detokenize_request(const ServedModel& model, const Prefixes& prefixes, const json::Value& body);

/// What clients ask of the tokenizer: {tokenizer_class, model_max_length, bos_token, eos_token, ...}, where a token that the
/// model does not have is null. Conversations are rendered by /tokenize.
json::Value tokenizer_info(const ServedModel& model);

}  // namespace baton
