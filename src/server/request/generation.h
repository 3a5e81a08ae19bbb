/// Requests of the OpenAI dialect as values. Every field is checked, and errors name it (docs/api.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "core/shared_list.h"
#include "engine/request/request.h"
#include "io/json.h"
#include "io/json_dismantle.h"
#include "parsers/message_format.h"
#include "server/request/structured_output.h"
#include "server/request/tool_fields.h"

namespace baton {

/// The part of a request that its answer's parser needs. The format must outlive the answer.
struct MessageReading {
  const parsers::MessageFormat* format = nullptr;       ///< null: all text is content
  std::shared_ptr<const parsers::ToolIndex> tools;      ///< null: what looks like a call is content
  std::shared_ptr<const std::set<std::string>> custom;  ///< names of tools that take a text; null: none
  SharedList<TokenId> markers;                          ///< special tokens whose text the parser must see
  bool begins_in_reasoning = false;                     ///< the prompt has opened the reasoning
  bool begins_in_content = false;                       ///< the prompt has opened content, in a format that marks it
  bool shows_reasoning = true;                          ///< `include_reasoning`
  bool is_parallel = true;                              ///< `parallel_tool_calls`; false: a second call ends the answer
  bool has_calls_first = false;                         ///< an answer that does not begin with a call has none
  bool demands_calls = false;                           ///< `tool_choice` demands calls: the answer has nothing else
  bool is_named = false;                                ///< `tool_choice` names a tool: the answer's end is no "tool_calls"
  bool has_short_ids = false;                           ///< the template takes ids of calls of nine characters only
};

/// Bounds of a request's values that depend on the server.
struct RequestBounds {
  std::int32_t n_vocab = 0;
  std::int32_t max_logprobs = 20;
  grammar::JsonSpaces json_spaces = grammar::JsonSpaces::readable;  ///< of structured output
  std::string_view conversations_at = {};  ///< the path of the dialect that plain completions belong to; errors name it
};

/// Choices of one answer: sequences of all its prompts. Each prompt is an engine request with the engine's own limit
/// (kMaxSequencesPerRequest).
inline constexpr std::size_t kMaxChoices = 1024;
inline constexpr std::size_t kMaxStopStrings = 64;
inline constexpr std::size_t kMaxStopStringBytes = 1024;
inline constexpr std::size_t kMaxSaltBytes = 1024;
inline constexpr std::size_t kMaxRequestIdBytes = 128;
inline constexpr std::size_t kShownCacheKeyBytes = 64;

/// The fields that chat and plain completions have in common.
struct GenerationRequest {
  std::string model;                   ///< empty if the request names none
  std::optional<std::string> prefix;   ///< the name of a registered prefix
  SamplingParams sampling;             ///< without bad_words, which need the tokenizer: see engine_requests
  std::vector<std::string> bad_words;  ///< words that the answer must not contain
  std::int32_t n = 1;
  std::int32_t priority = 0;                      ///< lower is earlier
  std::optional<std::int32_t> deadline_ms;        ///< from arrival; then the answer ends with what it has
  std::optional<SpeculationOptions> speculation;  ///< `speculative_config`; absent: the server's
  bool is_stream = false;
  bool include_usage = false;     ///< a last frame with the usage
  bool continuous_usage = false;  ///< usage on every frame
  SharedList<std::string> stop;
  bool include_stop = false;
  std::int32_t n_prompt_logprobs = -1;  ///< `prompt_logprobs`: -1: none; sampling's may be more, for an echo
  bool echoes_logprobs = false;         ///< the prompt's log-probabilities stand before the answer's
  bool skip_special_tokens = true;
  MessageReading reading;        ///< of chat: how the text becomes a message
  bool wants_stats = false;      ///< `baton_stats`
  bool wants_token_ids = false;  ///< `return_token_ids`
  std::optional<std::string> request_id;
  std::string cache_salt;
  std::optional<std::string> prompt_cache_key;  ///< shortened; without effect but for the log
  std::optional<StructuredOutput> grammar;      ///< of each answer; see Grammars::constraint
  std::vector<std::string> unknown_fields;      ///< ignored
};

struct ChatRequest {
  GenerationRequest generation;
  json::Value messages;  ///< see parse_messages
  ToolFields tools;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;  ///< the template writes them
  bool includes_reasoning = true;   ///< the answer shows its reasoning
  json::Value template_variables;   ///< an object: `chat_template_kwargs` and other variables for templates
  bool has_effort = false;          ///< `reasoning_effort` is a field of its own, and not one of `chat_template_kwargs`
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationRequest generation;
  std::vector<Prompt> prompts;  ///< at least one
  bool echo = false;
  bool add_special_tokens = true;
};

/// Errors (invalid_request) name the field in `param`: a wrong type, a value out of range, or an
/// unsupported field that does not have its neutral value.
Result<ChatRequest> parse_chat_request(const json::Value& body, const SamplingDefaults& defaults, const RequestBounds& limits);
Result<CompletionRequest> parse_completion_request(const json::Value& body, const SamplingDefaults& defaults,
                                                   const RequestBounds& limits);

/// Parses the fields of both endpoints that say how tokens are chosen and when a sequence ends; also for `baton
/// generate`. `default_max_tokens`: nullopt for the rest of the context.
Result<GenerationRequest> parse_generation_fields(const json::Value& body, const SamplingDefaults& defaults,
                                                  const RequestBounds& limits, std::optional<std::int32_t> default_max_tokens);

/// Dismantles the JSON of a request (json::dismantle) at the end of its scope. The request must outlive it.
class ChatDismantling {
 public:
  explicit ChatDismantling(ChatRequest& request)
      : messages_(request.messages), tools_(request.tools.definitions), variables_(request.template_variables) {}

 private:
  const json::Dismantling messages_;
  const json::Dismantling tools_;
  const json::Dismantling variables_;
};

}  // namespace baton
