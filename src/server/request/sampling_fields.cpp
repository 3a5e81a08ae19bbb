/// Temperature, top_k, top_p and min_p, penalties, lists of tokens, seeds.
#include "server/request/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;
using openai::bad;
using openai::find_given;
using openai::integer_field;
using openai::number_field;

constexpr float kMaxTemperature = 100;
constexpr float kMaxRepetitionPenalty = 100;
constexpr std::size_t kMaxBadWordBytes = 256;

Result<void> check_size(std::string_view key, const Value& list, std::size_t most) {
  if (list.size() <= most) return {};
  return bad(key, fmt::format("'{}' has {} entries; this server accepts {}", key, list.size(), most));
}

Result<void> parse_cuts(const Value& body, const SamplingDefaults& defaults, SamplingParams& sampling) {
  BATON_TRY(sampling.temperature, number_field(body, "temperature", 0, kMaxTemperature, defaults.temperature.value_or(1.0f)));
  BATON_TRY(const auto top_p, json::get_optional<float>(body, "top_p"));
  if (top_p && !(*top_p > 0 && *top_p <= 1))
    return bad("top_p", fmt::format("'top_p' must be above 0 and at most 1, not {}", *top_p));
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
  if (sampling.repetition_penalty == 0) return bad("repetition_penalty", "'repetition_penalty' must be above 0, not 0");
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
      return bad(kKey, fmt::format("'{}' must name token ids from 0 to {}, not '{}'", kKey, limits.n_vocab - 1,
                                   std::string_view(name).substr(0, 40)));
    }
    BATON_TRY(const float bias, json::convert<float>(value, kKey));
    if (!(bias >= -kMaxBias && bias <= kMaxBias))
      return bad(kKey, fmt::format("'{}' must hold numbers from {} to {}, not {}", kKey, -kMaxBias, kMaxBias, bias));
    if (std::ranges::find(parsed, id, &TokenBias::id) != parsed.end())
      return bad(kKey, fmt::format("'{}' names token {} twice", kKey, id));
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
      return bad(kKey, fmt::format("'{}' must hold words of 1 to {} bytes", kKey, kMaxBadWordBytes));
  }
  return {};
}

Result<void> parse_allowed(const Value& body, const RequestBounds& limits, SamplingParams& sampling) {
  constexpr std::string_view kKey = "allowed_token_ids";
  const Value* ids = find_given(body, kKey);
  if (ids == nullptr) return {};
  if (ids->is_array() && ids->empty()) return bad(kKey, "'allowed_token_ids' must hold at least one token id");
  if (ids->is_array()) BATON_TRY_VOID(check_size(kKey, *ids, kMaxAllowedIds));
  BATON_TRY(std::vector<TokenId> allowed, openai::parse_token_ids(*ids, kKey, limits.n_vocab));
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

Result<void> parse_sampling_fields(const Value& body, const SamplingDefaults& defaults, const RequestBounds& limits,
                                   GenerationRequest& request) {
  BATON_TRY_VOID(parse_cuts(body, defaults, request.sampling));
  BATON_TRY_VOID(parse_penalties(body, defaults, request.sampling));
  BATON_TRY_VOID(parse_logit_bias(body, limits, request.sampling));
  BATON_TRY_VOID(parse_bad_words(body, request));
  BATON_TRY_VOID(parse_allowed(body, limits, request.sampling));
  return parse_seed(body, request.sampling);
}

}  // namespace baton
