/// From what a request names and says to the token ids that the engine gets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "engine/request.h"
#include "server/openai_request.h"
#include "server/prefixes.h"
#include "server/served_model.h"

namespace baton {

/// What a request's `model` and `prefix` fields mean.
struct Target {
  std::string model;          ///< as answers repeat it
  Prefixes::Use prefix = {};  ///< or none
};

/// "demo", "demo:shop", or "demo" with prefix "shop"; no model is the first one. Errors: not_found, with what exists;
/// invalid_request when the two fields name different prefixes.
Result<Target> resolve_target(const ServedModel& model, const Prefixes& prefixes, const GenerationRequest& request);

/// The names under which the model and its prefixes are served: demo, demo:shop, ...
std::vector<std::string> served_names(const ServedModel& model, const Prefixes& prefixes);

/// The text of the conversation, the prefix's messages first. Errors: invalid_request, also when the model has no template, or
/// the prefix no messages.
Result<std::string> render_chat(const ServedModel& model, const Prefixes::Use& prefix, const ChatRequest& request);

struct TokenizedPrompt {
  std::vector<TokenId> tokens;
  std::string echo;           ///< the prompt's text, without the prefix's, where it is asked for
  std::int32_t n_public = 0;  ///< leading tokens of a registered prefix, to which no cache salt applies
};

/// The ids of the whole text; what the prefix begins it with was made ids when it was registered.
Result<TokenizedPrompt> tokenize_chat(const ServedModel& model, const Prefixes::Use& prefix, const ChatRequest& request);
/// Text stands behind the prefix's text, ids behind its ids. Behind a prefix that is tokens both do, without special tokens.
TokenizedPrompt tokenize_completion(const ServedModel& model, const Prefixes::Use& prefix, const CompletionRequest& request,
                                    const Prompt& prompt);

/// What the engine is asked for one prompt. A bad word is one at the beginning of a text and after a space; it is the run of
/// tokens that the tokenizer makes of it, so other runs that read alike are not kept away.
Request engine_request(const ServedModel& model, const GenerationRequest& request, const TokenizedPrompt& prompt);

}  // namespace baton
