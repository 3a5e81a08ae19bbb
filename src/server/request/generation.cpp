/// The fields of chat and plain completions, one function for each kind.
#include "server/request/generation.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/schedule/request_check.h"
#include "server/request/chat_history.h"
#include "server/request/generation_fields.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;

constexpr std::int32_t kMaxInt = std::numeric_limits<std::int32_t>::max();

Result<void> parse_stop(const Value& body, GenerationRequest& request) {
  const Value* stop = find_given(body, "stop");
  if (stop == nullptr) return {};
  if (stop->is_string()) {
    request.stop = {stop->get_ref<const std::string&>()};
  } else if (stop->is_array()) {
    BATON_TRY(request.stop, json::convert<std::vector<std::string>>(*stop, "stop"));
  } else {
    return json::wrong_type("stop", "a string or a list of strings", *stop);
  }
  if (request.stop.size() > kMaxStopStrings)
    return bad_field("stop", "has {} strings; this server accepts {}", request.stop.size(), kMaxStopStrings);
  for (const std::string& text : request.stop) {
    if (text.empty()) return bad_field("stop", "must not hold an empty string");
    if (text.size() > kMaxStopStringBytes)
      return bad_field("stop", "holds a string of {} bytes; this server accepts {}", text.size(), kMaxStopStringBytes);
  }
  return {};
}

Result<void> parse_end(const Value& body, const RequestBounds& limits, const SamplingDefaults& defaults,
                       std::optional<std::int32_t> default_max_tokens, GenerationRequest& request) {
  SamplingParams& sampling = request.sampling;
  BATON_TRY(const auto newer, integer_field(body, "max_completion_tokens", 0, kMaxInt));
  BATON_TRY(const auto older, integer_field(body, "max_tokens", 0, kMaxInt));
  sampling.max_tokens = newer ? newer : older ? older : default_max_tokens;
  if (defaults.max_tokens) sampling.max_tokens = std::min(sampling.max_tokens.value_or(kMaxInt), *defaults.max_tokens);
  BATON_TRY(const auto min_tokens, integer_field(body, "min_tokens", 0, kMaxInt));
  sampling.min_tokens = min_tokens.value_or(0);
  if (sampling.max_tokens && sampling.min_tokens > *sampling.max_tokens)
    return bad_field("min_tokens", "must be at most max_tokens, {}, not {}", *sampling.max_tokens, sampling.min_tokens);
  BATON_TRY(sampling.ignore_eos, flag_field(body, "ignore_eos", false));
  if (const Value* ids = find_given(body, "stop_token_ids")) {
    BATON_TRY(sampling.stop_ids, parse_token_ids(*ids, "stop_token_ids", limits.n_vocab));
  }
  BATON_TRY_VOID(parse_stop(body, request));
  BATON_TRY(request.include_stop, flag_field(body, "include_stop_str_in_output", false));
  BATON_TRY(request.skip_special_tokens, flag_field(body, "skip_special_tokens", true));
  return {};
}

Result<void> parse_stream(const Value& body, GenerationRequest& request) {
  BATON_TRY(request.is_stream, flag_field(body, "stream", false));
  const Value* options = find_given(body, "stream_options");
  if (options == nullptr) return {};
  if (!options->is_object()) return json::wrong_type("stream_options", "an object", *options);
  if (!request.is_stream) return bad_field("stream_options", "needs 'stream' to be true");
  BATON_TRY(request.include_usage, flag_field(*options, "include_usage", false));
  BATON_TRY(request.continuous_usage, flag_field(*options, "continuous_usage_stats", false));
  return {};
}

Result<void> parse_names(const Value& body, GenerationRequest& request) {
  BATON_TRY(const auto model, json::get_optional<std::string>(body, "model"));
  request.model = model.value_or("");
  BATON_TRY(request.prefix, json::get_optional<std::string>(body, "prefix"));
  BATON_TRY(const auto salt, json::get_optional<std::string>(body, "cache_salt"));
  if (salt && (salt->empty() || salt->size() > kMaxSaltBytes))
    return bad_field("cache_salt", "must have 1 to {} bytes, not {}", kMaxSaltBytes, salt->size());
  request.cache_salt = salt.value_or("");
  BATON_TRY(const auto key, json::get_optional<std::string>(body, "prompt_cache_key"));
  if (key) request.prompt_cache_key = key->substr(0, kShownCacheKeyBytes);
  BATON_TRY(request.request_id, json::get_optional<std::string>(body, "request_id"));
  if (!request.request_id) return {};
  if (request.request_id->empty() || request.request_id->size() > kMaxRequestIdBytes)
    return bad_field("request_id", "must have 1 to {} characters, not {}", kMaxRequestIdBytes, request.request_id->size());
  // It goes into headers and log lines.
  if (!std::ranges::all_of(*request.request_id, [](char c) { return c > ' ' && c <= '~'; }))
    return bad_field("request_id", "must be of visible ASCII characters, without spaces");
  return {};
}

