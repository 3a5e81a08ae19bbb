/// What distinguishes one API for conversations from another, as a value: no other room names a dialect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "engine/request/request.h"
#include "io/json.h"
#include "server/answer/writer.h"
#include "server/http/json_body.h"
#include "server/keys/api_keys.h"
#include "server/limits/budget.h"
#include "server/prefixes/prefixes.h"
#include "server/prompt/prompts.h"
#include "server/request/generation.h"
#include "server/served/served_model.h"

namespace baton {

class ResponseStore;

/// What dialects need to read a request besides its body. What it refers to outlives the answer, except the caller.
struct ReadContext {
  const ServedModel& model;
  const Caller& caller;
  Budgets& budgets;
  ResponseStore& responses;
  Prefixes& prefixes;
  RequestBounds bounds;
  std::int32_t block_len = 0;    ///< of the engine's KV cache
  std::size_t n_body_bytes = 0;  ///< of the request
  IsCancelled is_unwanted;
  /// Fields that have no effect are logged.
  std::function<void(const std::vector<std::string>& fields)> log_unknown_fields;
  /// The request turns out to work on `n_bytes` of text. True: it begins again as long work, and reading it ends here. Error:
  /// unavailable.
  std::function<Result<bool>(std::size_t n_bytes)> goes_on_as_long_work;
};

/// Says which writer writes the answer to a conversation, whose prompt and scope the engine's request has.
using WriterOf = std::function<MakeAnswerWriter(const ModelAndPrefix& target, const Request& request)>;

/// A request for the next message of a conversation.
struct ConversationCall {
  ChatRequest chat;
  WriterOf writer_of;  ///< uses the body and the context that the request was read with
  /// What is said of a chat completion in the words of the dialect; empty: as it is.
  std::function<Error(Error)> words = {};
};

/// A dialect, a constant. Paths below `path` are the dialect's, too. What is read is nullopt if the request begins again as
/// long work. Errors are those of the request, in the words of the dialect.
struct Dialect {
  std::string_view path;             ///< where conversations are posted
  std::string_view count_path = {};  ///< where the tokens of a conversation are counted; empty: nowhere
  std::string_view ids;              ///< how the ids of its answers begin
  ErrorForm errors = kOpenaiErrors;
  /// The error of a conversation that does not fit the context.
  Error (*too_long)(const ContextExcess& excess) = openai_excess;

  /// Reads a body, an object, as a request for an answer.
  Result<std::optional<ConversationCall>> (*read)(const json::Value& body, const ReadContext& context);
  /// Reads a body, an object, as a request for a count. Null without `count_path`, as the next one.
  Result<std::optional<ChatRequest>> (*read_to_count)(const json::Value& body, const ReadContext& context) = nullptr;
  /// The answer to such a request.
  json::Value (*count_answer)(const json::Value& body, std::size_t n_tokens) = nullptr;

  /// Whether a request for `asked` is one of this dialect.
  constexpr bool has(std::string_view asked) const {
    return asked.starts_with(path) && (asked.size() == path.size() || asked[path.size()] == '/');
  }
};

}  // namespace baton
