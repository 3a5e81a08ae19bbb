/// The table of known fields.
#include "server/request/generation_fields.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace baton {
namespace {

using json::Value;

bool is_number(const Value& value, double number) { return value.is_number() && value.get<double>() == number; }
bool is_empty(const Value& value) { return (value.is_array() || value.is_object()) && value.empty(); }

bool never(const Value&) { return false; }
bool one(const Value& value) { return is_number(value, 1); }
bool is_false(const Value& value) { return value.is_boolean() && !value.get_ref<const Value::boolean_t&>(); }
bool empty_list(const Value& value) { return is_empty(value); }
bool empty_text(const Value& value) { return json::is_text(value, ""); }
bool no_tool(const Value& value) { return json::is_text(value, "none") || json::is_text(value, "auto"); }
bool only_text(const Value& value) { return value.is_array() && value.size() == 1 && json::is_text(value[0], "text"); }

/// A field that would change the answer and that this server does not support. null always counts as absent.
struct FieldNotDone {
  std::string_view name;
  bool (*is_neutral)(const Value&);
  std::string_view neutral;  ///< its text in the error
};

constexpr FieldNotDone kFieldsNotDone[] = {
    {"functions", empty_list, "[]; 'tools' replaces it"},
    {"function_call", no_tool, "\"none\" or \"auto\"; 'tool_choice' replaces it"},
    {"structural_tag", never, "null"},
    {"best_of", one, "1"},
    {"suffix", empty_text, "\"\""},
    {"truncate_prompt_tokens", never, "null"},
    {"use_beam_search", is_false, "false"},
    {"documents", empty_list, "[]"},
    {"chat_template", never, "null; the server's --chat-template sets it"},
    {"kv_transfer_params", empty_list, "{}"},
    {"repetition_detection", empty_list, "{}"},
    {"logits_processors", empty_list, "[]"},
    {"prompt_embeds", never, "null"},
    {"modalities", only_text, "[\"text\"]"},
    {"moderation", never, "null"},
    {"return_tokens_as_token_ids", is_false, "false"},
    {"vllm_xargs", empty_list, "{}"},
};

/// Fields that are read, and fields without effect on the answer.
constexpr std::string_view kKnownFields[] = {
    "model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "bad_words", "allowed_token_ids", "n",
    "stream", "stream_options", "stop", "seed", "logprobs", "top_logprobs", "prompt_logprobs", "min_tokens", "ignore_eos",
    "stop_token_ids", "include_stop_str_in_output", "skip_special_tokens", "add_special_tokens", "add_generation_prompt",
    "continue_final_message", "chat_template_kwargs", "reasoning_effort", "include_reasoning", "tools", "tool_choice",
    "parallel_tool_calls", "echo", "request_id", "cache_salt", "prefix", "baton_stats", "return_token_ids", "priority",
    "deadline_ms", "speculative_config", "response_format", "structured_outputs", "guided_json", "guided_regex",
    "guided_choice", "guided_grammar", "guided_json_object", "guided_decoding_backend", "guided_whitespace_pattern",
    "json_schema", "grammar",
    // Without effect here: hints, and what belongs to fields that are refused (beams, sounds, images).
    "prediction", "verbosity", "length_penalty", "early_stopping", "mm_processor_kwargs", "audio", "user", "metadata", "store",
    "service_tier", "session_id", "spaces_between_special_tokens", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "prompt_cache_options", "prompt_cache_breakpoint"};

constexpr std::size_t kMaxNameBytes = 64;

}  // namespace

Result<void> refuse_fields_not_done(const Value& body) {
  for (const FieldNotDone& field : kFieldsNotDone) {
    const Value* value = json::find(body, field.name);
    if (value == nullptr || value->is_null() || field.is_neutral(*value)) continue;
    return fail(ErrorCode::invalid_request,
                fmt::format("'{}' is not supported by this server; the value accepted is {}", field.name, field.neutral),
                std::string(field.name));
  }
  return {};
}

std::vector<std::string> unknown_fields(const Value& body) {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : body.get_ref<const Value::object_t&>()) {
    const bool is_known = std::ranges::find(kKnownFields, name) != std::end(kKnownFields) ||
                          std::ranges::find(kFieldsNotDone, name, &FieldNotDone::name) != std::end(kFieldsNotDone);
    if (!is_known) unknown.push_back(name.substr(0, kMaxNameBytes));
  }
  return unknown;
}

}  // namespace baton