Result<void> require_object(const Value& body) {
  if (!body.is_object())
    return fail(ErrorCode::invalid_request,
                fmt::format("the request body must be a JSON object, not {}", json::describe_type(body)));
  return check_field_count(body);
}

/// max_tokens 0 asks for nothing, except with `echo`.
Result<void> refuse_no_tokens(const Value& body, const SamplingParams& sampling) {
  if (!sampling.max_tokens || *sampling.max_tokens > 0) return {};
  const std::string_view field = find_given(body, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  return bad_field(field, "must be at least 1, not 0");
}

/// `chat_template_kwargs`, and `reasoning_effort` as variables for templates.
Result<Value> parse_template_variables(const Value& body) {
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  Value variables = Value::object();
  if (const Value* given = find_given(body, "chat_template_kwargs")) {
    if (!given->is_object()) return json::wrong_type("chat_template_kwargs", "an object", *given);
    variables = *given;
  }
  BATON_TRY(const auto effort, json::get_optional<std::string>(body, "reasoning_effort"));
  if (!effort) return variables;
  if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts))
    return bad_field("reasoning_effort", "must be one of {}, not \"{}\"", fmt::join(kEfforts, ", "), effort->substr(0, 40));
  variables["reasoning_effort"] = *effort;
  if (!variables.contains("enable_thinking")) variables["enable_thinking"] = *effort != "none";
  return variables;
}

Result<std::vector<Prompt>> parse_prompts(const Value& body, const RequestBounds& limits) {
  const Value* prompt = json::find(body, "prompt");
  if (prompt == nullptr) return json::missing("prompt");
  std::vector<Prompt> prompts;
  if (prompt->is_string()) {
    prompts.emplace_back(prompt->get_ref<const std::string&>());
    return prompts;
  }
  if (!prompt->is_array() || prompt->empty())
    return bad_field("prompt", "must be a string, a list of strings, a list of token ids, or a list of such lists");
  if (prompt->front().is_number()) {
    BATON_TRY(std::vector<TokenId> ids, parse_token_ids(*prompt, "prompt", limits.n_vocab));
    prompts.emplace_back(std::move(ids));
    return prompts;
  }
  for (std::size_t i = 0; i < prompt->size(); ++i) {
    const Value& element = (*prompt)[i];
    const std::string key = fmt::format("prompt[{}]", i);
    if (element.is_string()) {
      prompts.emplace_back(element.get_ref<const std::string&>());
    } else {
      if (!element.is_array()) return json::wrong_type(key, "a string or a list of token ids", element);
      BATON_TRY(std::vector<TokenId> ids, parse_token_ids(element, key, limits.n_vocab));
      prompts.emplace_back(std::move(ids));
    }
  }
  return prompts;
}

}  // namespace

Result<GenerationRequest> parse_generation_fields(const Value& body, const SamplingDefaults& defaults,
                                                  const RequestBounds& limits, std::optional<std::int32_t> default_max_tokens) {
  BATON_TRY_VOID(require_object(body));
  BATON_TRY_VOID(refuse_fields_not_done(body));
  GenerationRequest request;
  BATON_TRY_VOID(parse_names(body, request));
  BATON_TRY_VOID(parse_sampling_fields(body, defaults, limits, request));
  BATON_TRY_VOID(parse_end(body, limits, defaults, default_max_tokens, request));
  BATON_TRY_VOID(parse_stream(body, request));
  BATON_TRY(const auto n, integer_field(body, "n", 1, kMaxSequencesPerRequest));
  request.n = n.value_or(1);
  BATON_TRY(const auto priority, integer_field(body, "priority", std::numeric_limits<std::int32_t>::min(), kMaxInt));
  request.priority = priority.value_or(0);
  BATON_TRY(request.deadline_ms, integer_field(body, "deadline_ms", 1, kMaxInt));
  BATON_TRY(const auto n_prompt, integer_field(body, "prompt_logprobs", 0, limits.max_logprobs));
  if (n_prompt && request.is_stream) return bad_field("prompt_logprobs", "needs 'stream' to be false");
  request.n_prompt_logprobs = request.sampling.n_prompt_logprobs = n_prompt.value_or(-1);
  if (const Value* config = find_given(body, "speculative_config")) {
    BATON_TRY(request.speculation, parse_speculative_config(*config, "speculative_config"));
  }
  BATON_TRY(request.grammar, parse_structured_output(body, limits.json_spaces));
  BATON_TRY(request.wants_stats, flag_field(body, "baton_stats", false));
  BATON_TRY(request.wants_token_ids, flag_field(body, "return_token_ids", false));
  request.unknown_fields = unknown_fields(body);
  return request;
}

