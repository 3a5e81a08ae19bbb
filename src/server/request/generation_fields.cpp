/// The table of known fields; temperature, penalties, lists of tokens, seeds; the keys of a speculative_config.
#include "server/request/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "server/request/json_fields.h"

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

constexpr float kMaxTemperature = 100;
constexpr float kMaxRepetitionPenalty = 100;
constexpr std::size_t kMaxBadWordBytes = 256;

Result<void> check_size(std::string_view key, const Value& list, std::size_t most) {
  if (list.size() <= most) return {};
  return bad_field(key, "has {} entries; this server accepts {}", list.size(), most);
}

Result<void> parse_cuts(const Value& body, const SamplingDefaults& defaults, SamplingParams& sampling) {
  BATON_TRY(sampling.temperature, number_field(body, "temperature", 0, kMaxTemperature, defaults.temperature.value_or(1.0f)));
  BATON_TRY(const auto top_p, json::get_optional<float>(body, "top_p"));
  if (top_p && !(*top_p > 0 && *top_p <= 1)) return bad_field("top_p", "must be above 0 and at most 1, not {}", *top_p);
  sampling.top_p = top_p ? *top_p : defaults.top_p.value_or(1.0f);
  BATON_TRY(const auto top_k, integer_field(body, "top_k", -1, std::numeric_limits<std::int32_t>::max()));
  sampling.top_k = std::max(0, top_k ? *top_k : defaults.top_k.value_or(0));
  BATON_TRY(sampling.min_p, number_field(body, "min_p", 0, 1, defaults.min_p.value_or(0.0f)));
  return {};
}

Result<void> parse_penalties(const Value& body, const SamplingDefaults& defaults, SamplingParams& sampling) {
  BATON_TRY(sampling.presence_penalty, number_field(body, "presence_penalty", -kMaxPenalty, kMaxPenalty, 0));
  BATON_TRY(sampling.frequency_penalty, number_field(body, "frequency_penalty", -kMaxPenalty, kMaxPenalty, 0));
  BATON_TRY(sampling.repetition_penalty,
            number_field(body, "repetition_penalty", 0, kMaxRepetitionPenalty, defaults.repetition_penalty.value_or(1.0f)));
  if (sampling.repetition_penalty == 0) return bad_field("repetition_penalty", "must be above 0, not 0");
  return {};
}

/// {"id": bias, ...}
Result<void> parse_logit_bias(const Value& body, const RequestBounds& limits, SamplingParams& sampling) {
  constexpr std::string_view kKey = "logit_bias";
  const Value* biases = find_given(body, kKey);
  if (biases == nullptr) return {};
  if (!biases->is_object()) return json::wrong_type(kKey, "an object of token ids and numbers", *biases);
  BATON_TRY_VOID(check_size(kKey, *biases, kMaxLogitBiases));
  std::vector<TokenBias> parsed;
  for (const auto& [name, value] : biases->get_ref<const Value::object_t&>()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size() || id < 0 || id >= limits.n_vocab) {
      return bad_field(kKey, "must name token ids from 0 to {}, not '{}'", limits.n_vocab - 1,
                       std::string_view(name).substr(0, 40));
    }
    BATON_TRY(const float bias, json::convert<float>(value, kKey));
    if (!(bias >= -kMaxBias && bias <= kMaxBias))
      return bad_field(kKey, "must hold numbers from {} to {}, not {}", -kMaxBias, kMaxBias, bias);
    if (std::ranges::find(parsed, id, &TokenBias::id) != parsed.end()) return bad_field(kKey, "names token {} twice", id);
    parsed.push_back({id, bias});
  }
  sampling.logit_bias = std::move(parsed);
  return {};
}

Result<void> parse_bad_words(const Value& body, GenerationRequest& request) {
  constexpr std::string_view kKey = "bad_words";
  const Value* words = find_given(body, kKey);
  if (words == nullptr) return {};
  if (!words->is_array()) return json::wrong_type(kKey, "a list of strings", *words);
  BATON_TRY_VOID(check_size(kKey, *words, kMaxBadWords / 2));  // each in two spellings
  BATON_TRY(request.bad_words, json::convert<std::vector<std::string>>(*words, kKey));
  for (const std::string& word : request.bad_words) {
    if (word.find_first_not_of(' ') == std::string::npos || word.size() > kMaxBadWordBytes)
      return bad_field(kKey, "must hold words of 1 to {} bytes", kMaxBadWordBytes);
  }
  return {};
}

