/// Makes the engine's token ids of a request's messages or prompt and the prefix that it names. /tokenize and
/// /detokenize. Prompts that do not fit the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "core/shared_list.h"
#include "engine/request/request.h"
#include "io/json.h"
#include "server/prefixes/prefixes.h"
#include "server/request/generation.h"
#include "server/served/served_model.h"

namespace baton {

/// A prompt that leaves no room for an answer, or not for the one that was asked for.
struct ContextExcess {
  std::int64_t prompt_len = 0;                  ///< tokens
  std::optional<std::int32_t> max_tokens = {};  ///< asked for, beyond what fits after the prompt; absent: nothing fits
  std::int32_t max_len = 0;                     ///< of prompt and answer
  bool is_least = false;                        ///< the text was not encoded: prompt_len is the least that it can have
};

/// What is too long about a prompt of so many tokens; nullopt: nothing.
std::optional<ContextExcess> context_excess(const ServedModel& model, std::int64_t prompt_len, const SamplingParams& sampling);

/// The same of so many bytes of a rendered conversation.
std::optional<ContextExcess> text_excess(const ServedModel& model, std::size_t n_bytes);
/// The same of texts of a conversation that chat templates show, for one that could not be rendered: those of the user, of the
/// system and of tools. nullopt: they may fit.
std::optional<ContextExcess> text_excess(const ServedModel& model, const json::Value& messages);

/// Its error as clients of the OpenAI API know it.
Error openai_excess(const ContextExcess& excess);

/// The meaning of a request's `model` and `prefix` fields.
struct ModelAndPrefix {
  std::string model;          ///< the name that answers repeat
  Prefixes::Use prefix = {};  ///< the named prefix, or none
};

/// "demo", "demo:shop", or "demo" with prefix "shop"; without a model: the first name. Errors: not_found, with the
/// existing names; invalid_request when the two fields name different prefixes.
Result<ModelAndPrefix> resolve_target(const ServedModel& model, const Prefixes& prefixes, const GenerationRequest& request);

/// The names under which the model and its prefixes are served: demo, demo:shop, ...
std::vector<std::string> served_names(const ServedModel& model, const Prefixes& prefixes);

/// Returns true once no client waits for a result. Asked while templates and tokenizers run, which end then with the
/// error unavailable (see WorkBudget); empty: never.
using IsCancelled = std::function<bool()>;

/// The text of the conversation, the prefix's messages first, with the tools. Errors: invalid_request, also when the
/// model has no template, or the prefix no messages, or when the template does not show tools.
Result<std::string> render_chat(const ServedModel& model, const Prefixes::Use& prefix, const ChatRequest& request,
                                const IsCancelled& is_cancelled = {});

struct TokenizedPrompt {
  SharedList<TokenId> tokens;
  std::string echo;                 ///< the prompt's text without the prefix, if the request asks for an echo
  std::int32_t n_public = 0;        ///< leading tokens that are a registered prefix's, to which no cache salt applies
  parsers::AnswerBegin begin = {};  ///< of the answer to a conversation
};

/// The ids of a conversation's text. The beginning that the prefix determines was tokenised when the prefix was
/// registered.
Result<TokenizedPrompt> tokenize_rendered(const ServedModel& model, const Prefixes::Use& prefix, const ChatRequest& request,
                                          std::string_view text, const IsCancelled& is_cancelled = {});
/// Both.
Result<TokenizedPrompt> tokenize_chat(const ServedModel& model, const Prefixes::Use& prefix, const ChatRequest& request,
                                      const IsCancelled& is_cancelled = {});

/// Sets how the answer to a conversation with this prompt is read. What the schemas of the tools say of that is found
/// out here, so that no answer's parser has to. The model must outlive the answer. Errors: unavailable for cancelled
/// work.
Result<void> set_reading(const ServedModel& model, const TokenizedPrompt& prompt, ChatRequest& request,
                         const IsCancelled& is_cancelled = {});

/// Text follows the prefix's text, ids follow its ids. After a prefix of tokens both do, without special tokens.
/// Error: invalid_request for a text that is longer than any prompt.
Result<TokenizedPrompt> tokenize_completion(const ServedModel& model, const Prefixes::Use& prefix,
                                            const CompletionRequest& request, const Prompt& prompt,
                                            const IsCancelled& is_cancelled = {});

/// The constraint of a request's grammar, none if it brings no grammar. The model must outlive it. `salt`: of the cache
/// of grammars. Errors: see Grammars::constraint.
Result<Grammars::Constrained> constraint_of(const ServedModel& model, const GenerationRequest& request,
                                            std::string_view salt = {}, const IsCancelled& is_cancelled = {});

/// Lets the answer to a conversation reason in front of what the request's grammar demands. Reasoning that the prompt
/// has begun and a single token ends is not part of the grammar (see engine_requests). Errors: those of
/// MessageFormat::behind_reasoning.
Result<void> allow_reasoning(const ServedModel& model, const parsers::AnswerBegin& begin, GenerationRequest& request);

/// The engine requests of a request's prompts, which share its lists and the constraint. Where the prompt has begun
/// reasoning that a token ends, the constraint applies after that token. A bad word is forbidden at
/// the beginning of a text and after a space, as the tokens that the tokenizer makes of it there; other token sequences
/// with the same text are not forbidden.
std::vector<Request> engine_requests(const ServedModel& model, const GenerationRequest& request, const Constraint& constraint,
                                     std::span<const TokenizedPrompt> prompts);

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