Result<ChatRequest> parse_chat_request(const Value& body, const SamplingDefaults& defaults, const RequestBounds& limits) {
  ChatRequest request;
  BATON_TRY(request.generation, parse_generation_fields(body, defaults, limits, std::nullopt));
  BATON_TRY_VOID(refuse_no_tokens(body, request.generation.sampling));
  const Value* messages = json::find(body, "messages");
  if (messages == nullptr) return json::missing("messages");
  BATON_TRY(request.messages, parse_messages(*messages, "messages"));
  BATON_TRY(request.tools, parse_tool_fields(body));
  BATON_TRY(const bool wants_logprobs, flag_field(body, "logprobs", false));
  BATON_TRY(const auto n_top, integer_field(body, "top_logprobs", 0, limits.max_logprobs));
  if (n_top && *n_top > 0 && !wants_logprobs) return bad_field("top_logprobs", "needs 'logprobs' to be true");
  if (wants_logprobs) request.generation.sampling.n_top_logprobs = n_top.value_or(0);
  BATON_TRY(const bool echo, flag_field(body, "echo", false));
  if (echo) return bad_field("echo", "is not supported by this server on chat completions; the value accepted is false");
  BATON_TRY(request.continue_final_message, flag_field(body, "continue_final_message", false));
  BATON_TRY(request.add_generation_prompt, flag_field(body, "add_generation_prompt", true));
  if (request.continue_final_message && request.add_generation_prompt)
    return bad_field("continue_final_message", "needs 'add_generation_prompt' to be false");
  BATON_TRY(request.add_special_tokens, flag_field(body, "add_special_tokens", false));
  BATON_TRY(request.template_variables, parse_template_variables(body));
  request.has_effort = find_given(body, "reasoning_effort") != nullptr;
  BATON_TRY(request.includes_reasoning, flag_field(body, "include_reasoning", true));
  return request;
}

Result<CompletionRequest> parse_completion_request(const Value& body, const SamplingDefaults& defaults,
                                                   const RequestBounds& limits) {
  constexpr std::int32_t kDefaultMaxTokens = 16;
  CompletionRequest request;
  BATON_TRY(request.generation, parse_generation_fields(body, defaults, limits, kDefaultMaxTokens));
  BATON_TRY_VOID(refuse_tool_fields(body, limits.conversations_at));
  BATON_TRY(request.prompts, parse_prompts(body, limits));
  BATON_TRY(request.echo, flag_field(body, "echo", false));
  if (!request.echo) BATON_TRY_VOID(refuse_no_tokens(body, request.generation.sampling));
  BATON_TRY(request.add_special_tokens, flag_field(body, "add_special_tokens", true));
  BATON_TRY(const auto n_logprobs, integer_field(body, "logprobs", 0, limits.max_logprobs));
  if (n_logprobs) request.generation.sampling.n_top_logprobs = *n_logprobs;
  if (request.echo && n_logprobs) {
    std::int32_t& n_prompt = request.generation.sampling.n_prompt_logprobs;
    n_prompt = std::max(n_prompt, *n_logprobs);
    request.generation.echoes_logprobs = true;
  }
  const std::size_t n_sequences = request.prompts.size() * static_cast<std::size_t>(request.generation.n);
  if (n_sequences > kMaxChoices)
    return bad_field("prompt", "and 'n' ask for {} sequences ({} prompts, n = {}); this server accepts {}", n_sequences,
                     request.prompts.size(), request.generation.n, kMaxChoices);
  return request;
}

}  // namespace baton
