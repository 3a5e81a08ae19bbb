/// From a request that was read to requests of the engine and an answer that waits for them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "server/answer/dispatcher.h"
#include "server/answer/writer.h"
#include "server/dialects/dialect.h"
#include "server/http/message.h"
#include "server/keys/api_keys.h"
#include "server/limits/budget.h"
#include "server/prefixes/prefixes.h"
#include "server/prompt/prompts.h"
#include "server/request/generation.h"
#include "server/served/served_model.h"

namespace baton {

/// A request for text: what its handler knows besides what it asks for.
struct AnswerCall {
  const ServedModel& model;
  Prefixes& prefixes;
  Budgets& budgets;
  AnswerDispatcher& dispatcher;
  ExchangeId exchange;
  const HttpRequest& request;
  const Caller& caller;
  std::string_view version;  ///< of the server
  IsCancelled is_unwanted;
  /// The constraint of the request's grammar. nullopt: it takes long, and the request begins again as long work.
  std::function<Result<std::optional<Constraint>>(const GenerationRequest& generation)> constrain;
};

/// The fields that describe an answer whose id begins with `ids`, one of a dialect's or kCompletionIds. The rest of the id is
/// what the body or the header X-Request-Id says, or random.
AnswerHeader answer_header(const HttpRequest& request, const GenerationRequest& generation, std::string_view ids,
                           std::string model, std::string_view version);

/// Submits a conversation of a dialect. Without an error, and without an answer, if it begins again as
/// long work. Errors: those of prompts and grammars, of budgets, and of AnswerDispatcher::begin.
Result<void> begin_conversation(const AnswerCall& call, const Dialect& dialect, ConversationCall conversation);
/// The same of the prompts of a plain completion.
Result<void> begin_completion(const AnswerCall& call, CompletionRequest completion);

}  // namespace baton