Result<void> parse_allowed(const Value& body, const RequestBounds& limits, SamplingParams& sampling) {
  constexpr std::string_view kKey = "allowed_token_ids";
  const Value* ids = find_given(body, kKey);
  if (ids == nullptr) return {};
  if (ids->is_array() && ids->empty()) return bad(kKey, "'allowed_token_ids' must hold at least one token id");
  if (ids->is_array()) BATON_TRY_VOID(check_size(kKey, *ids, kMaxAllowedIds));
  BATON_TRY(std::vector<TokenId> allowed, parse_token_ids(*ids, kKey, limits.n_vocab));
  std::ranges::sort(allowed);  // the engine's order: it then shares the list of all prompts
  allowed.erase(std::ranges::unique(allowed).begin(), allowed.end());
  sampling.allowed_ids = std::move(allowed);
  return {};
}

Result<void> parse_seed(const Value& body, SamplingParams& sampling) {
  const Value* seed = find_given(body, "seed");
  if (seed == nullptr) return {};
  if (seed->is_number_unsigned()) {
    sampling.seed = seed->get<std::uint64_t>();
    return {};
  }
  BATON_TRY(const std::int64_t number, json::convert<std::int64_t>(*seed, "seed"));
  sampling.seed = static_cast<std::uint64_t>(number);
  return {};
}

}  // namespace

Result<void> refuse_fields_not_done(const Value& body) {
  for (const FieldNotDone& field : kFieldsNotDone) {
    const Value* value = json::find(body, field.name);
    if (value == nullptr || value->is_null() || field.is_neutral(*value)) continue;
    return bad(field.name, "'{}' is not supported by this server; the value accepted is {}", field.name, field.neutral);
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

Result<void> parse_sampling_fields(const Value& body, const SamplingDefaults& defaults, const RequestBounds& limits,
                                   GenerationRequest& request) {
  BATON_TRY_VOID(parse_cuts(body, defaults, request.sampling));
  BATON_TRY_VOID(parse_penalties(body, defaults, request.sampling));
  BATON_TRY_VOID(parse_logit_bias(body, limits, request.sampling));
  BATON_TRY_VOID(parse_bad_words(body, request));
  BATON_TRY_VOID(parse_allowed(body, limits, request.sampling));
  return parse_seed(body, request.sampling);
}

Result<SpeculationOptions> parse_speculative_config(const json::Value& config, std::string_view key) {
  constexpr std::string_view kTokens = "num_speculative_tokens";
  constexpr std::string_view kMax = "prompt_lookup_max";
  constexpr std::string_view kMin = "prompt_lookup_min";
  if (!config.is_object()) return json::wrong_type(key, "an object", config);
  const auto refuse = [&](std::string message) { return bad(key, "'{}': {}", key, message); };
  for (const auto& [name, value] : config.get_ref<const json::Value::object_t&>()) {
    const bool is_known = name == "method" || name == kTokens || name == kMax || name == kMin;
    if (!is_known) {
      return refuse(fmt::format("'{}' is not supported by this server; it reads method, {}, {} and {}", name.substr(0, 64),
                                kTokens, kMax, kMin));
    }
  }
  const auto named = [&](Error error) {
    error.param = std::string(key);
    error.message = fmt::format("'{}': {}", key, error.message);
    return tl::unexpected<Error>(std::move(error));
  };
  auto method = json::get_optional<std::string>(config, "method");
  if (!method) return named(std::move(method.error()));
  if (*method && **method != "ngram" && **method != "mtp")
    return refuse(fmt::format("method '{}' is not supported by this server; 'ngram' and 'mtp' are", (*method)->substr(0, 64)));
  auto n_tokens = integer_field(config, kTokens, 0, kMaxDraftTokens);
  if (!n_tokens) return named(std::move(n_tokens.error()));
  auto longest = integer_field(config, kMax, 1, kMaxLookupLen);
  if (!longest) return named(std::move(longest.error()));
  auto shortest = integer_field(config, kMin, 1, kMaxLookupLen);
  if (!shortest) return named(std::move(shortest.error()));

  SpeculationOptions options;
  if (*method && **method == "mtp") options.method = DraftMethod::mtp;
  if (options.method == DraftMethod::mtp && (*longest || *shortest))
    return refuse(fmt::format("{} and {} belong to method 'ngram', not to 'mtp'", kMax, kMin));
  options.n_tokens = n_tokens->value_or(options.method == DraftMethod::mtp ? kDefaultMtpTokens : kDefaultDraftTokens);
  if (*longest || *shortest) {
    options.lookup_max = *longest ? **longest : **shortest;
    options.lookup_min = *shortest ? **shortest : **longest;
  }
  if (options.lookup_min > options.lookup_max)
    return refuse(fmt::format("{} {} is over {} {}", kMin, options.lookup_min, kMax, options.lookup_max));
  return options;
}

}  // namespace baton
